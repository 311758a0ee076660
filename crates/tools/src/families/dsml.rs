//! DeepSeek V3.2 and V4: functions and parameters as tags with a mark of their own; each says whether it is text or JSON.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "dsml",
    marks: &[&["｜DSML｜"]],
    syntaxes: &[
        CallSyntax {
            opens: &["<｜DSML｜tool_calls>"],
            gap: "\n",
            calls: Calls::Marked(CALL),
            between: Some("\n"),
            close: "</｜DSML｜tool_calls>",
            ..CallSyntax::PLAIN
        },
        CallSyntax {
            opens: &["<｜DSML｜function_calls>"],
            gap: "\n",
            calls: Calls::Marked(CALL),
            between: Some("\n"),
            close: "</｜DSML｜function_calls>",
            ..CallSyntax::PLAIN
        },
    ],
    examples: &[
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ],
    ..CallFamily::PLAIN
};

const CALL: Marked = Marked {
    open: "<｜DSML｜invoke name=\"",
    named: "\">",
    arguments: MarkedArguments::Parameters(CallParameters {
        first: "\n",
        open: "<｜DSML｜parameter name=\"",
        named: "\" string=\"",
        gap: "",
        values: &[
            ValueMark { text: "true\">", is_text: Some(true) },
            ValueMark { text: "false\">", is_text: Some(false) },
        ],
        close: "</｜DSML｜parameter>",
        lines: false,
        after: "\n",
    }),
    closes: &["</｜DSML｜invoke>"],
    ..Marked::PLAIN
};

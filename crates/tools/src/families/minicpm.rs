//! MiniCPM 5: functions and parameters as tags with names.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "minicpm",
    marks: &[&["<function name=\"", "<param name=\""]],
    syntaxes: &[CallSyntax {
        opens: &["<function name=\""],
        calls: Calls::Marked(Marked {
            named: "\">",
            arguments: MarkedArguments::Parameters(CallParameters {
                first: "",
                open: "<param name=\"",
                named: "\">",
                gap: "",
                values: &[ValueMark { text: "", is_text: None }],
                close: "</param>",
                lines: false,
                after: "",
            }),
            closes: &["</function>"],
            ..Marked::PLAIN
        }),
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<function name=\"get_weather\"><param name=\"city\">Zürich</param><param name=\"days\">2</param></function>",
    ],
    ..CallFamily::PLAIN
};

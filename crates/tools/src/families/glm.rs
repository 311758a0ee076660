//! GLM 4.5 and later, Ling, Laguna, Spark: the name, then keys and values in tags. Values that are no text are JSON.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "glm",
    marks: &[&["<tool_call>", "<arg_key>"]],
    syntaxes: &[CallSyntax {
        opens: &["<tool_call>"],
        calls: Calls::Marked(Marked {
            named: "\n",
            arguments: MarkedArguments::Parameters(CallParameters {
                first: "",
                open: "<arg_key>",
                named: "</arg_key>",
                gap: "\n",
                values: &[ValueMark { text: "<arg_value>", is_text: None }],
                close: "</arg_value>",
                lines: false,
                after: "\n",
            }),
            ..Marked::PLAIN
        }),
        close: "</tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
    ],
    ..CallFamily::PLAIN
};

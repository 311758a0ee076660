//! GLM 4.5 and later, Ling, Laguna, Spark: the name, then keys and values in tags. Values that are no text are JSON.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "glm",
    marks: &[&["<tool_call>", "<arg_key>"]],
    syntaxes: &[
        CallSyntax {
            calls: Calls::Marked(Marked {
                named: "\n",
                arguments: MarkedArguments::Parameters(CallParameters {
                    gap: "\n",
                    after: "\n",
                    ..PARAMETERS
                }),
                ..Marked::PLAIN
            }),
            ..CALL
        },
        // 4.7 and later: without line breaks
        CallSyntax {
            calls: Calls::Marked(Marked {
                arguments: MarkedArguments::Parameters(PARAMETERS),
                ..Marked::PLAIN
            }),
            ..CALL
        },
    ],
    examples: &[
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
    ],
    ..CallFamily::PLAIN
};

const CALL: CallSyntax =
    CallSyntax { opens: &["<tool_call>"], close: "</tool_call>", ..CallSyntax::PLAIN };

const PARAMETERS: CallParameters = CallParameters {
    first: "",
    open: "<arg_key>",
    named: "</arg_key>",
    gap: "",
    values: &[ValueMark { text: "<arg_value>", is_text: None }],
    close: "</arg_value>",
    lines: false,
    after: "",
};

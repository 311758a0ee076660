//! Kimi K2: control tokens around an id that names the tool, and JSON.

use crate::{CallFamily, CallSyntax, Calls, GivenId, Marked};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "kimi",
    marks: &[&["<|tool_calls_section_begin|>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|tool_calls_section_begin|>"],
        calls: Calls::Marked(Marked {
            open: "<|tool_call_begin|>",
            prefix: "functions.",
            named: ":#<|tool_call_argument_begin|>",
            closes: &["<|tool_call_end|>"],
            id: GivenId::Head,
            ..Marked::PLAIN
        }),
        between: Some(""),
        close: "<|tool_calls_section_end|>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
    ],
    ..CallFamily::PLAIN
};

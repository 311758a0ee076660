//! LFM2: a list of calls as Python writes them, between control tokens.

use crate::{CallFamily, CallSyntax, Calls};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "lfm",
    marks: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|tool_call_start|>"],
        calls: Calls::Python,
        close: "<|tool_call_end|>",
        ..CallSyntax::PLAIN
    }],
    examples: &["<|tool_call_start|>[get_weather(city='Zürich', days=2)]<|tool_call_end|>"],
    ..CallFamily::PLAIN
};

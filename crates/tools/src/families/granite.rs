//! Granite 3: a list of JSON objects behind a control token. Granite 4 is like Hermes.

use crate::{CallFamily, CallSyntax, Calls};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "granite",
    marks: &[&["<|tool_call|>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|tool_call|>", "<tool_call>"],
        calls: Calls::OBJECT_LIST,
        between: Some(", "),
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}]",
        "<tool_call>[{\"arguments\": {\"city\": \"Zürich\", \"days\": 2}, \"name\": \"get_weather\"}]",
    ],
    ..CallFamily::PLAIN
};

//! Apertus: a list of JSON objects with the tools' names as keys, between control tokens.

use crate::{CallFamily, CallSyntax, Calls};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "apertus",
    marks: &[&["<|tools_prefix|>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|tools_prefix|>"],
        calls: Calls::Keyed,
        between: Some(", "),
        close: "<|tools_suffix|>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Zürich\", \"days\": 2}}]<|tools_suffix|>",
    ],
    ..CallFamily::PLAIN
};

//! GigaChat 3: a JSON object in a message of its own.

use crate::{CallFamily, CallSyntax};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "gigachat",
    marks: &[&["<|function_call|>"], &["<|role_sep|>", "function call"]],
    syntaxes: &[CallSyntax {
        opens: &["<|function_call|>", "function call<|role_sep|>"],
        ..CallSyntax::PLAIN
    }],
    single: true,
    examples: &[
        "<|function_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}",
        "function call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}",
    ],
    ..CallFamily::PLAIN
};

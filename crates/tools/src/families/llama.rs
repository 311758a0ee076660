//! Llama 3: a reply that is a JSON object, or a list of calls as Python writes them; also behind a control token.

use crate::{CallFamily, CallSyntax, Calls, MoreKeys};

pub(super) static JSON: CallFamily = CallFamily {
    name: "llama-json",
    marks: &[&["<|python_tag|>"], &["\"parameters\": ", "{\"name\": "]],
    syntaxes: &[
        CallSyntax {
            opens: &["<|python_tag|>"],
            starts: &["{", "["],
            calls: OBJECTS,
            ..CallSyntax::PLAIN
        },
        CallSyntax {
            opens: &["<|python_start|>"],
            starts: &["["],
            calls: Calls::Python,
            close: "<|python_end|>",
            ..CallSyntax::PLAIN
        },
    ],
    single: true,
    examples: &[
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}",
        "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}",
        "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}",
        "[get_weather(city='Zürich', days=2)]",
    ],
    ..CallFamily::PLAIN
};

pub(super) static PYTHON: CallFamily = CallFamily {
    name: "llama-python",
    marks: &[&["<|python_start|>"], &["[func_name1(params_name1=params_value1"]],
    syntaxes: &[
        CallSyntax {
            opens: &["<|python_start|>"],
            starts: &["["],
            calls: Calls::Python,
            close: "<|python_end|>",
            ..CallSyntax::PLAIN
        },
        CallSyntax {
            opens: &["<|python_tag|>"],
            starts: &["{", "["],
            calls: OBJECTS,
            ..CallSyntax::PLAIN
        },
    ],
    examples: &[
        "[get_weather(city=\"Zürich\", days=2)]",
        "<|python_start|>[get_weather(city=\"Zürich\", days=2)]<|python_end|>",
    ],
    ..CallFamily::PLAIN
};

const OBJECTS: Calls = Calls::Objects {
    open: "{\"name\": \"",
    arguments: "parameters",
    list: ("", ""),
    more: MoreKeys::Type,
};

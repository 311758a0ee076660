//! gpt-oss: a message to a function, in the channel for commentary. Where the header names it differs.

use crate::{CallFamily, CallSyntax, Calls, Marked};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "gpt-oss",
    marks: &[&["<|channel|>", "functions."]],
    syntaxes: &[CallSyntax {
        opens: &[
            "<|channel|>commentary to=",
            "<|start|>assistant<|channel|>commentary to=",
            "<|start|>assistant<|channel|>analysis to=",
            "<|start|>assistant to=",
            "<|channel|>analysis to=",
        ],
        starts: &["to="],
        calls: Calls::Marked(Marked {
            prefix: "functions.",
            named: " <|constrain|>json<|message|>",
            ..Marked::PLAIN
        }),
        close: "<|call|>",
        ..CallSyntax::PLAIN
    }],
    drops: &[
        "<|start|>assistant<|channel|>final<|message|>",
        "<|start|>assistant<|channel|>commentary<|message|>",
        "<|end|>",
    ],
    single: true,
    examples: &[
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich\", \"days\": 2}<|call|>",
        " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Zürich\", \"days\": 2}<|call|>",
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich\", \"days\": 2}",
    ],
};

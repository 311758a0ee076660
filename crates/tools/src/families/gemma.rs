//! Gemma 4: a function and braces, with quotes that are a token of their own.

use crate::{CallFamily, CallSyntax, Calls, Marked, MarkedArguments};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "gemma",
    marks: &[&["<|tool_call>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|tool_call>"],
        calls: Calls::Marked(Marked {
            prefix: "call:",
            arguments: MarkedArguments::Braces { quote: "<|\"|>" },
            ..Marked::PLAIN
        }),
        close: "<tool_call|>",
        ..CallSyntax::PLAIN
    }],
    examples: &["<|tool_call>call:get_weather{city:<|\"|>Zürich<|\"|>,days:2}<tool_call|>"],
    ..CallFamily::PLAIN
};

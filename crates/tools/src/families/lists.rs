//! Families that put JSON objects, or a list of them, between tags of their own: Nemotron; Apriel and MiniMax M1.

use crate::{CallFamily, CallSyntax, Calls};

pub(super) static NEMOTRON: CallFamily = CallFamily {
    name: "nemotron",
    marks: &[&["<TOOLCALL>"]],
    syntaxes: &[CallSyntax {
        opens: &["<TOOLCALL>"],
        calls: Calls::OBJECT_LIST,
        between: Some(", "),
        close: "</TOOLCALL>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}]</TOOLCALL>",
    ],
    ..CallFamily::PLAIN
};

pub(super) static TOOL_CALLS: CallFamily = CallFamily {
    name: "tool-calls",
    marks: &[&["<tool_calls>"]],
    syntaxes: &[CallSyntax {
        opens: &["<tool_calls>"],
        gap: "\n",
        between: Some("\n"),
        close: "</tool_calls>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n</tool_calls>",
        "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}, \"id\": \"call00001\"}]</tool_calls>",
    ],
    ..CallFamily::PLAIN
};

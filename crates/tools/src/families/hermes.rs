//! Hermes, and after it Qwen 2.5 and 3, Granite 4, MiMo and many others: a JSON object between tags, one for each call.

use crate::{CallFamily, CallSyntax};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "hermes",
    marks: &[&["<tool_call>"]],
    syntaxes: &[CallSyntax {
        opens: &["<tool_call>"],
        gap: "\n",
        between: None,
        close: "</tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>",
        "<tool_call>{\"arguments\":{\"city\":\"Zürich\",\"days\":2},\"name\":\"get_weather\"}</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Zürich\\\", \\\"days\\\": 2}\"}",
    ],
    ..CallFamily::PLAIN
};

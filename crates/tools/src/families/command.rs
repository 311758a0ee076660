//! Command: a list of JSON objects with keys of its own, between control tokens.

use crate::{CallFamily, CallSyntax, Calls, MoreKeys};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "command",
    marks: &[&["<|START_ACTION|>"]],
    syntaxes: &[CallSyntax {
        opens: &["<|START_ACTION|>"],
        calls: Calls::Objects {
            open: "{\"tool_call_id\": \"#\", \"tool_name\": \"",
            arguments: "parameters",
            list: ("[\n    ", "\n]"),
            more: MoreKeys::None,
        },
        between: Some(",\n    "),
        close: "<|END_ACTION|>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}\n]<|END_ACTION|>",
    ],
    ..CallFamily::PLAIN
};

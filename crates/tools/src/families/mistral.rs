//! Mistral: a control token, then a name, and JSON after further control tokens. Models up to Nemo and Ministral write a list of
//! JSON objects instead.

use crate::{CallFamily, CallSyntax, Calls, GivenId, Marked, MoreKeys};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "mistral",
    marks: &[&["[TOOL_CALLS]"]],
    syntaxes: &[
        CallSyntax { calls: Calls::Marked(CALL), ..OPENED },
        // Small 3.2: an id before the arguments
        CallSyntax { calls: Calls::Marked(Marked { named: "[CALL_ID]@[ARGS]", ..CALL }), ..OPENED },
        CallSyntax {
            calls: Calls::Objects {
                open: "{\"name\": \"",
                arguments: "arguments",
                list: ("[", "]"),
                more: MoreKeys::Id,
            },
            gap: " ",
            between: Some(", "),
            ..OPENED
        },
    ],
    examples: &[
        "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
        "[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}, \"id\": \"call00001\"}]",
    ],
    ..CallFamily::PLAIN
};

const OPENED: CallSyntax = CallSyntax { opens: &["[TOOL_CALLS]"], ..CallSyntax::PLAIN };

const CALL: Marked = Marked { named: "[ARGS]", id: GivenId::Behind("[CALL_ID]"), ..Marked::PLAIN };

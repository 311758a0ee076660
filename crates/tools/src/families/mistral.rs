//! Mistral: a control token, then a list of JSON objects, or a name and JSON behind further control tokens.

use crate::{CallFamily, CallSyntax, Calls, GivenId, Marked};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "mistral",
    marks: &[&["[TOOL_CALLS]"]],
    syntaxes: &[CallSyntax {
        opens: &["[TOOL_CALLS]"],
        calls: Calls::Marked(Marked {
            named: "[ARGS]",
            id: GivenId::Behind("[CALL_ID]"),
            ..Marked::PLAIN
        }),
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
        "[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}, \"id\": \"call00001\"}]",
    ],
    ..CallFamily::PLAIN
};

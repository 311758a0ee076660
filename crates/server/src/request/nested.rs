//! Checks of objects inside known fields: content parts, calls, tools, formats. Like unknown fields of the body, their unknown fields
//! cause warnings, or errors on a strict server.

use serde_json::{Map, Value};

use crate::body::JsonBody;
use crate::error::Result;
use crate::fields::{Field, Takes};

/// Why a field has no effect that no template reads.
pub(crate) const NO_PLACE: &str = "templates have no place for it";

/// Types of content parts that contain text. Other parts are refused, or contain earlier thoughts, which templates omit.
const TEXTS: [&str; 5] = ["text", "input_text", "output_text", "summary_text", "refusal"];

/// Fields of a content part.
const PART: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("text", Field::Honoured),
    ("refusal", Field::Honoured),
    ("annotations", Field::NoEffect(NO_PLACE)),
    ("citations", Field::NoEffect(NO_PLACE)),
    ("logprobs", Field::NoEffect(NO_PLACE)),
    ("id", Field::NoEffect(NO_PLACE)),
    ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
]);

/// Fields of a tool call in an assistant message.
const CALL: Takes = Takes::Fields(&[
    ("id", Field::Honoured),
    ("type", Field::Honoured),
    ("function", Field::Honoured),
    ("index", Field::NoEffect("calls are in order")),
]);
const CALLED: Takes = Takes::Fields(&[
    ("name", Field::Honoured),
    ("arguments", Field::Honoured),
    ("index", Field::NoEffect("calls are in order")),
]);

/// Fields of a tool whose function is a nested object. That object is passed to the template with all of its fields.
const TOOL: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("function", Field::Honoured),
    ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
]);

/// Fields of a `tool_choice` that names a function.
const CHOICE: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("function", Field::Honoured),
    ("name", Field::Honoured),
]);
const CHOSEN: Takes = Takes::Fields(&[("name", Field::Honoured)]);

/// Fields of a `response_format`.
const FORMAT: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("json_schema", Field::Honoured),
    ("schema", Field::Honoured),
    ("name", Field::NoEffect(NO_PLACE)),
    ("description", Field::NoEffect(NO_PLACE)),
    ("strict", Field::Honoured),
]);
const SCHEMA: Takes = Takes::Fields(&[
    ("schema", Field::Honoured),
    ("name", Field::NoEffect(NO_PLACE)),
    ("description", Field::NoEffect(NO_PLACE)),
    ("strict", Field::Honoured),
]);

/// Checks the text parts of a content. `path`: path of the content.
///
/// # Errors
/// If the server is strict and a field is unknown.
pub(crate) fn check_parts(body: &JsonBody, path: &str, content: Option<&Value>) -> Result<()> {
    each(content, |i, part| {
        let kind = part.get("type").and_then(Value::as_str);
        match kind.is_some_and(|kind| TEXTS.contains(&kind)) {
            true => PART.check_member(body, &format!("{path}[{i}]."), part),
            false => Ok(()),
        }
    })
}

/// Checks the calls of a message. `path`: path of their list.
///
/// # Errors
/// If the server is strict and a field is unknown.
pub(crate) fn check_calls(body: &JsonBody, path: &str, calls: Option<&Value>) -> Result<()> {
    each(calls, |i, call| {
        let path = format!("{path}[{i}].");
        CALL.check_member(body, &path, call)?;
        inner(call, "function", |function| {
            CALLED.check_member(body, &format!("{path}function."), function)
        })
    })
}

/// Checks the tool of this index in `tools`.
///
/// # Errors
/// If the server is strict and a field is unknown.
pub(crate) fn check_tool(body: &JsonBody, i: usize, tool: &Value) -> Result<()> {
    match tool.as_object().filter(|tool| tool.get("function").is_some_and(Value::is_object)) {
        Some(tool) => TOOL.check_member(body, &format!("tools[{i}]."), tool),
        None => Ok(()),
    }
}

/// Checks `tool_choice`.
///
/// # Errors
/// If the server is strict and a field is unknown.
pub(crate) fn check_choice(body: &JsonBody) -> Result<()> {
    let Some(choice) = body.get("tool_choice").and_then(Value::as_object) else { return Ok(()) };
    CHOICE.check_member(body, "tool_choice.", choice)?;
    inner(choice, "function", |function| {
        CHOSEN.check_member(body, "tool_choice.function.", function)
    })
}

/// Checks the format of a reply in the field of this name.
///
/// # Errors
/// If the server is strict and a field is unknown.
pub(crate) fn check_format(body: &JsonBody, name: &str) -> Result<()> {
    let Some(format) = body.get(name).and_then(Value::as_object) else { return Ok(()) };
    FORMAT.check_member(body, &format!("{name}."), format)?;
    inner(format, "json_schema", |schema| {
        SCHEMA.check_member(body, &format!("{name}.json_schema."), schema)
    })
}

/// Calls `check` with each object of a list, and its index.
fn each(
    list: Option<&Value>,
    check: impl Fn(usize, &Map<String, Value>) -> Result<()>,
) -> Result<()> {
    let mut objects = list.and_then(Value::as_array).into_iter().flatten().enumerate();
    objects.try_for_each(|(i, value)| value.as_object().map_or(Ok(()), |object| check(i, object)))
}

/// Calls `check` with the object in a field, if there is one.
fn inner(
    object: &Map<String, Value>,
    name: &str,
    check: impl Fn(&Map<String, Value>) -> Result<()>,
) -> Result<()> {
    object.get(name).and_then(Value::as_object).map_or(Ok(()), check)
}

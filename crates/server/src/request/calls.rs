//! Tools that a request offers: `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's API.

use std::sync::Arc;

use serde_json::Value;
use tools::{ToolChoice, ToolError, ToolList, ToolOptions};

use super::nested::{check_choice, check_tool};
use crate::body::{JsonBody, value_bytes};
use crate::error::{ApiError, Result};
use crate::fields::{brief, brief_text};

/// Reads the tools that a reply may call, and how. Tools that are not functions are left out with a warning.
///
/// # Errors
/// A field that cannot be obeyed.
pub(crate) fn of_openai(body: &JsonBody) -> Result<Option<(Arc<ToolList>, ToolOptions)>> {
    let parallel = body.flag("parallel_tool_calls")?.unwrap_or(true);
    let choice = choice(body)?;
    match body.list("tools")?.filter(|list| !list.is_empty()) {
        None => no_tools(&choice).map(|()| None),
        Some(list) => {
            not_too_many_tools(list)?;
            read(body, functions(body, list, &["function"])?, choice, parallel)
        }
    }
}

/// Reads tools, each with its index in the request, together with how they are to be called; `None` if there are none.
///
/// # Errors
/// An invalid tool; a required call where there are no tools.
pub(crate) fn read(
    body: &JsonBody,
    list: Vec<(usize, Value)>,
    choice: ToolChoice,
    parallel: bool,
) -> Result<Option<(Arc<ToolList>, ToolOptions)>> {
    if list.is_empty() {
        return no_tools(&choice).map(|()| None);
    }
    let list = ToolList::from_items(list)?;
    Ok(Some((Arc::new(list), ToolOptions { choice, parallel, strict: body.is_strict() })))
}

/// Returns the tools in a list that have one of these types, or no type, and the index of each. Other tools run on a provider's servers, or take text in
/// place of arguments. They are left out with a warning, so that the rest can be used.
///
/// # Errors
/// A tool of another type, if the server is strict.
pub(crate) fn functions(
    body: &JsonBody,
    list: &[Value],
    types: &[&str],
) -> Result<Vec<(usize, Value)>> {
    let mut kept = Vec::new();
    for (i, tool) in list.iter().enumerate() {
        check_tool(body, i, tool)?;
        match tool.get("type").and_then(Value::as_str).filter(|kind| !types.contains(kind)) {
            None => kept.push((i, tool.clone())),
            Some(kind) => {
                let name = tool.get("name").and_then(Value::as_str).filter(|name| *name != kind);
                let name = name.map_or(String::new(), |name| format!(" {}", brief_text(name)));
                let kind = brief_text(kind);
                let note = format!("{kind}{name} is left out: only functions can be called");
                let problem = format!("{kind}{name}: only functions can be called");
                body.ignored("tools", &note, &problem)?;
            }
        }
    }
    Ok(kept)
}

/// Tools of a request, and bytes of memory that these take: they stay for the next request with the same ones.
const MOST_TOOLS: usize = 512;
const MOST_TOOL_BYTES: u64 = 32 << 20;

/// That there are no more and no larger tools than may be, before any is read.
///
/// # Errors
/// More of them.
pub(crate) fn not_too_many_tools(list: &[Value]) -> Result<()> {
    if list.len() > MOST_TOOLS {
        return Err(ApiError::field("tools", format!("more than {MOST_TOOLS} tools")));
    }
    match list.iter().map(value_bytes).sum::<u64>() > MOST_TOOL_BYTES {
        true => {
            let problem = format!("they take more than {MOST_TOOL_BYTES} bytes of memory");
            Err(ApiError::field("tools", problem))
        }
        false => Ok(()),
    }
}

/// That none of no tools must be called.
///
/// # Errors
/// That one must.
pub(crate) fn no_tools(choice: &ToolChoice) -> Result<()> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => Ok(()),
        _ => Err(ApiError::field("tool_choice", "there are no tools")),
    }
}

fn choice(body: &JsonBody) -> Result<ToolChoice> {
    const NAME: &str = "tool_choice";
    check_choice(body)?;
    match body.get(NAME) {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "required" => Ok(ToolChoice::Required),
        // the name stands one level higher in OpenAI's newer API
        Some(object) => {
            let name = object.pointer("/function/name").or_else(|| object.get("name"));
            match name.and_then(Value::as_str) {
                Some(name) => Ok(ToolChoice::Named(name.to_owned())),
                None => {
                    let expected = "expected auto, none, required or a function";
                    Err(ApiError::field(NAME, format!("{expected}, found {}", brief(object))))
                }
            }
        }
    }
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> ApiError {
        let error = match error {
            ToolError::Compiler(error) => return error.into(),
            error => error,
        };
        let (place, text) = (error.place(), error.to_string());
        let prefixes = [&*format!("{place}: "), "tools: ", "tool choice: "];
        let problem = prefixes.into_iter().find_map(|prefix| text.strip_prefix(prefix));
        ApiError::field(place, problem.unwrap_or(&text))
    }
}

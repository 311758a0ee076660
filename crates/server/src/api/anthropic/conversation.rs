//! A conversation as Anthropic writes it: `system`, `messages` with blocks of text, thought, calls and results, and tools.

use std::collections::HashSet;
use std::sync::Arc;

use engine::{Message, ToolCall};
use serde_json::{Map, Value};
use tools::{ToolChoice, ToolList, ToolOptions};

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, brief, check};
use crate::request::{no_tools, not_too_many, not_too_many_tools, numbered};

const MESSAGES: &str = "messages";

/// The system's message first, then those of the conversation.
///
/// # Errors
/// Where it cannot be read, or has what is no text.
pub(super) fn conversation(body: &JsonBody) -> Result<Vec<Message>> {
    const SYSTEM: &str = "system";
    let system = match body.get(SYSTEM) {
        None => String::new(),
        Some(content) => text_of(content).ok_or_else(|| {
            let problem = format!("expected a text or blocks of text, found {}", brief(content));
            ApiError::field(SYSTEM, problem)
        })?,
    };
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(Message::new(SYSTEM, system));
    }
    let list = body.list(MESSAGES)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::field(MESSAGES, "expected at least one"))?;
    not_too_many(MESSAGES, list)?;
    for (i, message) in list.iter().enumerate() {
        let wrong = |problem: String| ApiError::field(&format!("{MESSAGES}[{i}]"), problem);
        messages.extend(read(message).map_err(wrong)?);
    }
    let mut called: HashSet<&str> = HashSet::new();
    for message in &messages {
        called.extend(message.tool_calls.iter().map(|call| &*call.id));
        if let Some(id) = message.tool_call_id.as_deref().filter(|id| !called.contains(*id)) {
            let problem = format!("tool_use_id {} is that of no call before it", brief(&id.into()));
            return Err(ApiError::field(MESSAGES, problem));
        }
    }
    Ok(numbered(messages))
}

/// What a message comes to: results of tools are messages of their own.
fn read(message: &Value) -> Result<Vec<Message>, String> {
    let fields = message
        .as_object()
        .ok_or_else(|| format!("expected an object, found {}", brief(message)))?;
    if let Some((name, _)) =
        fields.iter().find(|(name, _)| !["role", "content"].contains(&&***name))
    {
        return Err(format!("{} cannot be had here", brief(&Value::from(&**name))));
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        Some(role @ ("user" | "assistant" | "system")) => role,
        _ => return Err("expected role user or assistant".into()),
    };
    let blocks = match fields.get("content") {
        Some(Value::String(text)) => return Ok(vec![Message::new(role, &**text)]),
        Some(Value::Array(blocks)) => blocks,
        _ => return Err("expected content: a text or blocks".into()),
    };
    let mut read = Blocks::default();
    for block in blocks {
        read.add(role, block)?;
    }
    let Blocks { mut results, text, thoughts, tool_calls, other } = read;
    // nothing is said where there are only results
    if other || results.is_empty() {
        let thoughts = Some(thoughts).filter(|text| !text.is_empty() && !tool_calls.is_empty());
        results.push(Message { tool_calls, thoughts, ..Message::new(role, text) });
    }
    Ok(results)
}

/// What the blocks of a message hold.
#[derive(Default)]
struct Blocks {
    results: Vec<Message>,
    text: String,
    thoughts: String,
    tool_calls: Vec<ToolCall>,
    /// Whether there are others than results.
    other: bool,
}

impl Blocks {
    fn add(&mut self, role: &str, block: &Value) -> Result<(), String> {
        let text = |key: &str| {
            let text = block.get(key).and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| format!("a block: expected {key}: a text"))
        };
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let known: &[&str] = match kind {
            "text" => &["text", "citations"],
            "thinking" => &["thinking", "signature"],
            "redacted_thinking" => &["data"],
            "tool_use" => &["id", "name", "input", "caller"],
            "tool_result" => &["tool_use_id", "content", "is_error"],
            _ => &[],
        };
        let others = block.as_object().into_iter().flatten().find(|(name, value)| {
            // what marks beginnings to keep changes nothing: they are kept anyway
            let everywhere = ["type", "cache_control"].contains(&&***name);
            !value.is_null() && !everywhere && !known.contains(&&***name)
        });
        if let Some((name, _)) = others.filter(|_| !known.is_empty()) {
            let name = brief(&Value::from(&**name));
            return Err(format!("a block of type {kind}: {name} cannot be had here"));
        }
        self.other |= kind != "tool_result";
        match (kind, role) {
            ("text", _) => self.text += &text("text")?,
            ("thinking", "assistant") => self.thoughts += &text("thinking")?,
            ("redacted_thinking", "assistant") => {}
            ("tool_use", "assistant") => {
                let arguments = match block.get("input") {
                    None | Some(Value::Null) => "{}".to_owned(),
                    Some(input @ Value::Object(_)) => input.to_string(),
                    Some(_) => return Err("a tool_use: expected input: an object".into()),
                };
                self.tool_calls.push(ToolCall { id: text("id")?, name: text("name")?, arguments });
            }
            ("tool_result", "user") => {
                let content = match block.get("content") {
                    None | Some(Value::Null) => String::new(),
                    Some(content) => text_of(content)
                        .ok_or("a tool_result: expected content: a text or blocks of text")?,
                };
                let content = match block.get("is_error") {
                    None | Some(Value::Null | Value::Bool(false)) => content,
                    // templates have no other place for it
                    Some(Value::Bool(true)) => format!("error: {content}"),
                    Some(_) => return Err("a tool_result: expected is_error: true or false".into()),
                };
                let id = text("tool_use_id")?;
                let result = Message::new("tool", content);
                self.results.push(Message { tool_call_id: Some(id), ..result });
            }
            _ => {
                let known = "text, thinking, tool_use or tool_result where they belong";
                return Err(format!("a block: expected {known}, found {}", brief(block)));
            }
        }
        Ok(())
    }
}

/// A text, or blocks of text; `None` for anything else.
fn text_of(content: &Value) -> Option<String> {
    let text = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"].as_str().map(str::to_owned),
        _ => None,
    };
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => blocks.iter().map(text).collect(),
        _ => None,
    }
}

const CHOICE: Fields = &[
    ("type", Field::Honoured),
    ("name", Field::Honoured),
    ("disable_parallel_tool_use", Field::Honoured),
];

/// What a reply may call, and how.
///
/// # Errors
/// A field that cannot be obeyed.
pub(super) fn tools(body: &JsonBody) -> Result<Option<(Arc<ToolList>, ToolOptions)>> {
    const NAME: &str = "tool_choice";
    let choice = body.nested(NAME)?;
    check(choice.fields(), CHOICE, |_| false)?;
    let parallel = !choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    let choice = match (choice.text("type")?, choice.text("name")?) {
        (None | Some("auto"), None) => ToolChoice::Auto,
        (Some("any"), None) => ToolChoice::Required,
        (Some("none"), None) => ToolChoice::None,
        (Some("tool"), Some(name)) => ToolChoice::Named(name.to_owned()),
        _ => {
            let expected = "expected type auto, any, none, or tool with a name";
            return Err(ApiError::field(NAME, expected));
        }
    };
    let Some(list) = body.list("tools")?.filter(|list| !list.is_empty()) else {
        return no_tools(&choice).map(|()| None);
    };
    not_too_many_tools(list)?;
    let list = ToolList::from_json(Value::Array(list.iter().map(own).collect()))?;
    Ok(Some((Arc::new(list), ToolOptions { choice, parallel })))
}

/// A tool of the client's own, as a bare function; others are left for the list to refuse.
fn own(tool: &Value) -> Value {
    let Some(fields) = tool.as_object() else { return tool.clone() };
    let kind = fields.get("type").is_some_and(|kind| kind == "custom" || kind.is_null());
    let keep = |(name, _): &(&String, &Value)| match name.as_str() {
        "cache_control" => false,
        "type" => !kind,
        _ => true,
    };
    let kept = fields.iter().filter(keep).map(|(name, value)| (name.clone(), value.clone()));
    Value::Object(kept.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_become_messages_calls_and_results() {
        let body = JsonBody::from(json!({
            "system": [{ "type": "text", "text": "Be " }, { "type": "text", "text": "brief." }],
            "messages": [
                { "role": "user", "content": "What is it?" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "" },
                    { "type": "text", "text": "Let me see." },
                    { "type": "tool_use", "id": "a", "name": "look", "input": { "at": 1 } }] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "a", "content": [{ "type": "text", "text": "a cat" }] },
                    { "type": "text", "text": "And?" }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a" }] },
            ],
        }));
        let read = conversation(&body).unwrap();
        let roles: Vec<&str> = read.iter().map(|message| &*message.role).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user", "tool"]);
        assert_eq!(read[0].content, "Be brief.");
        assert_eq!(read[2].tool_calls[0].arguments, r#"{"at":1}"#);
        assert_eq!((&*read[2].content, read[2].thoughts.as_deref()), ("Let me see.", Some("hm")));
        assert_eq!((read[3].tool_call_id.as_deref(), &*read[3].content), (Some("a"), "a cat"));
        assert_eq!((read[3].name.as_deref(), &*read[4].content), (Some("look"), "And?"));
        for (message, problem) in [
            (json!({ "role": "user", "content": [{ "type": "image" }] }), "expected text"),
            (json!({ "role": "user", "content": [{ "type": "tool_use", "id": "a" }] }), "belong"),
            (json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": 3 }] }), "id"),
            (json!({ "role": "user", "content": "x", "mood": 1 }), "mood"),
            (json!({ "role": "king", "content": "x" }), "role"),
            (
                json!({ "role": "user", "content": [{ "type": "text", "text": "x", "mood": 1 }] }),
                "mood",
            ),
        ] {
            let error = conversation(&json!({ "messages": [message] }).into()).unwrap_err();
            assert!(error.message.starts_with("messages[0]: "), "{error}");
            assert!(error.message.contains(problem), "{error}");
        }
    }

    #[test]
    fn results_say_that_they_are_errors_and_belong_to_calls() {
        let result =
            json!({ "type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true });
        let call = json!({ "type": "tool_use", "id": "a", "name": "look", "input": {} });
        let read = |messages: Value| conversation(&json!({ "messages": messages }).into());
        let asked = json!([
            { "role": "assistant", "content": [call] }, { "role": "user", "content": [result] }]);
        assert_eq!(read(asked).unwrap()[1].content, "error: no");
        let error = read(json!([{ "role": "user", "content": [result] }])).unwrap_err();
        assert!(error.message.contains("no call"), "{error}");
    }

    #[test]
    fn tools_are_the_clients_own() {
        let tool = json!({ "type": "custom", "name": "f", "input_schema": { "type": "object" },
                           "cache_control": { "type": "ephemeral" } });
        let read = |choice: Value| {
            tools(&json!({ "tools": [tool.clone()], "tool_choice": choice }).into())
        };
        let choice = json!({ "type": "tool", "name": "f", "disable_parallel_tool_use": true });
        let (list, options) = read(choice).unwrap().unwrap();
        assert_eq!((list.tools().len(), options.parallel), (1, false));
        assert_eq!(options.choice, ToolChoice::Named("f".into()));
        assert_eq!(read(json!({ "type": "any" })).unwrap().unwrap().1.choice, ToolChoice::Required);
        assert!(read(json!({ "type": "some" })).is_err());
        let theirs = json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] });
        assert!(tools(&theirs.into()).unwrap_err().message.contains("type"));
        assert!(tools(&json!({ "tool_choice": { "type": "any" } }).into()).is_err());
    }
}

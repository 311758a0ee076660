//! A conversation as Anthropic writes it: `system`, `messages` with blocks of text, thought, calls and results, and tools.

use std::collections::HashSet;
use std::sync::Arc;

use engine::{Message, ToolCall};
use serde_json::{Map, Value};
use tools::{ToolChoice, ToolList, ToolOptions};

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Takes, brief};
use crate::request::{
    NO_PLACE, check_parts, functions, no_tools, not_taken, not_too_many, not_too_many_tools,
    numbered, read_tools, without_billing,
};

const MESSAGES: &str = "messages";

/// The system's message first, then those of the conversation.
///
/// # Errors
/// Where it cannot be read, or has what is no text.
pub(super) fn conversation(body: &JsonBody) -> Result<Vec<Message>> {
    const SYSTEM: &str = "system";
    let system = match body.get(SYSTEM) {
        None => String::new(),
        Some(content) => {
            check_parts(body, SYSTEM, Some(content))?;
            let without = without_billing(body, content);
            text_of(without.as_ref().unwrap_or(content))
                .map_err(|problem| ApiError::field(SYSTEM, problem))?
        }
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
        check(body, i, message)?;
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
                    Some(content) => {
                        text_of(content).map_err(|problem| format!("a tool_result: {problem}"))?
                    }
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
            ("thinking" | "redacted_thinking" | "tool_use" | "tool_result" | "", _) => {
                let known = "text, thinking, tool_use or tool_result where they belong";
                return Err(format!("a block: expected {known}, found {}", brief(block)));
            }
            _ => return Err(format!("a block: {}", not_taken(kind, block))),
        }
        Ok(())
    }
}

/// Fields of a message.
const MESSAGE: Takes = Takes::Fields(&[("role", Field::Honoured), ("content", Field::Honoured)]);

/// Fields of content blocks, by block type. `cache_control` has no effect: equal beginnings of prompts are always cached.
const BLOCKS: [(&str, Takes); 5] = [
    (
        "text",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("text", Field::Honoured),
            ("citations", Field::NoEffect("templates have no place for them")),
            ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
        ]),
    ),
    (
        "thinking",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("thinking", Field::Honoured),
            ("signature", Field::NoEffect("thoughts of a local model are not signed")),
            ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
        ]),
    ),
    (
        "redacted_thinking",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("data", Field::NoEffect("templates leave earlier thoughts out")),
            ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
        ]),
    ),
    (
        "tool_use",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("id", Field::Honoured),
            ("name", Field::Honoured),
            ("input", Field::Honoured),
            ("caller", Field::NoEffect(NO_PLACE)),
            ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
        ]),
    ),
    (
        "tool_result",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("tool_use_id", Field::Honoured),
            ("content", Field::Honoured),
            ("is_error", Field::Honoured),
            ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
        ]),
    ),
];

/// Checks the fields of a message and of its blocks, as [`Takes::check_member`] does.
fn check(body: &JsonBody, i: usize, message: &Value) -> Result<()> {
    let Some(fields) = message.as_object() else { return Ok(()) };
    MESSAGE.check_member(body, &format!("{MESSAGES}[{i}]."), fields)?;
    for (at, block) in
        fields.get("content").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let kind = block.get("type").and_then(Value::as_str);
        let known = BLOCKS.iter().find(|(name, _)| Some(*name) == kind);
        if let (Some((_, takes)), Some(block)) = (known, block.as_object()) {
            let path = format!("{MESSAGES}[{i}].content[{at}]");
            takes.check_member(body, &format!("{path}."), block)?;
            check_parts(body, &format!("{path}.content"), block.get("content"))?;
        }
    }
    Ok(())
}

/// Returns a text, or the joined text of text blocks.
fn text_of(content: &Value) -> Result<String, String> {
    let expected =
        |found: &Value| format!("expected a text or blocks of text, found {}", brief(found));
    let text = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"].as_str().map(str::to_owned).ok_or_else(|| expected(block)),
        Some(kind) => Err(not_taken(kind, block)),
        None => Err(expected(block)),
    };
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => blocks.iter().map(text).collect(),
        other => Err(expected(other)),
    }
}

const CHOICE: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("name", Field::Honoured),
    ("disable_parallel_tool_use", Field::Honoured),
]);

/// Reads the client's own tools, and how the reply may call them. Tools of other types are left out with a warning.
///
/// # Errors
/// A field that cannot be obeyed.
pub(super) fn tools(body: &JsonBody) -> Result<Option<(Arc<ToolList>, ToolOptions)>> {
    const NAME: &str = "tool_choice";
    let choice = body.nested(NAME)?.checked(CHOICE)?;
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
    let list = functions(body, list, &["custom", "function"])?;
    let list = list.iter().map(|(index, tool)| (*index, own(tool))).collect();
    read_tools(body, list, choice, parallel)
}

/// Converts one of the client's own tools into a bare function.
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
            (json!({ "role": "user", "content": [{ "type": "image" }] }), "takes no images"),
            (json!({ "role": "user", "content": [{ "type": "document" }] }), "takes no files"),
            (
                json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": [{ "type": "image" }] }] }),
                "a tool_result: this model takes no images",
            ),
            (json!({ "role": "user", "content": [{ "type": "tool_use", "id": "a" }] }), "belong"),
            (json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": 3 }] }), "id"),
            (json!({ "role": "king", "content": "x" }), "role"),
        ] {
            let error = conversation(&json!({ "messages": [message] }).into()).unwrap_err();
            assert!(error.message.starts_with("messages[0]: "), "{error}");
            assert!(error.message.contains(problem), "{error}");
        }
    }

    #[test]
    fn unknown_fields_of_messages_and_blocks_are_told() {
        let block =
            json!({ "type": "text", "text": "x", "mood": 1, "citations": [1], "empty": [] });
        let message = json!({ "role": "user", "content": [block], "mood": 2 });
        let body = JsonBody::from(json!({ "messages": [message] }));
        assert_eq!(conversation(&body).unwrap(), [Message::new("user", "x")]);
        let told = ["messages[0].mood", "messages[0].content[0].mood"]
            .map(|path| format!("unknown field \"{path}\": ignored"));
        assert_eq!(body.notes(), told);
        let strict = JsonBody::from(json!({ "messages": [message] })).strict();
        assert_eq!(conversation(&strict).unwrap_err().param(), Some("messages[0].mood"));
        let text = json!({ "type": "text", "text": "x", "mood": 1 });
        let call = json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} });
        let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": [text] });
        let body = JsonBody::from(json!({ "system": [text], "messages": [
            { "role": "assistant", "content": [call] }, { "role": "user", "content": [result] }] }));
        conversation(&body).unwrap();
        let told = ["system[0].mood", "messages[1].content[0].content[0].mood"]
            .map(|path| format!("unknown field \"{path}\": ignored"));
        assert_eq!(body.notes(), told);
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
        let theirs = json!({ "type": "web_search_20250305", "name": "web_search" });
        let both = JsonBody::from(json!({ "tools": [theirs, tool] }));
        assert_eq!(tools(&both).unwrap().unwrap().0.tools().len(), 1);
        assert!(both.notes()[0].contains("web_search_20250305 web_search is left out"));
        assert!(tools(&both.strict()).is_err());
        assert!(tools(&json!({ "tools": [theirs] }).into()).unwrap().is_none());
        let must = json!({ "tools": [theirs], "tool_choice": { "type": "any" } });
        assert!(tools(&must.into()).is_err());
        assert!(tools(&json!({ "tool_choice": { "type": "any" } }).into()).is_err());
    }
}

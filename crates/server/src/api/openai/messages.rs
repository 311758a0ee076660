//! `messages`: a conversation as OpenAI writes it.

use engine::{Message, ToolCall};
use serde_json::Value;

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::brief;
use crate::wire::call_of_json;

const NAME: &str = "messages";

/// The conversation.
///
/// # Errors
/// Where it cannot be read, or has what is no text.
pub(in crate::api) fn messages(body: &JsonBody) -> Result<Vec<Message>> {
    let list = body.list(NAME)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::field(NAME, "expected at least one"))?;
    list.iter().enumerate().map(|(i, message)| read(i, message)).collect()
}

/// Fields of a message.
const KNOWN: [&str; 9] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "reasoning_content",
    "thinking",
    "refusal",
];

fn read(i: usize, message: &Value) -> Result<Message> {
    let wrong = |problem: String| ApiError::field(&format!("{NAME}[{i}]"), problem);
    let Some(fields) = message.as_object() else {
        return Err(wrong(format!("expected an object, found {}", brief(message))));
    };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        if !KNOWN.contains(&&**name) {
            return Err(wrong(format!("{name} cannot be had here, found {}", brief(value))));
        }
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        // a newer word for what templates call so
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        _ => return Err(wrong("expected role system, developer, user, assistant or tool".into())),
    };
    let calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(calls) => calls.as_array().and_then(|calls| calls.iter().map(call_of_json).collect()),
    };
    let expected = "expected tool_calls with a function, its name and its arguments";
    let tool_calls: Vec<ToolCall> = calls.ok_or_else(|| wrong(expected.into()))?;
    let content = match fields.get("content") {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => parts.iter().map(text_of).collect(),
        None | Some(Value::Null) if !tool_calls.is_empty() => Some(String::new()),
        _ => None,
    };
    let content = content.ok_or_else(|| wrong("expected content of text".into()))?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    // who of several speaks changes nothing a template is told; which tool does
    let name = text("tool_name").or_else(|| text("name")).filter(|_| role == "tool");
    let tool_call_id = text("tool_call_id");
    let thoughts = text("reasoning_content").or_else(|| text("thinking"));
    let thoughts = thoughts.filter(|_| !tool_calls.is_empty());
    let message = Message::new(role, content);
    Ok(Message { tool_calls, tool_call_id, name, thoughts, ..message })
}

/// The text of one part of a content; `None` for what is none.
fn text_of(part: &Value) -> Option<String> {
    match part.get("type")?.as_str()? {
        "text" => part.get("text")?.as_str().map(str::to_owned),
        // templates leave the thoughts of earlier replies out
        "thinking" | "redacted_thinking" => Some(String::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_and_their_parts_are_read_and_nothing_else() {
        let body = JsonBody::from(json!({ "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "name": "Ada", "content": [
                { "type": "text", "text": "Hello " }, { "type": "text", "text": "there" }] },
        ] }));
        let read = messages(&body).unwrap();
        let want = [Message::new("system", "Be brief."), Message::new("user", "Hello there")];
        assert_eq!(read, want);
        for (message, problem) in [
            (json!(3), "an object"),
            (json!({ "role": "king", "content": "x" }), "expected role"),
            (json!({ "role": "user" }), "content of text"),
            (json!({ "role": "user", "content": [{ "type": "image_url" }] }), "content of text"),
            (json!({ "role": "user", "content": "x", "mood": 1 }), "mood"),
        ] {
            let body = JsonBody::from(json!({ "messages": [message] }));
            let error = messages(&body).unwrap_err();
            assert!(error.message.starts_with("messages[0]: "), "{}", error.message);
            assert!(error.message.contains(problem), "{}", error.message);
        }
        assert!(messages(&JsonBody::from(json!({ "messages": [] }))).is_err());
        assert!(messages(&JsonBody::from(json!({}))).is_err());
    }
}

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
pub(crate) fn messages(body: &JsonBody) -> Result<Vec<Message>> {
    let list = body.list(NAME)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::field(NAME, "expected at least one"))?;
    let read: Result<Vec<Message>> =
        list.iter().enumerate().map(|(i, message)| read(i, message)).collect();
    Ok(numbered(read?))
}

/// Calls that have no id get one, results that do not say of which call they are belong to the first one of that name, or
/// the first one, that has none; and each says of which tool it is.
pub(crate) fn numbered(mut messages: Vec<Message>) -> Vec<Message> {
    let mut calls = 0;
    // those without a result
    let mut open: Vec<(String, String)> = Vec::new();
    for message in &mut messages {
        if !message.tool_calls.is_empty() {
            open.clear();
        }
        for call in &mut message.tool_calls {
            if call.id.is_empty() {
                call.id = format!("call{calls:05}");
            }
            calls += 1;
            open.push((call.id.clone(), call.name.clone()));
        }
        if message.role != "tool" {
            continue;
        }
        let found = match (&message.tool_call_id, &message.name) {
            (Some(id), _) => open.iter().position(|(known, _)| known == id),
            (None, Some(name)) => {
                let named = open.iter().position(|(_, known)| known == name);
                named.or((!open.is_empty()).then_some(0))
            }
            (None, None) => (!open.is_empty()).then_some(0),
        };
        if let Some(at) = found {
            let (id, name) = open.remove(at);
            message.tool_call_id.get_or_insert(id);
            message.name.get_or_insert(name);
        }
    }
    messages
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
    fn calls_and_results_find_each_other() {
        let call = |name: &str| json!({ "function": { "name": name, "arguments": { "n": 1 } } });
        let body = JsonBody::from(json!({ "messages": [
            { "role": "user", "content": "x" },
            { "role": "assistant", "content": "", "tool_calls": [call("a"), call("b")] },
            { "role": "tool", "tool_name": "b", "content": "2" },
            { "role": "tool", "content": "1" },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "own", "type": "function", "function": { "name": "c", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "own", "content": "3" },
        ] }));
        let read = messages(&body).unwrap();
        let ids: Vec<&str> =
            read.iter().flat_map(|m| &m.tool_calls).map(|call| &*call.id).collect();
        assert_eq!(ids, ["call00000", "call00001", "own"]);
        let results: Vec<_> = read.iter().filter(|m| m.role == "tool").collect();
        let of = |m: &Message| (m.tool_call_id.clone().unwrap(), m.name.clone().unwrap());
        let want = [("call00001", "b"), ("call00000", "a"), ("own", "c")];
        let got: Vec<_> = results.into_iter().map(of).collect();
        assert_eq!(got, want.map(|(id, name)| (id.to_owned(), name.to_owned())));
    }

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

//! `messages`: a conversation as OpenAI writes it.

use std::collections::{HashMap, HashSet, VecDeque};

use engine::{Message, ToolCall};
use serde_json::Value;

use super::nested::{NO_PLACE, check_calls, check_parts};
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Takes, brief, is_empty};
use crate::request::{content_of, not_taken};
use crate::wire::call_of_json;

const NAME: &str = "messages";

/// The conversation.
///
/// # Errors
/// Where it cannot be read, or has what is no text.
pub(crate) fn messages(body: &JsonBody) -> Result<Vec<Message>> {
    let list = body.list(NAME)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::field(NAME, "expected at least one"))?;
    not_too_many(NAME, list)?;
    let read: Result<Vec<Message>> =
        list.iter().enumerate().map(|(i, message)| read(body, i, message)).collect();
    Ok(numbered(read?))
}

/// Messages or items of a conversation; calls, results and parts of all of them together.
const MOST_MESSAGES: usize = 65_536;
const MOST_PARTS: usize = 131_072;

/// That a conversation in the field of this name has no more messages, and these no more parts, than may be.
///
/// # Errors
/// More of them.
pub(crate) fn not_too_many(name: &str, messages: &[Value]) -> Result<()> {
    if messages.len() > MOST_MESSAGES {
        return Err(ApiError::field(name, format!("more than {MOST_MESSAGES} messages")));
    }
    let length = |list: &Value| list.as_array().map_or(0, Vec::len);
    let parts = |message: &Value| length(&message["content"]) + length(&message["tool_calls"]);
    match messages.iter().map(parts).sum::<usize>() > MOST_PARTS {
        true => Err(ApiError::field(name, format!("more than {MOST_PARTS} parts and calls"))),
        false => Ok(()),
    }
}

/// Gives calls without an id one, and matches results to calls: by id, else by name, else in order. Each result then says the
/// id and the tool of its call.
pub(crate) fn numbered(mut messages: Vec<Message>) -> Vec<Message> {
    let given = messages.iter().flat_map(|message| &message.tool_calls);
    let given: HashSet<String> = given.map(|call| call.id.clone()).collect();
    let mut calls = 0;
    let mut open = OpenCalls::default();
    for message in &mut messages {
        if !message.tool_calls.is_empty() {
            open = OpenCalls::default();
        }
        for call in &mut message.tool_calls {
            if call.id.is_empty() {
                call.id = format!("call{calls:05}");
                while given.contains(&call.id) {
                    calls += 1;
                    call.id = format!("call{calls:05}");
                }
            }
            calls += 1;
            open.add(&call.id, &call.name);
        }
        if message.role != "tool" {
            continue;
        }
        let found = match (&message.tool_call_id, &message.name) {
            (Some(id), _) => open.take_by_id(id),
            (None, Some(name)) => open.take_by_name(name).or_else(|| open.take_first()),
            (None, None) => open.take_first(),
        };
        if let Some((id, name)) = found {
            message.tool_call_id.get_or_insert(id);
            message.name.get_or_insert(name);
        }
    }
    messages
}

/// Calls of the last message with calls that have no result yet. A client sends as many as fit into a request, so that each
/// look-up takes constant time: positions of calls that were taken are skipped once.
#[derive(Default)]
struct OpenCalls {
    /// Id and name of each call; `None` once a result has taken it.
    calls: Vec<Option<(String, String)>>,
    /// Positions in `calls`, in order.
    by_id: HashMap<String, VecDeque<usize>>,
    by_name: HashMap<String, VecDeque<usize>>,
    /// All calls before this position are taken.
    first: usize,
}

impl OpenCalls {
    fn add(&mut self, id: &str, name: &str) {
        let position = self.calls.len();
        self.by_id.entry(id.to_owned()).or_default().push_back(position);
        self.by_name.entry(name.to_owned()).or_default().push_back(position);
        self.calls.push(Some((id.to_owned(), name.to_owned())));
    }

    /// The first open call with this id.
    fn take_by_id(&mut self, id: &str) -> Option<(String, String)> {
        take(&mut self.calls, self.by_id.get_mut(id)?)
    }

    /// The first open call of this tool.
    fn take_by_name(&mut self, name: &str) -> Option<(String, String)> {
        take(&mut self.calls, self.by_name.get_mut(name)?)
    }

    fn take_first(&mut self) -> Option<(String, String)> {
        while let Some(call) = self.calls.get_mut(self.first) {
            self.first += 1;
            if let Some(call) = call.take() {
                return Some(call);
            }
        }
        None
    }
}

/// Takes the first call that is open among these positions, and drops the positions before it.
fn take(
    calls: &mut [Option<(String, String)>],
    positions: &mut VecDeque<usize>,
) -> Option<(String, String)> {
    std::iter::from_fn(|| positions.pop_front()).find_map(|position| calls[position].take())
}

/// Treatment of each field of a message.
const FIELDS: Takes = Takes::Fields(&[
    ("role", Field::Honoured),
    ("content", Field::Honoured),
    ("name", Field::Honoured),
    ("tool_calls", Field::Honoured),
    ("tool_call_id", Field::Honoured),
    ("tool_name", Field::Honoured),
    ("reasoning_content", Field::Honoured),
    ("reasoning", Field::Honoured),
    ("thinking", Field::Honoured),
    ("refusal", Field::Honoured),
    ("images", Field::Honoured),
    ("reasoning_details", Field::NoEffect("thoughts are read as text")),
    ("annotations", Field::NoEffect("templates have no place for them")),
    ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
    ("created_at", Field::NoEffect(NO_PLACE)),
    ("id", Field::NoEffect(NO_PLACE)),
]);

/// Warning about a system prompt whose first line was left out.
const BILLING_LINE: &str = "the system prompt's x-anthropic-billing-header line is left out: it changes with every request and \
                            says nothing to a model";

/// Returns the content of a system prompt without the billing line that Claude Code writes first; `None` if there is no such line. The
/// line differs in each request, so that nothing after it would be found in the prefix cache.
pub(crate) fn without_billing(body: &JsonBody, content: &Value) -> Option<Value> {
    let rest = |text: &Value| {
        let text = text.as_str().filter(|text| text.starts_with("x-anthropic-billing-header"))?;
        Some(Value::from(text.split_once('\n').map_or("", |(_, rest)| rest)))
    };
    let without = match content {
        Value::Array(parts) => {
            let first = rest(parts.first()?.get("text")?)?;
            let mut parts = parts.clone();
            parts[0]["text"] = first;
            Value::Array(parts)
        }
        text => rest(text)?,
    };
    body.note(BILLING_LINE);
    Some(without)
}

fn read(body: &JsonBody, i: usize, message: &Value) -> Result<Message> {
    let wrong = |problem: String| ApiError::field(&format!("{NAME}[{i}]"), problem);
    let Some(fields) = message.as_object() else {
        return Err(wrong(format!("expected an object, found {}", brief(message))));
    };
    FIELDS.check_member(body, &format!("{NAME}[{i}]."), fields)?;
    check_parts(body, &format!("{NAME}[{i}].content"), fields.get("content"))?;
    check_calls(body, &format!("{NAME}[{i}].tool_calls"), fields.get("tool_calls"))?;
    let role = match fields.get("role").and_then(Value::as_str) {
        // a newer word for what templates call so
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        _ => return Err(wrong("expected role system, developer, user, assistant or tool".into())),
    };
    if fields.get("images").is_some_and(|images| !is_empty(images)) {
        return Err(wrong(not_taken("image", message)));
    }
    let calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(calls) => calls.as_array().and_then(|calls| calls.iter().map(call_of_json).collect()),
    };
    let expected = "expected tool_calls with a function, its name and its arguments";
    let tool_calls: Vec<ToolCall> = calls.ok_or_else(|| wrong(expected.into()))?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let content = match fields.get("content") {
        // the calls, thoughts or refusal are in other fields
        None | Some(Value::Null) if role == "assistant" => text("refusal").unwrap_or_default(),
        content => {
            let content = content.unwrap_or(&Value::Null);
            let begins = i == 0 && role == "system";
            let without = if begins { without_billing(body, content) } else { None };
            content_of(without.as_ref().unwrap_or(content)).map_err(wrong)?
        }
    };
    // who of several speaks changes nothing a template is told; which tool does
    let name = text("tool_name").or_else(|| text("name")).filter(|_| role == "tool");
    let tool_call_id = text("tool_call_id");
    let thoughts = ["reasoning_content", "reasoning", "thinking"].into_iter().find_map(text);
    let thoughts = thoughts.filter(|_| !tool_calls.is_empty());
    let message = Message::new(role, content);
    Ok(Message { tool_calls, tool_call_id, name, thoughts, ..message })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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

    /// The matching as it is defined: a scan of the open calls for each result.
    fn numbered_by_scans(mut messages: Vec<Message>) -> Vec<Message> {
        let (mut calls, mut open) = (0, Vec::<(String, String)>::new());
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
            let first = (!open.is_empty()).then_some(0);
            let found = match (&message.tool_call_id, &message.name) {
                _ if message.role != "tool" => None,
                (Some(id), _) => open.iter().position(|(known, _)| known == id),
                (None, Some(name)) => open.iter().position(|(_, known)| known == name).or(first),
                (None, None) => first,
            };
            if let Some((id, name)) = found.map(|at| open.remove(at)) {
                message.tool_call_id.get_or_insert(id);
                message.name.get_or_insert(name);
            }
        }
        messages
    }

    fn result(id: Option<String>, name: Option<String>) -> Message {
        Message { tool_call_id: id, name, ..Message::new("tool", "") }
    }

    fn calls(of: impl IntoIterator<Item = (String, String)>) -> Message {
        let call = |(id, name)| ToolCall { id, name, arguments: "{}".into() };
        Message { tool_calls: of.into_iter().map(call).collect(), ..Message::new("assistant", "") }
    }

    proptest! {
        /// Results take the calls that a scan finds, whatever ids and names are given twice or are missing.
        #[test]
        fn results_are_matched_as_by_scans(
            rounds in prop::collection::vec((
                prop::collection::vec((0..5_usize, 0..3_usize), 0..12),
                prop::collection::vec((0..7_usize, 0..5_usize), 0..16),
            ), 1..4),
        ) {
            let id = |i: usize| if i == 0 { String::new() } else { format!("id{i}") };
            let given = |i: usize, text: &str| (i > 1).then(|| format!("{text}{i}"));
            let mut messages = Vec::new();
            for (called, results) in rounds {
                messages.push(calls(called.iter().map(|(i, n)| (id(*i), format!("tool{n}")))));
                messages.extend(results.iter().map(|(i, n)| result(given(*i, "id"), given(*n, "tool"))));
            }
            prop_assert_eq!(numbered(messages.clone()), numbered_by_scans(messages));
        }
    }

    /// With a scan for each result, each of these takes minutes.
    #[test]
    fn many_results_are_matched_in_linear_time() {
        const N: usize = 200_000;
        let name = |i: usize| format!("tool{i}");
        let called = || calls((0..N).map(|i| (format!("id{i}"), name(i))));
        let last_first = |of: &dyn Fn(usize) -> Message| (0..N).rev().map(of).collect::<Vec<_>>();
        let all: [Vec<Message>; 4] = [
            last_first(&|i| result(Some(format!("id{i}")), None)),
            last_first(&|i| result(None, Some(name(i)))),
            last_first(&|_| result(None, Some("of no call".into()))),
            last_first(&|i| result(Some(format!("of no call {i}")), None)),
        ];
        for (i, results) in all.into_iter().enumerate() {
            let read = numbered(std::iter::once(called()).chain(results).collect());
            let matched = read.iter().filter(|m| m.tool_call_id.is_some() && m.name.is_some());
            assert_eq!(matched.count(), if i == 3 { 0 } else { N }, "case {i}");
        }
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
            (json!({ "role": "user" }), "expected content"),
            (json!({ "role": "user", "content": [{ "type": "image_url" }] }), "takes no images"),
            (json!({ "role": "user", "content": "x", "images": ["iVBORw0"] }), "takes no images"),
        ] {
            let body = JsonBody::from(json!({ "messages": [message] }));
            let error = messages(&body).unwrap_err();
            assert!(error.message.starts_with("messages[0]: "), "{}", error.message);
            assert!(error.message.contains(problem), "{}", error.message);
        }
        let odd = json!([
            { "role": "user", "content": "x", "mood": 1, "images": [], "audio": null, "id": "u1" },
            { "role": "assistant", "content": null, "refusal": "no", "annotations": [], "tool_calls": null },
        ]);
        let body = JsonBody::from(json!({ "messages": odd }));
        let read = messages(&body).unwrap();
        assert_eq!(read, [Message::new("user", "x"), Message::new("assistant", "no")]);
        assert_eq!(body.notes(), ["unknown field \"messages[0].mood\": ignored"]);
        let strict = JsonBody::from(json!({ "messages": odd })).strict();
        let error = messages(&strict).unwrap_err();
        assert_eq!(error.message, "unknown field \"messages[0].mood\"");
        assert!(messages(&JsonBody::from(json!({ "messages": [] }))).is_err());
        assert!(messages(&JsonBody::from(json!({}))).is_err());
    }
}

//! A line of a batch: OpenAI's batch lines, or an object with a `prompt`.

use std::sync::Arc;

use engine::{Message, SamplerOptions, SamplerSetting, ToolCall};
use grammar::FormSource;
use serde_json::{Map, Value};
use tools::{ToolChoice, ToolList, ToolOptions};

use crate::calling;

/// What a line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchRequest {
    /// The line's `custom_id`.
    pub(super) id: Option<String>,
    /// What is answered in.
    pub(super) shape: Shape,
    /// What is said.
    pub(super) prompt: BatchPrompt,
    /// How tokens are chosen.
    pub(super) sampler: SamplerOptions,
    /// Most tokens of the reply.
    pub(super) max_tokens: Option<usize>,
    /// Texts that end it.
    pub(super) stop: Vec<String>,
    /// Tools that the reply may call, and how.
    pub(super) tools: Option<(Arc<ToolList>, ToolOptions)>,
    /// What the reply must be.
    pub(super) form: Option<FormSource>,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `/v1/chat/completions` of OpenAI's batches.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// As `--json` prints a reply.
    Plain,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BatchPrompt {
    /// A conversation.
    Messages(Vec<Message>),
    /// A text that is continued as it is.
    Raw(String),
}

/// Why a line is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The line's `custom_id`, if that could be read.
    pub(super) id: Option<String>,
    /// The field that is at fault.
    pub(super) field: Option<String>,
    /// What is wrong.
    pub(super) problem: String,
    /// Whether the line is one of OpenAI's.
    pub(super) openai: bool,
}

/// Fields that change nothing here: who asks, what is kept elsewhere, and what is so anyway.
const NO_EFFECT: [&str; 8] = [
    "model",
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "stream_options",
];

/// Fields with one value that can be had.
const ONLY: [(&str, &str); 5] =
    [("stream", "false"), ("n", "1"), ("best_of", "1"), ("echo", "false"), ("logprobs", "false")];

/// Sampler settings by the names that requests have for them.
const SETTINGS: [(&str, &str); 8] = [
    ("temperature", "temperature"),
    ("top_p", "top-p"),
    ("top_k", "top-k"),
    ("min_p", "min-p"),
    ("repeat_penalty", "repeat-penalty"),
    ("repetition_penalty", "repeat-penalty"),
    ("presence_penalty", "presence-penalty"),
    ("frequency_penalty", "frequency-penalty"),
];

/// Read a line; settings it does not name are those of `defaults`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(line: &str, defaults: &SamplerOptions) -> Result<BatchRequest, Refusal> {
    let refuse = |problem: String| Refusal { id: None, field: None, problem, openai: false };
    let value: Value =
        serde_json::from_str(line).map_err(|error| refuse(format!("no JSON: {error}")))?;
    let Value::Object(mut object) = value else {
        return Err(refuse("expected an object".into()));
    };
    let id = match object.shift_remove("custom_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(other) => return Err(refuse(format!("custom_id: expected a text, found {other}"))),
    };
    let openai = object.contains_key("body");
    let read = if openai { of_openai(object) } else { Ok((Shape::Plain, object)) };
    let made = read.and_then(|(shape, body)| request(body, shape, defaults));
    match made {
        Ok(request) => Ok(BatchRequest { id, ..request }),
        Err((field, problem)) => Err(Refusal { id, field, problem, openai }),
    }
}

/// The field at fault and what is wrong with it.
type Wrong = (Option<String>, String);

fn wrong<T>(field: &str, problem: impl Into<String>) -> Result<T, Wrong> {
    Err((Some(field.to_owned()), problem.into()))
}

/// The body of one of OpenAI's lines.
fn of_openai(mut object: Map<String, Value>) -> Result<(Shape, Map<String, Value>), Wrong> {
    let shape = match object.shift_remove("url").as_ref().and_then(Value::as_str) {
        Some("/v1/chat/completions") => Shape::Chat,
        Some("/v1/completions") => Shape::Completion,
        _ => return wrong("url", "expected /v1/chat/completions or /v1/completions"),
    };
    if object.shift_remove("method").is_some_and(|method| method != "POST") {
        return wrong("method", "expected POST");
    }
    let Some(Value::Object(body)) = object.shift_remove("body") else {
        return wrong("body", "expected an object");
    };
    match object.keys().next() {
        Some(key) => wrong(key, "there is no such field"),
        None => Ok((shape, body)),
    }
}

fn request(
    mut body: Map<String, Value>,
    shape: Shape,
    defaults: &SamplerOptions,
) -> Result<BatchRequest, Wrong> {
    let prompt = prompt(&mut body, shape)?;
    let tools = tools(&mut body, &prompt)?;
    let form = form(&mut body)?;
    if form.is_some() && tools.is_some() {
        return wrong("response_format", "it cannot be had beside tools");
    }
    let mut sampler = defaults.clone();
    let (mut max_tokens, mut stop) = (None, Vec::new());
    for (key, value) in body {
        if value.is_null() || NO_EFFECT.contains(&&*key) {
            continue;
        }
        if let Some((_, allowed)) = ONLY.iter().find(|(name, _)| *name == key) {
            let found = value.to_string();
            if found != *allowed {
                return wrong(&key, format!("{value} cannot be had in a batch"));
            }
            continue;
        }
        if let Some((_, name)) = SETTINGS.iter().find(|(name, _)| *name == key) {
            let Some(number) = value.as_f64() else {
                return wrong(&key, format!("expected a number, found {value}"));
            };
            let setting = SamplerSetting::find(name).expect("all of them are settings");
            setting.set(&mut sampler, number).map_err(|problem| (Some(key), problem))?;
            continue;
        }
        match (&*key, &value) {
            ("max_tokens" | "max_completion_tokens" | "n_predict", value) => {
                let Some(n) = value.as_u64() else {
                    return wrong(&key, format!("expected a number of tokens, found {value}"));
                };
                max_tokens = usize::try_from(n).ok();
            }
            ("seed", value) => {
                let Some(seed) = value.as_i64() else {
                    return wrong(&key, format!("expected an integer, found {value}"));
                };
                sampler.seed = u64::try_from(seed).ok();
            }
            ("stop", Value::String(text)) => stop = vec![text.clone()],
            ("stop", Value::Array(texts)) => {
                let texts: Option<Vec<_>> =
                    texts.iter().map(|text| text.as_str().map(str::to_owned)).collect();
                let Some(texts) = texts else { return wrong(&key, "expected texts") };
                stop = texts;
            }
            _ => return wrong(&key, "there is no such field, or nothing that obeys it"),
        }
    }
    stop.retain(|text| !text.is_empty());
    if let Err(error) = sampler.check() {
        return Err((None, error.to_string()));
    }
    Ok(BatchRequest { id: None, shape, prompt, sampler, max_tokens, stop, tools, form })
}

/// The tools that a reply may call, and how.
fn tools(
    body: &mut Map<String, Value>,
    prompt: &BatchPrompt,
) -> Result<Option<(Arc<ToolList>, ToolOptions)>, Wrong> {
    let given = body.shift_remove("tools").filter(|tools| !tools.is_null());
    let choice = body.shift_remove("tool_choice").filter(|choice| !choice.is_null());
    let parallel = match body.shift_remove("parallel_tool_calls") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(parallel)) => parallel,
        Some(other) => {
            return wrong("parallel_tool_calls", format!("expected true or false, found {other}"));
        }
    };
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Value::String(word)) if ["auto", "none", "required"].contains(&&*word) => {
            calling::choice(&word)
        }
        Some(object) => match object.pointer("/function/name").and_then(Value::as_str) {
            Some(name) => ToolChoice::Named(name.to_owned()),
            None => {
                let expected = "expected auto, none, required or a function";
                return wrong("tool_choice", format!("{expected}, found {object}"));
            }
        },
    };
    let Some(given) = given else {
        return match choice {
            ToolChoice::Auto | ToolChoice::None => Ok(None),
            _ => wrong("tool_choice", "there are no tools"),
        };
    };
    let list = match ToolList::from_json(given) {
        Ok(list) if list.tools().is_empty() => return Ok(None),
        Ok(list) => list,
        Err(error) => return wrong("tools", error.to_string()),
    };
    match prompt {
        BatchPrompt::Messages(_) => Ok(Some((Arc::new(list), ToolOptions { choice, parallel }))),
        BatchPrompt::Raw(_) => wrong("tools", "only an answer to messages can call tools"),
    }
}

/// The form that a reply must have.
fn form(body: &mut Map<String, Value>) -> Result<Option<FormSource>, Wrong> {
    let Some(given) = body.shift_remove("response_format").filter(|form| !form.is_null()) else {
        return Ok(None);
    };
    match given.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(FormSource::JsonSchema("{\"type\": \"object\"}".into()))),
        Some("json_schema") => match given.pointer("/json_schema/schema") {
            Some(schema) => Ok(Some(FormSource::JsonSchema(schema.to_string()))),
            None => wrong("response_format", "expected a json_schema with a schema"),
        },
        _ => wrong(
            "response_format",
            format!("expected text, json_object or json_schema, found {given}"),
        ),
    }
}

fn prompt(body: &mut Map<String, Value>, shape: Shape) -> Result<BatchPrompt, Wrong> {
    let (messages, text) = (body.shift_remove("messages"), body.shift_remove("prompt"));
    match (shape, messages, text) {
        (Shape::Chat | Shape::Plain, Some(messages), None) => {
            let Value::Array(messages) = messages else {
                return wrong("messages", "expected an array");
            };
            let messages: Result<Vec<Message>, Wrong> = messages.into_iter().map(message).collect();
            match messages? {
                messages if messages.is_empty() => wrong("messages", "there are none"),
                messages => Ok(BatchPrompt::Messages(messages)),
            }
        }
        (Shape::Completion, None, Some(Value::String(text))) => Ok(BatchPrompt::Raw(text)),
        (Shape::Plain, None, Some(Value::String(text))) => {
            Ok(BatchPrompt::Messages(vec![Message::new("user", text)]))
        }
        (Shape::Chat, ..) => wrong("messages", "expected messages, and no prompt"),
        (Shape::Completion, ..) => wrong("prompt", "expected a text, and no messages"),
        (Shape::Plain, ..) => wrong("prompt", "expected a text, or else messages"),
    }
}

fn message(value: Value) -> Result<Message, Wrong> {
    let Value::Object(mut message) = value else {
        return wrong("messages", "expected objects");
    };
    let role = message.shift_remove("role");
    let calls: Vec<ToolCall> = match message.shift_remove("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(calls) => {
            let calls = calls.as_array().and_then(|calls| {
                calls.iter().map(server::call_of_json).collect::<Option<Vec<_>>>()
            });
            let Some(calls) = calls else {
                let expected = "expected tool_calls with a function, its name and its arguments";
                return wrong("messages", expected);
            };
            calls
        }
    };
    let content = match message.shift_remove("content") {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => parts.iter().map(text_of).collect(),
        None | Some(Value::Null) if !calls.is_empty() => Some(String::new()),
        _ => None,
    };
    let mut text = |key: &str| match message.shift_remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (tool_call_id, name) = (text("tool_call_id"), text("name"));
    if let Some(key) = message.keys().next() {
        return wrong("messages", format!("`{key}` of a message cannot be had in a batch"));
    }
    let (Some(Value::String(role)), Some(content)) = (role, content) else {
        return wrong("messages", "expected a role and a content of text in each");
    };
    // a name means something to templates where it is that of a tool
    let name = name.filter(|_| role == "tool");
    Ok(Message { tool_calls: calls, tool_call_id, name, ..Message::new(role, content) })
}

/// The text of one part of a content; `None` for what is none.
fn text_of(part: &Value) -> Option<String> {
    let kind = part.get("type")?.as_str()?;
    (kind == "text").then(|| part.get("text")?.as_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<BatchRequest, Refusal> {
        parse(line, &SamplerOptions::greedy())
    }

    #[test]
    fn both_kinds_of_lines_are_read() {
        let chat = read(
            r#"{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 5,
                "temperature": 0.5, "seed": 3, "stop": ["x", ""], "stream": false, "user": "me", "top_p": null}}"#,
        )
        .unwrap();
        assert_eq!((chat.id.as_deref(), chat.shape), (Some("a"), Shape::Chat));
        assert_eq!(chat.prompt, BatchPrompt::Messages(vec![Message::new("user", "hi")]));
        assert_eq!((chat.max_tokens, chat.stop), (Some(5), vec!["x".to_owned()]));
        assert_eq!((chat.sampler.temperature, chat.sampler.seed), (0.5, Some(3)));
        let plain = read(r#"{"prompt": "hi", "max_tokens": 3}"#).unwrap();
        assert_eq!((plain.shape, plain.id, plain.max_tokens), (Shape::Plain, None, Some(3)));
        let raw = read(r#"{"url": "/v1/completions", "body": {"prompt": "once"}}"#).unwrap();
        assert_eq!(raw.prompt, BatchPrompt::Raw("once".into()));
    }

    #[test]
    fn tools_and_forms_are_read() {
        let asked = read(
            r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": false,
                "tool_choice": {"type": "function", "function": {"name": "f"}}, "messages": [{"role": "user", "content": "x"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
                 "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"}]}"#,
        )
        .unwrap();
        let (list, options) = asked.tools.unwrap();
        assert_eq!((list.tools().len(), options.parallel), (1, false));
        assert_eq!(options.choice, ToolChoice::Named("f".into()));
        let BatchPrompt::Messages(messages) = asked.prompt else { panic!() };
        assert_eq!(messages[1].tool_calls[0].arguments, "{\"a\": 1}");
        assert_eq!(messages[2].tool_call_id.as_deref(), Some("c"));
        let form = |text: &str| {
            read(&format!("{{\"prompt\": \"x\", \"response_format\": {text}}}")).unwrap().form
        };
        assert_eq!(form(r#"{"type": "text"}"#), None);
        let schema =
            r#"{"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}}"#;
        assert_eq!(form(schema), Some(FormSource::JsonSchema("{\"type\":\"null\"}".into())));
        assert!(form(r#"{"type": "json_object"}"#).is_some());
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused_by_name() {
        for (line, field, problem) in [
            ("{", None, "no JSON"),
            ("3", None, "expected an object"),
            (r#"{"prompt": 3}"#, Some("prompt"), "a text"),
            (r#"{"prompt": "x", "n": 2}"#, Some("n"), "2 cannot"),
            (r#"{"prompt": "x", "temprature": 1}"#, Some("temprature"), "no such field"),
            (r#"{"prompt": "x", "temperature": "hot"}"#, Some("temperature"), "a number"),
            (r#"{"prompt": "x", "top_p": 7}"#, Some("top_p"), "0 to 1"),
            (r#"{"prompt": "x", "stop": 7}"#, Some("stop"), "no such"),
            (r#"{"url": "/v1/embeddings", "body": {}}"#, Some("url"), "/v1/chat"),
            (
                r#"{"url": "/v1/completions", "body": {"prompt": "x"}, "x": 1}"#,
                Some("x"),
                "no such",
            ),
            (r#"{"messages": []}"#, Some("messages"), "none"),
            (r#"{"messages": [{"role": "user"}]}"#, Some("messages"), "content"),
            (r#"{"prompt": "x", "tools": [{}]}"#, Some("tools"), "tool 1: type: expected"),
            (r#"{"prompt": "x", "tools": 3}"#, Some("tools"), "expected a list"),
            (r#"{"prompt": "x", "tool_choice": "required"}"#, Some("tool_choice"), "no tools"),
            (r#"{"prompt": "x", "tool_choice": 3}"#, Some("tool_choice"), "found 3"),
            (
                r#"{"prompt": "x", "parallel_tool_calls": 3}"#,
                Some("parallel_tool_calls"),
                "found 3",
            ),
            (
                r#"{"url": "/v1/completions", "body": {"prompt": "x", "tools": [{"name": "a"}]}}"#,
                Some("tools"),
                "messages",
            ),
            (
                r#"{"prompt": "x", "response_format": {"type": "xml"}}"#,
                Some("response_format"),
                "xml",
            ),
            (
                r#"{"prompt": "x", "tools": [{"name": "a"}], "response_format": {"type": "json_object"}}"#,
                Some("response_format"),
                "beside tools",
            ),
            (
                r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}"#,
                Some("messages"),
                "a function",
            ),
        ] {
            let refusal = read(line).unwrap_err();
            assert_eq!(refusal.field.as_deref(), field, "{line}: {refusal:?}");
            assert!(refusal.problem.contains(problem), "{line}: {refusal:?}");
        }
        let known =
            read(r#"{"custom_id": "b", "url": "/v1/completions", "body": {}}"#).unwrap_err();
        assert_eq!((known.id.as_deref(), known.openai), (Some("b"), true));
    }
}

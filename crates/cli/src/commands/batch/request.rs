//! A line of a batch: OpenAI's batch lines, or an object with a `prompt`.

use engine::{Message, SamplerOptions, SamplerSetting};
use serde_json::{Map, Value};

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
const NO_EFFECT: [&str; 9] = [
    "model",
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
    "stream_options",
];

/// Fields with one value that can be had.
const ONLY: [(&str, &str); 6] = [
    ("stream", "false"),
    ("n", "1"),
    ("best_of", "1"),
    ("echo", "false"),
    ("logprobs", "false"),
    ("tools", "[]"),
];

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
    Ok(BatchRequest { id: None, shape, prompt, sampler, max_tokens, stop })
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
    let content = match message.shift_remove("content") {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => parts.iter().map(text_of).collect(),
        _ => None,
    };
    if let Some(key) = message.keys().find(|key| *key != "name") {
        return wrong("messages", format!("`{key}` of a message cannot be had in a batch"));
    }
    match (role, content) {
        (Some(Value::String(role)), Some(content)) => Ok(Message::new(role, content)),
        _ => wrong("messages", "expected a role and a content of text in each"),
    }
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
            (r#"{"prompt": "x", "tools": [{}]}"#, Some("tools"), "cannot"),
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

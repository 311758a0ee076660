//! A line of a batch: OpenAI's batch lines, or an object with a `prompt`. What it asks for is read as the server reads it.

use std::collections::HashMap;

use engine::{Notes, SamplerOptions};
use serde_json::{Value, json};
use server::{ApiError, JsonBody, OpenAiEndpoint, OpenAiRequest};
use twox_hash::XxHash3_64;

/// What tells a line of a batch from others: its result has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineKey {
    /// The line's `custom_id`.
    pub(super) id: Option<String>,
    /// Of the line and the model that answers it.
    pub(super) digest: String,
    /// Tells the model from others.
    pub(super) model: String,
}

impl LineKey {
    /// The key of a line, `id` its `custom_id`. `model` tells models apart.
    pub(super) fn new(id: Option<String>, line: &str, model: &str) -> LineKey {
        let text = format!("{model}\n{}", line.trim());
        let digest = format!("{:016x}", XxHash3_64::oneshot(text.as_bytes()));
        LineKey { id, digest, model: model.to_owned() }
    }
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchRequest {
    /// The line's `custom_id`.
    pub(super) id: Option<String>,
    /// What is answered in.
    pub(super) shape: Shape,
    /// The request.
    pub(super) request: OpenAiRequest,
    /// Notes reported with the result: fields that have no effect.
    pub(super) notes: Notes,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// That of one of OpenAI's batches.
    OpenAi(OpenAiEndpoint),
    /// As `--json` prints a reply.
    Plain,
}

/// Why a line is refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    /// The line's `custom_id`, if that could be read.
    pub(super) id: Option<String>,
    /// What is wrong.
    pub(super) error: ApiError,
    /// Whether the line is one of OpenAI's.
    pub(super) openai: bool,
}

/// Fields that can be had of a server, and not in a batch.
const ONLY: [(&str, &[&str]); 3] =
    [("stream", &["false"]), ("n", &["1"]), ("return_progress", &["false"])];

/// Read a line; settings it does not name are those of `defaults`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(line: &str, defaults: &SamplerOptions) -> Result<BatchRequest, Refusal> {
    let refuse = |error| Refusal { id: None, error, openai: false };
    let mut line = JsonBody::parse(line.as_bytes()).map_err(refuse)?;
    let id = line.text("custom_id").map(|id| id.map(str::to_owned)).map_err(refuse)?;
    line.remove("custom_id");
    let openai = line.get("body").is_some();
    let read = if openai { of_openai(line) } else { of_plain(line) };
    let made = read.and_then(|(shape, endpoint, body)| {
        for (name, only) in ONLY {
            if let Some(value) = body.get(name)
                && !only.contains(&&*value.to_string())
            {
                return Err(ApiError::field(name, format!("{value} cannot be had in a batch")));
            }
        }
        let (request, notes) = OpenAiRequest::of_body(endpoint, body, defaults)?;
        match request.asked.replies() {
            1 => Ok(BatchRequest { id: id.clone(), shape, request, notes }),
            n => Err(ApiError::field("prompt", format!("{n} prompts: one to a line"))),
        }
    });
    made.map_err(|error| Refusal { id, error, openai })
}

/// Refuses each line whose `custom_id` occurs in an earlier line, because a program that reads results by id would lose one of them.
/// The error names the first line with this id, counted from 1 among the lines that are not empty.
pub(super) fn with_own_ids(
    lines: Vec<Result<BatchRequest, Refusal>>,
) -> Vec<Result<BatchRequest, Refusal>> {
    let mut first_lines = HashMap::<String, usize>::new();
    let own = |(at, line): (usize, Result<BatchRequest, Refusal>)| {
        let (id, openai) = match &line {
            Ok(request) => (&request.id, matches!(request.shape, Shape::OpenAi(_))),
            Err(refusal) => (&refusal.id, refusal.openai),
        };
        let Some(id) = id.clone() else { return line };
        let first = *first_lines.entry(id.clone()).or_insert(at);
        if first == at {
            return line;
        }
        let problem = format!("line {} has the same one", first + 1);
        Err(Refusal { id: Some(id), error: ApiError::field("custom_id", problem), openai })
    };
    lines.into_iter().enumerate().map(own).collect()
}

type Read = (Shape, OpenAiEndpoint, JsonBody);

/// The body of one of OpenAI's lines.
fn of_openai(mut line: JsonBody) -> Result<Read, ApiError> {
    let body = line.nested("body")?;
    line.remove("body");
    let endpoint = match line.remove("url").as_ref().and_then(Value::as_str) {
        Some("/v1/chat/completions") => OpenAiEndpoint::Chat,
        Some("/v1/completions") => OpenAiEndpoint::Texts,
        _ => {
            let expected = "expected /v1/chat/completions or /v1/completions";
            return Err(ApiError::field("url", expected));
        }
    };
    if line.remove("method").is_some_and(|method| method != "POST") {
        return Err(ApiError::field("method", "expected POST"));
    }
    match line.fields().keys().next() {
        Some(key) => Err(ApiError::field(key, "unknown field beside `body`")),
        None => Ok((Shape::OpenAi(endpoint), endpoint, body)),
    }
}

/// A line with a prompt, which is what a user says, or with messages.
fn of_plain(mut line: JsonBody) -> Result<Read, ApiError> {
    let prompt = line.text("prompt")?.map(str::to_owned);
    line.remove("prompt");
    match (prompt, line.get("messages")) {
        (Some(prompt), None) => {
            line.set("messages", json!([{ "role": "user", "content": prompt }]));
        }
        (None, Some(_)) => {}
        _ => return Err(ApiError::field("prompt", "expected a text, or else messages")),
    }
    if let Some(n) = line.remove("n_predict") {
        line.set("max_tokens", n);
    }
    Ok((Shape::Plain, OpenAiEndpoint::Chat, line))
}

#[cfg(test)]
mod tests {
    use engine::Message;
    use server::{PromptText, Said};

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
        assert_eq!(
            (chat.id.as_deref(), chat.shape),
            (Some("a"), Shape::OpenAi(OpenAiEndpoint::Chat))
        );
        let Said::Messages(messages, _) = &chat.request.asked.said else { panic!() };
        assert_eq!(*messages, [Message::new("user", "hi")]);
        let settings = &chat.request.asked.settings;
        assert_eq!((settings.max_tokens, &*settings.stop), (Some(5), &["x".to_owned()][..]));
        assert_eq!((settings.sampler.temperature, settings.sampler.seed), (0.5, Some(3)));
        let plain = read(r#"{"prompt": "hi", "n_predict": 3}"#).unwrap();
        assert_eq!((plain.shape, plain.id), (Shape::Plain, None));
        assert_eq!(plain.request.asked.settings.max_tokens, Some(3));
        assert_eq!(plain.request.asked.said, chat.request.asked.said);
        let raw = read(r#"{"url": "/v1/completions", "body": {"prompt": "once"}}"#).unwrap();
        assert_eq!(raw.request.asked.said, Said::Texts(vec![PromptText::Plain("once".into())]));
    }

    #[test]
    fn an_id_that_an_earlier_line_has_is_refused() {
        let lines = [
            r#"{"custom_id": "a", "prompt": "x"}"#,
            r#"{"prompt": "x"}"#,
            r#"{"custom_id": "b", "prompt": 3}"#,
            r#"{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "y"}}"#,
            r#"{"prompt": "x"}"#,
            r#"{"custom_id": "b", "prompt": "z"}"#,
        ];
        let all = with_own_ids(lines.into_iter().map(read).collect());
        let is_ok: Vec<bool> = all.iter().map(Result::is_ok).collect();
        assert_eq!(is_ok, [true, true, false, false, true, false]);
        for (line, id, told, openai) in [
            (3, "a", "custom_id: line 1 has the same one", true),
            (5, "b", "custom_id: line 3 has the same one", false),
        ] {
            let refusal = all[line].as_ref().unwrap_err();
            assert_eq!((refusal.id.as_deref(), refusal.openai), (Some(id), openai));
            assert_eq!(refusal.error.to_string(), told);
        }
        assert_eq!(all[2].as_ref().unwrap_err().error.param(), Some("prompt"));
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused_by_name() {
        for (line, field, problem) in [
            ("{", None, "not JSON"),
            ("3", None, "expected an object"),
            (r#"{"prompt": 3}"#, Some("prompt"), "a text"),
            (r#"{"prompt": "x", "messages": []}"#, Some("prompt"), "or else messages"),
            (r#"{"prompt": "x", "n": 2}"#, Some("n"), "2 cannot"),
            (r#"{"prompt": "x", "temperature": "hot"}"#, Some("temperature"), "a number"),
            (r#"{"prompt": "x", "top_p": 7}"#, Some("top_p"), "0 to 1"),
            (r#"{"prompt": "x", "prompt": "y"}"#, None, "twice"),
            (r#"{"url": "/v1/embeddings", "body": {}}"#, Some("url"), "/v1/chat"),
            (
                r#"{"url": "/v1/completions", "body": {"prompt": "x"}, "x": 1}"#,
                Some("x"),
                "beside `body`",
            ),
            (
                r#"{"url": "/v1/completions", "body": {"prompt": ["x", "y"]}}"#,
                Some("prompt"),
                "one to a line",
            ),
            (r#"{"messages": []}"#, Some("messages"), "at least one"),
            (r#"{"prompt": "x", "tool_choice": "required"}"#, Some("tool_choice"), "no tools"),
        ] {
            let refusal = read(line).unwrap_err();
            assert_eq!(refusal.error.param(), field, "{line}: {refusal:?}");
            assert!(refusal.error.to_string().contains(problem), "{line}: {refusal:?}");
        }
        let odd = read(r#"{"prompt": "x", "temprature": 1}"#).unwrap();
        let told = "unknown field \"temprature\": ignored; did you mean \"temperature\"?";
        assert_eq!(odd.notes.lines(), [told]);
        let known =
            read(r#"{"custom_id": "b", "url": "/v1/completions", "body": {}}"#).unwrap_err();
        assert_eq!((known.id.as_deref(), known.openai), (Some("b"), true));
    }
}

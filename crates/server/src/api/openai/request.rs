//! Requests in OpenAI's words: chats and texts.

use engine::{Reasoning, SamplerOptions};
use serde_json::Value;

use super::{MOST_CHOICES, common_fields};
use crate::body::{Footprint, JsonBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes, check};
use crate::request::{Asked, Hole, PromptText, ReplySettings, Said, messages, tools_of_openai};

/// What is asked, and answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAiEndpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Texts,
}

impl OpenAiEndpoint {
    /// What the body of a request may have.
    pub(super) fn takes(self) -> Takes {
        match self {
            OpenAiEndpoint::Chat => Takes::Settings(CHAT),
            OpenAiEndpoint::Texts => Takes::Settings(TEXTS),
        }
    }
}

/// A request in OpenAI's words.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAiRequest {
    /// What is wanted.
    pub asked: Asked,
    /// The model's name, if there is one.
    pub model: Option<String>,
    /// Whether it is told as it comes.
    pub stream: bool,
    /// Whether a stream ends with counts.
    pub usage: bool,
    /// Whether a stream tells the prompt's progress.
    pub progress: bool,
    /// Whether the prompt stands before each reply.
    pub echo: bool,
}

const CHAT: Fields = common_fields![
    ("messages", Field::Honoured),
    ("max_completion_tokens", Field::Honoured),
    ("reasoning_effort", Field::Honoured),
    ("reasoning_format", Field::Among(&["\"auto\"", "\"deepseek\""])),
    ("chat_template_kwargs", Field::Honoured),
    ("add_generation_prompt", Field::Only("true")),
    ("modalities", Field::Only("[\"text\"]")),
    ("logprobs", Field::Honoured),
    ("top_logprobs", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("parallel_tool_calls", Field::Honoured),
    ("functions", Field::Only("[]")),
    ("verbosity", Field::Only("\"medium\"")),
];

const TEXTS: Fields = common_fields![
    ("prompt", Field::Honoured),
    ("n_predict", Field::Honoured),
    ("best_of", Field::Only("1")),
    ("echo", Field::Honoured),
    ("suffix", Field::Honoured),
    ("logprobs", Field::Honoured),
];

const STREAM_OPTIONS: Fields =
    &[("include_usage", Field::Honoured), ("include_obfuscation", Field::Only("false"))];

/// Tokens of a text that does not say how many it wants: OpenAI's own.
const MAX_TOKENS: usize = 16;
/// Likeliest tokens that may be told beside each.
const MOST_LOGPROBS: usize = 20;

impl OpenAiRequest {
    /// Read the body of a request; settings it does not name are those of `defaults`.
    ///
    /// # Errors
    /// A field that cannot be obeyed, or that nobody knows, by its name.
    pub fn read(
        endpoint: OpenAiEndpoint,
        body: &JsonBody,
        defaults: &SamplerOptions,
    ) -> Result<OpenAiRequest> {
        let lengths: &[&str] = match endpoint {
            OpenAiEndpoint::Chat => &["max_tokens", "max_completion_tokens"],
            OpenAiEndpoint::Texts => &["n_predict", "max_tokens"],
        };
        endpoint.takes().check(body.fields())?;
        let mut settings = ReplySettings::read(body, lengths, defaults)?;
        let n = body.count("n", 1, MOST_CHOICES)?.unwrap_or(1);
        let options = body.nested("stream_options")?;
        check(options.fields(), STREAM_OPTIONS, |_| false)?;
        let echo = body.flag("echo")?.unwrap_or(false);
        let asked = match endpoint {
            OpenAiEndpoint::Chat => {
                let said = Said::Messages(messages(body)?, reasoning(body)?);
                let tools = tools_of_openai(body)?;
                let logprobs = match body.flag("logprobs")?.unwrap_or(false) {
                    true => body.count("top_logprobs", 0, MOST_LOGPROBS)?.or(Some(0)),
                    false if body.count("top_logprobs", 0, 0)?.is_some() => None,
                    false => None,
                };
                Asked { said, settings, tools, n, logprobs }
            }
            OpenAiEndpoint::Texts => {
                let given = lengths.iter().any(|name| body.get(name).is_some());
                if !given {
                    settings.max_tokens = Some(MAX_TOKENS);
                }
                let logprobs = body.count("logprobs", 0, MOST_LOGPROBS)?;
                if echo && logprobs.is_some() {
                    let problem = "the tokens of a prompt have none: not beside echo";
                    return Err(ApiError::field("logprobs", problem));
                }
                let said = Said::Texts(with_suffix(prompts(body)?, body)?);
                Asked { said, settings, tools: None, n, logprobs }
            }
        };
        let choices = asked.replies();
        if choices > MOST_CHOICES {
            let problem = format!("{choices} replies are more than {MOST_CHOICES}");
            return Err(ApiError::field("prompt", problem));
        }
        Ok(OpenAiRequest {
            asked,
            model: body.text("model")?.map(str::to_owned),
            stream: body.flag("stream")?.unwrap_or(false),
            usage: options.flag("include_usage")?.unwrap_or(false),
            progress: body.flag("return_progress")?.unwrap_or(false),
            echo,
        })
    }
}

impl Footprint for OpenAiRequest {
    fn footprint(&self) -> u64 {
        // a prompt that is repeated before its reply is copied
        let echo = if self.echo { self.asked.said.footprint() } else { 0 };
        self.asked.footprint() + self.model.footprint() + echo
    }
}

/// What other servers tell templates. Nothing else reaches one here.
const KWARGS: Fields = &[("enable_thinking", Field::Honoured), ("thinking", Field::Honoured)];

/// Whether the model is to think: as OpenAI's API says it, or as other servers do.
fn reasoning(body: &JsonBody) -> Result<Reasoning> {
    const NAME: &str = "reasoning_effort";
    const OTHER: &str = "chat_template_kwargs";
    let asked = effort(body.text(NAME)?).map_err(|problem| ApiError::field(NAME, problem))?;
    let kwargs = body.nested(OTHER)?;
    check(kwargs.fields(), KWARGS, |_| false)?;
    let thinks = kwargs.flag("enable_thinking")?.or(kwargs.flag("thinking")?);
    match (asked, thinks.map(|thinks| if thinks { Reasoning::On } else { Reasoning::Off })) {
        (asked, None) => Ok(asked),
        (Reasoning::Auto, Some(other)) => Ok(other),
        (asked, Some(other)) if asked == other => Ok(asked),
        _ => Err(ApiError::field(OTHER, format!("it contradicts {NAME}"))),
    }
}

/// Whether a model is to think with so much effort.
pub(super) fn effort(word: Option<&str>) -> Result<Reasoning, &'static str> {
    match word {
        None => Ok(Reasoning::Auto),
        Some("none" | "minimal") => Ok(Reasoning::Off),
        Some("low" | "medium" | "high" | "xhigh") => Ok(Reasoning::On),
        Some(_) => Err("expected none, minimal, low, medium, high or xhigh"),
    }
}

/// A text, tokens, or several of either.
fn prompts(body: &JsonBody) -> Result<Vec<PromptText>> {
    let read = prompts_of(body).filter(|texts| !texts.is_empty());
    read.ok_or_else(|| ApiError::field("prompt", "expected a text, token ids, or a list of these"))
}

/// The prompt of a body: see [`texts_of`].
pub(in crate::api) fn prompts_of(body: &JsonBody) -> Option<Vec<PromptText>> {
    texts_of(body, "prompt")
}

/// The field of this name: a text, token ids, or a list of these; `None` for anything else.
pub(in crate::api) fn texts_of(body: &JsonBody, name: &str) -> Option<Vec<PromptText>> {
    match body.ids(name) {
        Some(ids) => Some(vec![PromptText::Tokens(ids.to_vec())]),
        None => texts(body.get(name)?),
    }
}

/// A text, token ids, or a list of these; `None` for anything else.
fn texts(value: &Value) -> Option<Vec<PromptText>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(PromptText::Plain(text.clone())),
        Value::Array(tokens) if !tokens.is_empty() => {
            let token = |value: &Value| u32::try_from(value.as_u64()?).ok();
            tokens.iter().map(token).collect::<Option<_>>().map(PromptText::Tokens)
        }
        _ => None,
    };
    let several = |values: &Vec<Value>| values.iter().map(one).collect::<Option<Vec<_>>>();
    one(value).map(|text| vec![text]).or_else(|| several(value.as_array()?))
}

/// With what stands behind each, if that is given.
fn with_suffix(texts: Vec<PromptText>, body: &JsonBody) -> Result<Vec<PromptText>> {
    const NAME: &str = "suffix";
    let Some(suffix) = body.text(NAME)?.filter(|suffix| !suffix.is_empty()) else {
        return Ok(texts);
    };
    let filled = |text| match text {
        PromptText::Plain(before) => Ok(Hole::between(before, suffix.to_owned())),
        _ => Err(ApiError::field(NAME, "a prompt of tokens cannot have one")),
    };
    texts.into_iter().map(filled).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_are_texts_and_tokens_one_or_several() {
        let read = |prompt| prompts(&JsonBody::from(json!({ "prompt": prompt })));
        let plain = |text: &str| PromptText::Plain(text.into());
        assert_eq!(read(json!("a")).unwrap(), [plain("a")]);
        assert_eq!(read(json!(["a", "b"])).unwrap(), [plain("a"), plain("b")]);
        assert_eq!(read(json!([1, 2])).unwrap(), [PromptText::Tokens(vec![1, 2])]);
        assert_eq!(
            read(json!([[1], [2]])).unwrap(),
            [PromptText::Tokens(vec![1]), PromptText::Tokens(vec![2])]
        );
        // as long as what is kept apart
        let long: Vec<u32> = (0..5000).map(|i| i * 31 % 4096).collect();
        assert_eq!(read(json!(long)).unwrap(), [PromptText::Tokens(long.clone())]);
        let both = [PromptText::Tokens(long.clone()), PromptText::Tokens(vec![7])];
        assert_eq!(read(json!([long, [7]])).unwrap(), both);
        let almost = json!([long, ["x"]]);
        for wrong in
            [json!(null), json!(3), json!([]), json!([1, "a"]), json!([-1]), json!([[]]), almost]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_thinks_is_said_in_one_way() {
        let read = |body: Value| reasoning(&body.into()).map_err(|error| error.message);
        let kwargs = |thinks: bool| json!({ "enable_thinking": thinks });
        assert_eq!(read(json!({})), Ok(Reasoning::Auto));
        assert_eq!(read(json!({ "chat_template_kwargs": {} })), Ok(Reasoning::Auto));
        assert_eq!(read(json!({ "chat_template_kwargs": kwargs(false) })), Ok(Reasoning::Off));
        assert_eq!(
            read(json!({ "chat_template_kwargs": { "thinking": true } })),
            Ok(Reasoning::On)
        );
        let both = |effort: &str, thinks| {
            read(json!({ "reasoning_effort": effort, "chat_template_kwargs": kwargs(thinks) }))
        };
        assert_eq!(both("none", false), Ok(Reasoning::Off));
        assert!(both("high", false).unwrap_err().contains("contradicts"));
        let other = read(json!({ "chat_template_kwargs": { "bos_token": "x" } })).unwrap_err();
        assert_eq!(other, "bos_token: there is no such field");
    }

    #[test]
    fn scores_are_asked_for_as_each_endpoint_has_it() {
        let read = |endpoint, more: Value| {
            let mut body = match endpoint {
                OpenAiEndpoint::Chat => json!({ "messages": [{ "role": "user", "content": "x" }] }),
                OpenAiEndpoint::Texts => json!({ "prompt": "x" }),
            };
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let request = OpenAiRequest::read(endpoint, &body.into(), &SamplerOptions::greedy());
            request.map(|request| request.asked.logprobs).map_err(|error| error.message)
        };
        let chat = |more| read(OpenAiEndpoint::Chat, more);
        assert_eq!(chat(json!({})), Ok(None));
        assert_eq!(chat(json!({ "logprobs": true })), Ok(Some(0)));
        assert_eq!(chat(json!({ "logprobs": true, "top_logprobs": 5 })), Ok(Some(5)));
        assert_eq!(chat(json!({ "top_logprobs": 0 })), Ok(None));
        assert!(chat(json!({ "top_logprobs": 5 })).unwrap_err().starts_with("top_logprobs"));
        assert!(chat(json!({ "logprobs": true, "top_logprobs": 21 })).is_err());
        let text = |more| read(OpenAiEndpoint::Texts, more);
        assert_eq!(text(json!({ "logprobs": 3 })), Ok(Some(3)));
        assert!(text(json!({ "logprobs": 3, "echo": true })).unwrap_err().contains("echo"));
    }
}

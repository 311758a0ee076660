//! Requests in OpenAI's words: chats and texts.

use engine::{Notes, SamplerOptions};
use serde_json::Value;

use super::{MOST_CHOICES, common_fields};
use crate::body::{Footprint, JsonBody, token_id_of};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes};
use crate::request::{
    Asked, Hole, Length, OPENAI_RANGES, PromptText, ReplySettings, Said, chat_options, messages,
    tools_of_openai,
};

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
    pub(in crate::api) fn takes(self) -> Takes {
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
    /// Number of replies returned for each prompt: the likeliest of those generated.
    pub choices: usize,
    /// The model's name, if there is one.
    pub model: Option<String>,
    /// Whether it is told as it comes.
    pub stream: bool,
    /// Whether a stream ends with counts.
    pub usage: bool,
    /// Whether a stream tells the prompt's progress.
    pub progress: bool,
    /// Whether each piece of a stream includes times.
    pub timings: bool,
    /// Whether the prompt stands before each reply.
    pub echo: bool,
}

const CHAT: Fields = common_fields![
    ("messages", Field::Honoured),
    ("max_completion_tokens", Field::Honoured),
    ("reasoning_effort", Field::Honoured),
    ("reasoning", Field::Honoured),
    ("thinking", Field::Honoured),
    ("think", Field::Honoured),
    ("enable_thinking", Field::Honoured),
    ("reasoning_format", Field::Fixed(&["\"auto\"", "\"deepseek\""])),
    ("chat_template_kwargs", Field::Honoured),
    ("add_generation_prompt", Field::Honoured),
    ("continue_final_message", Field::Honoured),
    ("modalities", Field::Only(&["[\"text\"]"])),
    ("audio", Field::Ignored("this model writes text only")),
    ("web_search_options", Field::Ignored("this server does not search the web")),
    ("logprobs", Field::Honoured),
    ("top_logprobs", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("parallel_tool_calls", Field::Honoured),
    ("functions", Field::Only(&["[]"])),
    ("function_call", Field::Only(&["\"none\"", "\"auto\""])),
    ("verbosity", Field::Fixed(&["\"medium\""])),
];

const TEXTS: Fields = common_fields![
    ("prompt", Field::Honoured),
    ("best_of", Field::Honoured),
    ("echo", Field::Honoured),
    ("suffix", Field::Honoured),
    ("logprobs", Field::Honoured),
];

const STREAM_OPTIONS: Takes = Takes::Fields(&[
    ("include_usage", Field::Honoured),
    ("include_obfuscation", Field::Fixed(&["false"])),
]);

const CHAT_LENGTHS: &[Length] =
    &[("max_tokens", 1), ("max_completion_tokens", 1), ("n_predict", 0)];
const TEXT_LENGTHS: &[Length] = &[("n_predict", 0), ("max_tokens", 0)];

/// Tokens of a text that does not say how many it wants: OpenAI's own.
const MAX_TOKENS: usize = 16;
/// Likeliest tokens that may be told beside each.
const MOST_LOGPROBS: usize = 20;

impl OpenAiRequest {
    /// Checks that echoed prompts of token ids fit the context: their text may be a hundred times as long as the request.
    ///
    /// # Errors
    /// A prompt that is longer than the context.
    pub(super) fn check_echo(&self, context: usize) -> Result<()> {
        let Said::Texts(texts) = &self.asked.said else { return Ok(()) };
        let lengths = texts.iter().map(|text| match text {
            PromptText::Tokens(tokens) if self.echo => tokens.len(),
            _ => 0,
        });
        match lengths.max().filter(|wanted| *wanted > context) {
            Some(wanted) => Err(engine::Error::ContextFull { wanted, capacity: context }.into()),
            None => Ok(()),
        }
    }

    /// Reads the body of a request to an endpoint, and returns warnings about its fields, too. Settings that the body lacks have the
    /// values of `defaults`.
    ///
    /// # Errors
    /// A field that cannot be obeyed; the error names it.
    pub fn of_body(
        endpoint: OpenAiEndpoint,
        body: JsonBody,
        defaults: &SamplerOptions,
    ) -> Result<(OpenAiRequest, Notes)> {
        let body = body.checked(endpoint.takes())?;
        let request = OpenAiRequest::read(endpoint, &body, defaults)?;
        Ok((request, body.collected()))
    }

    /// Reads a body whose fields were checked, as [`of_body`](Self::of_body) does.
    pub(in crate::api) fn read(
        endpoint: OpenAiEndpoint,
        body: &JsonBody,
        defaults: &SamplerOptions,
    ) -> Result<OpenAiRequest> {
        let lengths = match endpoint {
            OpenAiEndpoint::Chat => CHAT_LENGTHS,
            OpenAiEndpoint::Texts => TEXT_LENGTHS,
        };
        let mut settings = ReplySettings::read(body, lengths, OPENAI_RANGES, defaults)?;
        let choices = body.count("n", 1, MOST_CHOICES)?.unwrap_or(1);
        let options = body.nested("stream_options")?.checked(STREAM_OPTIONS)?;
        let stream = body.flag("stream")?.unwrap_or(false);
        let echo = body.flag("echo")?.unwrap_or(false);
        let asked = match endpoint {
            OpenAiEndpoint::Chat => {
                let messages = messages(body)?;
                let options = chat_options(body, &messages)?;
                let said = Said::Messages(messages, options);
                let tools = tools_of_openai(body)?;
                let logprobs = chat_logprobs(body)?;
                Asked { tools, n: choices, logprobs, ..Asked::one(said, settings) }
            }
            OpenAiEndpoint::Texts => {
                if lengths.iter().all(|(name, _)| body.get(name).is_none()) {
                    settings.max_tokens = Some(MAX_TOKENS);
                }
                let logprobs = body.count("logprobs", 0, MOST_LOGPROBS)?.or(probs(body)?);
                let said = Said::Texts(with_suffix(prompts(body)?, body)?);
                let n = best_of(body, choices, stream)?;
                let prompt_logprobs = echo && logprobs.is_some();
                Asked { n, logprobs, prompt_logprobs, ..Asked::one(said, settings) }
            }
        };
        let replies = asked.replies();
        if replies > MOST_CHOICES {
            let problem = format!("{replies} replies are more than {MOST_CHOICES}");
            return Err(ApiError::field("prompt", problem));
        }
        Ok(OpenAiRequest {
            asked,
            choices,
            model: body.text("model")?.map(str::to_owned),
            stream,
            usage: options.flag("include_usage")?.unwrap_or(false),
            progress: body.flag("return_progress")?.unwrap_or(false),
            timings: body.flag("timings_per_token")?.unwrap_or(false),
            echo,
        })
    }
}

/// Returns llama.cpp's `n_probs`: the number of likeliest tokens to return for each token.
fn probs(body: &JsonBody) -> Result<Option<usize>> {
    Ok(body.count("n_probs", 0, MOST_LOGPROBS)?.filter(|n| *n > 0))
}

/// Returns the number of likeliest tokens to return for each token of a chat; `None` if log probabilities are not requested.
fn chat_logprobs(body: &JsonBody) -> Result<Option<usize>> {
    const TOP: &str = "top_logprobs";
    let (top, probs) = (body.count(TOP, 0, MOST_LOGPROBS)?, probs(body)?);
    if body.flag("logprobs")?.unwrap_or(false) {
        return Ok(top.or(probs).or(Some(0)));
    }
    if top.is_some_and(|top| top > 0) {
        body.ignored(TOP, "ignored: logprobs is not true", "only beside logprobs: true")?;
    }
    Ok(probs)
}

/// Returns the number of replies to generate for each prompt, of which the `n` likeliest are returned.
fn best_of(body: &JsonBody, n: usize, stream: bool) -> Result<usize> {
    const NAME: &str = "best_of";
    match body.count(NAME, 1, MOST_CHOICES)? {
        Some(made) if made < n => {
            Err(ApiError::field(NAME, format!("expected at least n, which is {n}, found {made}")))
        }
        Some(made) if made > n && stream => {
            Err(ApiError::field(NAME, "more than n replies cannot be streamed"))
        }
        made => Ok(made.unwrap_or(n)),
    }
}

impl Footprint for OpenAiRequest {
    fn footprint(&self) -> u64 {
        // a prompt that is repeated before its reply is copied
        let echo = if self.echo { self.asked.said.footprint() } else { 0 };
        self.asked.footprint() + self.model.footprint() + echo
    }
}

/// Reads the field `prompt`: a text, token ids, or a list of these.
///
/// # Errors
/// If the field has another value, or more texts than the maximum number of replies.
pub(in crate::api) fn prompts(body: &JsonBody) -> Result<Vec<PromptText>> {
    const NAME: &str = "prompt";
    let read = texts_of(body, NAME).filter(|texts| !texts.is_empty());
    let expected = "expected a text, token ids, or a list of these";
    let texts = read.ok_or_else(|| ApiError::field(NAME, expected))?;
    // checked before the suffix is copied behind each text
    match texts.len() > MOST_CHOICES {
        true => Err(ApiError::field(NAME, format!("more than {MOST_CHOICES} texts"))),
        false => Ok(texts),
    }
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
            tokens.iter().map(token_id_of).collect::<Option<_>>().map(PromptText::Tokens)
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
        // as many texts as there may be replies: the suffix is copied behind each text
        assert_eq!(read(json!(vec!["a"; MOST_CHOICES])).unwrap().len(), MOST_CHOICES);
        let many = read(json!(vec!["a"; MOST_CHOICES + 1])).unwrap_err();
        assert!(many.message.contains("more than 8 texts"), "{}", many.message);
    }

    fn request(endpoint: OpenAiEndpoint, more: &Value) -> Result<(OpenAiRequest, Notes), String> {
        let mut body = match endpoint {
            OpenAiEndpoint::Chat => json!({ "messages": [{ "role": "user", "content": "x" }] }),
            OpenAiEndpoint::Texts => json!({ "prompt": "x" }),
        };
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let read = OpenAiRequest::of_body(endpoint, body.into(), &SamplerOptions::greedy());
        read.map_err(|error| error.message)
    }

    #[test]
    fn scores_are_asked_for_as_each_endpoint_has_it() {
        let chat = |more: Value| {
            request(OpenAiEndpoint::Chat, &more)
                .map(|(request, notes)| (request.asked.logprobs, notes.lines()))
        };
        let silent = |logprobs: Option<usize>| Ok((logprobs, Vec::new()));
        assert_eq!(chat(json!({})), silent(None));
        assert_eq!(chat(json!({ "logprobs": true })), silent(Some(0)));
        assert_eq!(chat(json!({ "logprobs": true, "top_logprobs": 5 })), silent(Some(5)));
        assert_eq!(chat(json!({ "top_logprobs": 0 })), silent(None));
        assert_eq!(chat(json!({ "n_probs": 3 })), silent(Some(3)));
        let (alone, notes) = chat(json!({ "top_logprobs": 5 })).unwrap();
        assert_eq!(
            (alone, &*notes),
            (None, &["top_logprobs: ignored: logprobs is not true".to_owned()][..])
        );
        for wrong in
            [json!({ "logprobs": true, "top_logprobs": 21 }), json!({ "top_logprobs": 21 })]
        {
            assert!(chat(wrong).unwrap_err().contains("from 0 to 20"));
        }
        let text = |more: Value| {
            let (request, _) = request(OpenAiEndpoint::Texts, &more)?;
            Ok::<_, String>((request.asked.logprobs, request.asked.prompt_logprobs))
        };
        assert_eq!(text(json!({ "logprobs": 3 })), Ok((Some(3), false)));
        assert_eq!(text(json!({ "logprobs": 3, "echo": true })), Ok((Some(3), true)));
        assert_eq!(text(json!({ "echo": true })), Ok((None, false)));
        assert_eq!(text(json!({ "n_probs": 2 })), Ok((Some(2), false)));
    }

    #[test]
    fn more_replies_may_be_made_than_are_returned() {
        let read = |more: Value| {
            let (request, _) = request(OpenAiEndpoint::Texts, &more)?;
            Ok::<_, String>((request.asked.n, request.choices))
        };
        assert_eq!(read(json!({ "best_of": 3 })), Ok((3, 1)));
        assert_eq!(read(json!({ "best_of": 3, "n": 2 })), Ok((3, 2)));
        assert_eq!(read(json!({ "best_of": 2, "n": 2, "stream": true })), Ok((2, 2)));
        assert!(read(json!({ "best_of": 1, "n": 2 })).unwrap_err().contains("at least n"));
        assert!(read(json!({ "best_of": 2, "stream": true })).unwrap_err().contains("streamed"));
        assert!(read(json!({ "best_of": 9 })).unwrap_err().contains("from 1 to 8"));
    }
}

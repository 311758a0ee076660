//! A reply in OpenAI's words: as one object, or chunk by chunk.

use std::hash::{BuildHasher, RandomState};

use engine::{
    Completion, FinishReason, PromptLogprobs, TokenLogprobs, TokenUsage, ToolCall, ToolCallDelta,
    Vocabulary,
};
use serde_json::{Value, json};

use super::request::{OpenAiEndpoint, OpenAiRequest};
use crate::api::running::RunningTimings;
use crate::api::stream::{Chunks, Frames};
use crate::api::written;
use crate::error::{ErrorShape, Result};
use crate::request::{PromptText, Said};
use crate::updates::Update;
use crate::wire::{
    ReplySource, ScoreList, TextOffset, WithField, calls_json, now, progress_json,
    text_logprobs_json, usage_json,
};

/// What all parts of a reply say, and what was told so far.
pub struct OpenAiReply {
    source: ReplySource,
    endpoint: OpenAiEndpoint,
    id: String,
    created: u64,
    /// Whether counts come last.
    wants_usage: bool,
    /// Whether the prompt's progress is told.
    wants_progress: bool,
    /// Whether scores are told.
    wants_logprobs: bool,
    /// Whether each piece of a stream includes times.
    wants_timings: bool,
    /// Number of choices returned for each prompt (`n`), and number of replies generated for them (`made`).
    n: usize,
    made: usize,
    /// What stands before each choice.
    echo: Vec<String>,
    /// What whoever asked should know.
    notes: Vec<String>,
    choices: Vec<Choice>,
}

/// The scores of a choice of a chat.
#[derive(serde::Serialize)]
struct ChatScores<'a> {
    content: ScoreList<'a>,
}

/// What was told of a choice.
#[derive(Default)]
struct Choice {
    usage: Option<TokenUsage>,
    /// Calls that have begun.
    calls: usize,
    timings: RunningTimings,
    /// Scores of tokens whose text is still to come.
    scores: Vec<TokenLogprobs>,
    /// Where the text is of tokens whose scores were told.
    offset: TextOffset,
}

impl OpenAiReply {
    /// To this request.
    pub fn new(source: ReplySource, endpoint: OpenAiEndpoint, request: &OpenAiRequest) -> Self {
        let (made, n) = (request.asked.n, request.choices.min(request.asked.n));
        let choices = request.asked.replies() / made.max(1) * n;
        let prefix = if endpoint == OpenAiEndpoint::Chat { "chatcmpl" } else { "cmpl" };
        let echo = match (&request.asked.said, request.echo) {
            (Said::Texts(texts), true) => texts.iter().map(|text| spelt(text, &source)).collect(),
            _ => Vec::new(),
        };
        OpenAiReply {
            source,
            endpoint,
            id: format!("{prefix}-{:016x}", RandomState::new().hash_one("reply")),
            created: now(),
            wants_usage: request.usage,
            wants_progress: request.progress,
            wants_logprobs: request.asked.logprobs.is_some(),
            wants_timings: request.timings,
            n,
            made,
            echo,
            notes: Vec::new(),
            choices: std::iter::repeat_with(Choice::default).take(choices).collect(),
        }
    }

    /// Under this id.
    pub fn with_id(self, id: String) -> OpenAiReply {
        OpenAiReply { id, ..self }
    }

    /// With what whoever asked should know.
    pub fn with_notes(self, notes: Vec<String>) -> OpenAiReply {
        OpenAiReply { notes, ..self }
    }

    /// All of it, with a reply for each choice.
    pub fn whole(&self, replies: &[Completion]) -> Value {
        self.whole_with(replies, true)
    }

    /// The JSON of all of it, which takes `bytes` bytes for scores. Scores of chats are serialized without building their values.
    pub(super) fn text(&self, replies: &[Completion], bytes: u64) -> Result<Vec<u8>> {
        if self.endpoint == OpenAiEndpoint::Texts || !self.wants_logprobs {
            return written::json_text(&self.whole(replies));
        }
        let whole = self.whole_with(replies, false);
        let choices = whole["choices"].as_array().into_iter().flatten();
        let choices = choices.zip(self.returned(replies)).map(|(choice, reply)| {
            let content = self.source.scores(&reply.logprobs);
            WithField { object: choice, name: "logprobs", value: ChatScores { content } }
        });
        let value: Vec<_> = choices.collect();
        written::json_text_of(&WithField { object: &whole, name: "choices", value }, bytes)
    }

    /// The replies that are returned.
    fn returned<'r>(&self, replies: &'r [Completion]) -> Vec<&'r Completion> {
        let groups = replies.chunks(self.made.max(1));
        groups.flat_map(|group| likeliest(group, self.n)).collect()
    }

    /// `with_scores`: whether requested scores are in it; otherwise null is in their place.
    fn whole_with(&self, replies: &[Completion], with_scores: bool) -> Value {
        let returned = self.returned(replies);
        let choices = returned.iter().enumerate();
        let choices = choices.map(|(index, reply)| self.whole_one(index, reply, with_scores));
        let object = match self.endpoint {
            OpenAiEndpoint::Chat => "chat.completion",
            OpenAiEndpoint::Texts => TEXT,
        };
        let mut whole = self.object(object, choices.collect());
        whole["usage"] = usage_json(&added(replies.iter().map(|reply| &reply.usage), self.made));
        if let Some(first) = returned.first() {
            self.source.account(&mut whole, first, &self.notes);
        }
        whole
    }

    fn whole_one(&self, index: usize, reply: &Completion, with_scores: bool) -> Value {
        let Completion { text, thoughts, logprobs, .. } = reply;
        let reason = Some(finish_reason(reply.reason));
        let scores = match self.wants_logprobs && with_scores {
            true => {
                let prompt = reply.prompt_logprobs.as_ref();
                self.scores(prompt, logprobs, &mut TextOffset::default())
            }
            false => Value::Null,
        };
        if self.endpoint == OpenAiEndpoint::Texts {
            let text = self.before(index).to_owned() + text;
            return choice(index, "text", &json!(text), scores, reason);
        }
        let mut message = json!({ "role": "assistant", "content": text });
        if !thoughts.is_empty() {
            message["reasoning_content"] = json!(thoughts);
        }
        // an incomplete call is returned as far as it was generated, as in a stream
        let calls: Vec<ToolCall> = reply.calls.iter().chain(&reply.cut_call).cloned().collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls_json(&calls);
            if text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        choice(index, "message", &message, scores, reason)
    }

    /// What stands before this choice.
    fn before(&self, index: usize) -> &str {
        self.echo.get(index / self.n).map_or("", |text| text)
    }

    /// Returns the log probabilities of a prompt, if there are any, and of tokens of its reply.
    fn scores(
        &self,
        prompt: Option<&PromptLogprobs>,
        tokens: &[TokenLogprobs],
        offset: &mut TextOffset,
    ) -> Value {
        let format = &*self.source.format;
        match self.endpoint {
            OpenAiEndpoint::Chat => self.source.logprobs(tokens),
            OpenAiEndpoint::Texts => text_logprobs_json(prompt, tokens, format, offset),
        }
    }

    fn object(&self, object: &str, choices: Vec<Value>) -> Value {
        let mut whole = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.source.model,
        });
        whole["choices"] = Value::Array(choices);
        whole
    }

    /// A chunk of one choice, or of none.
    fn chunk(&self, choice: Option<Value>) -> Value {
        let object = match self.endpoint {
            OpenAiEndpoint::Chat => "chat.completion.chunk",
            OpenAiEndpoint::Texts => TEXT,
        };
        self.object(object, choice.into_iter().collect())
    }

    /// More of choice `index`: text of this kind, with the scores that are there.
    fn more(&mut self, index: usize, kind: &str, text: &str, reason: Option<&str>) -> Value {
        let value = match self.endpoint {
            OpenAiEndpoint::Texts => json!(text),
            OpenAiEndpoint::Chat if text.is_empty() => json!({}),
            OpenAiEndpoint::Chat => json!({ kind: text }),
        };
        self.delta(index, &value, reason)
    }

    fn delta(&mut self, index: usize, value: &Value, reason: Option<&str>) -> Value {
        let tokens = std::mem::take(&mut self.choices[index].scores);
        let mut scores = Value::Null;
        if self.wants_logprobs && !tokens.is_empty() {
            let mut offset = std::mem::take(&mut self.choices[index].offset);
            scores = self.scores(None, &tokens, &mut offset);
            self.choices[index].offset = offset;
        }
        let name = if self.endpoint == OpenAiEndpoint::Chat { "delta" } else { "text" };
        let mut chunk = self.chunk(Some(choice(index, name, value, scores, reason)));
        if self.wants_timings {
            chunk["timings"] = self.choices[index].timings.json();
        }
        chunk
    }

    /// Returns chunk `part` of the echoed prompt of a choice and its scores, if the request asks for both; `None` after the last one.
    /// The text comes with the first chunk.
    fn echoed(&mut self, index: usize, prompt: &PromptLogprobs, part: usize) -> Option<Value> {
        if self.echo.is_empty() || !self.wants_logprobs {
            return None;
        }
        let rest = prompt.rest.get(part * SCORES_OF_CHUNK..)?;
        let rest = &rest[..rest.len().min(SCORES_OF_CHUNK)];
        if part > 0 && rest.is_empty() {
            return None;
        }
        let mut offset = std::mem::take(&mut self.choices[index].offset);
        let first = PromptLogprobs { first: prompt.first, rest: Vec::new() };
        let scores = self.scores(Some(&first).filter(|_| part == 0), rest, &mut offset);
        self.choices[index].offset = offset;
        let text = if part == 0 { json!(self.before(index)) } else { json!("") };
        Some(self.chunk(Some(choice(index, "text", &text, scores, None))))
    }

    /// More of a call of choice `index`.
    fn call(&mut self, index: usize, delta: &ToolCallDelta<String>) -> Option<Value> {
        let told = &mut self.choices[index];
        let piece = match delta {
            ToolCallDelta::Begins { id, name, .. } => {
                told.calls += 1;
                let function = json!({ "name": name, "arguments": "" });
                json!({ "index": told.calls - 1, "id": id, "type": "function", "function": function })
            }
            ToolCallDelta::Arguments { text, .. } => {
                json!({ "index": told.calls - 1, "function": { "arguments": text } })
            }
            // the next piece or the end shows that a call is complete; `warnings` names a call that is cut
            ToolCallDelta::Ends { .. } | ToolCallDelta::Fails { .. } => return None,
        };
        Some(self.delta(index, &json!({ "tool_calls": [piece] }), None))
    }
}

const TEXT: &str = "text_completion";

/// Maximum number of prompt tokens whose scores are in one chunk of a stream. Serializing all scores of a long prompt takes seconds.
const SCORES_OF_CHUNK: usize = 256;

fn choice(index: usize, name: &str, value: &Value, scores: Value, reason: Option<&str>) -> Value {
    let mut choice =
        json!({ "index": index, name: value, "logprobs": null, "finish_reason": reason });
    // moved, not cloned: the scores of a prompt may take hundreds of megabytes
    choice["logprobs"] = scores;
    choice
}

/// A prompt as text.
fn spelt(text: &PromptText, source: &ReplySource) -> String {
    match text {
        PromptText::Plain(text) => text.clone(),
        PromptText::Infill(hole) => hole.before.clone(),
        PromptText::Tokens(tokens) => {
            let bytes = |&token: &u32| Vocabulary::bytes(&*source.format, token).into_owned();
            String::from_utf8_lossy(&tokens.iter().flat_map(bytes).collect::<Vec<u8>>())
                .into_owned()
        }
    }
}

/// Why it ended, in OpenAI's words.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Length | FinishReason::ToolCalls => reason.name(),
        // it is cut: `warnings` say why
        FinishReason::Cancelled => FinishReason::Length.name(),
    }
}

/// Counts of all choices: a prompt counts once for its `n`.
fn added<'u>(all: impl Iterator<Item = &'u TokenUsage>, n: usize) -> TokenUsage {
    let mut sum = TokenUsage {
        prompt_tokens: 0,
        cached_tokens: 0,
        completion_tokens: 0,
        reasoning_tokens: None,
    };
    for (index, usage) in all.enumerate() {
        sum.completion_tokens += usage.completion_tokens;
        if let Some(tokens) = usage.reasoning_tokens {
            *sum.reasoning_tokens.get_or_insert(0) += tokens;
        }
        if index.is_multiple_of(n) {
            sum.prompt_tokens += usage.prompt_tokens;
            sum.cached_tokens += usage.cached_tokens;
        }
    }
    sum
}

/// Returns the `n` replies to one prompt with the highest mean log probability of their tokens, the highest first. If there are at
/// most `n`, returns all in their order.
fn likeliest(replies: &[Completion], n: usize) -> Vec<&Completion> {
    let mut all: Vec<&Completion> = replies.iter().collect();
    if n < all.len() {
        let mean = |reply: &Completion| {
            let sum: f64 = reply.logprobs.iter().map(|token| f64::from(token.chosen.logprob)).sum();
            sum / reply.logprobs.len().max(1) as f64
        };
        all.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        all.truncate(n);
    }
    all
}

impl Chunks for OpenAiReply {
    const FRAMES: Frames = Frames::Events;
    const ERRORS: ErrorShape = ErrorShape::OpenAi;

    fn begin(&mut self) -> Vec<Value> {
        let first = |index: usize| match self.endpoint {
            OpenAiEndpoint::Chat => {
                let delta = json!({ "role": "assistant", "content": "" });
                Some(self.chunk(Some(choice(index, "delta", &delta, Value::Null, None))))
            }
            // the prompt is sent with its scores, once they are computed
            OpenAiEndpoint::Texts if self.wants_logprobs => None,
            OpenAiEndpoint::Texts => {
                let text = Some(self.before(index)).filter(|text| !text.is_empty())?;
                Some(self.chunk(Some(choice(index, "text", &json!(text), Value::Null, None))))
            }
        };
        (0..self.choices.len()).filter_map(first).collect()
    }

    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>> {
        if self.wants_timings {
            self.choices[index].timings.note(&update);
        }
        Ok(match update {
            // the stream requests these scores chunk by chunk
            Update::PromptScored(_) => Vec::new(),
            Update::Text(text) => vec![self.more(index, "content", &text, None)],
            Update::Thought(text) => vec![self.more(index, "reasoning_content", &text, None)],
            Update::Prefill(prefill) if self.wants_progress => {
                let mut chunk = self.chunk(None);
                chunk["prompt_progress"] = progress_json(&prefill);
                vec![chunk]
            }
            Update::Prefill(_) => Vec::new(),
            Update::Chosen(scores) => {
                if self.wants_logprobs {
                    self.choices[index].scores.push(*scores);
                }
                Vec::new()
            }
            Update::Call(piece) => self.call(index, &piece).into_iter().collect(),
            Update::Done(reply) => {
                self.choices[index].usage = Some(reply.usage);
                let reason = finish_reason(reply.reason);
                let mut last = self.more(index, "content", "", Some(reason));
                self.source.account(&mut last, &reply, &self.notes);
                vec![last]
            }
            Update::Failed(error) => return Err(error),
        })
    }

    fn prompt_scores(
        &mut self,
        index: usize,
        scores: &PromptLogprobs,
        part: usize,
    ) -> Option<Value> {
        self.echoed(index, scores, part)
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.wants_usage {
            return Vec::new();
        }
        let mut chunk = self.chunk(None);
        let all = self.choices.iter().filter_map(|choice| choice.usage.as_ref());
        chunk["usage"] = usage_json(&added(all, self.made));
        vec![chunk]
    }
}

//! A reply in OpenAI's words: as one object, or chunk by chunk.

use std::hash::{BuildHasher, RandomState};

use engine::{Completion, FinishReason, TokenUsage};
use serde_json::{Value, json};

use crate::Serving;
use crate::api::asked::Whole;
use crate::api::calls::OpenCall;
use crate::api::stream::{Chunks, Frames};
use crate::body::JsonBody;
use crate::error::Result;
use crate::fields::{Field, Fields, check};
use crate::wire::{call_json, now, timings_json, usage_json};
use crate::worker::{CallPiece, Update};

const STREAM_OPTIONS: Fields =
    &[("include_usage", Field::Honoured), ("include_obfuscation", Field::Only("false"))];

/// What is replied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// Messages.
    Chat,
    /// Texts.
    Text,
}

/// What all parts of a reply say, and what was counted so far.
pub(super) struct OpenAiReply {
    shape: ReplyShape,
    id: String,
    created: u64,
    model: String,
    choices: usize,
    /// Whether counts come last.
    wants_usage: bool,
    /// Whether the prompt's progress is told.
    wants_progress: bool,
    /// By choice.
    usage: Vec<(usize, TokenUsage)>,
    /// Choices of one prompt.
    n: usize,
    timings: Value,
    /// Of each choice: the call that is being written, and how many are whole.
    calls: Vec<(OpenCall, usize)>,
}

impl OpenAiReply {
    /// To a request with these fields, of so many choices in all, `n` to a prompt.
    ///
    /// # Errors
    /// A field that cannot be obeyed.
    pub(super) fn new(
        app: &Serving,
        shape: ReplyShape,
        body: &JsonBody,
        n: usize,
        choices: usize,
    ) -> Result<OpenAiReply> {
        let options = body.nested("stream_options")?;
        check(options.fields(), STREAM_OPTIONS, |_| false)?;
        let prefix = if shape == ReplyShape::Chat { "chatcmpl" } else { "cmpl" };
        Ok(OpenAiReply {
            shape,
            id: format!("{prefix}-{:016x}", RandomState::new().hash_one("reply")),
            created: now(),
            model: app.model.name.clone(),
            choices,
            wants_usage: options.flag("include_usage")?.unwrap_or(false),
            wants_progress: body.flag("return_progress")?.unwrap_or(false),
            usage: Vec::new(),
            n,
            timings: Value::Null,
            calls: std::iter::repeat_with(Default::default).take(choices).collect(),
        })
    }

    /// All of it, with a reply for each choice.
    pub(super) fn whole(&self, replies: &[Whole]) -> Value {
        let choice = |(index, reply): (usize, &Whole)| {
            let text = &reply.completion.text;
            let reason = Some(finish_reason(reply.completion.reason));
            match self.shape {
                ReplyShape::Text => choice(index, "text", &json!(text), reason),
                ReplyShape::Chat => {
                    let mut message = json!({ "role": "assistant", "content": text });
                    let Completion { thoughts, calls, .. } = &reply.completion;
                    if !thoughts.is_empty() {
                        message["reasoning_content"] = json!(thoughts);
                    }
                    if !calls.is_empty() {
                        message["tool_calls"] = calls.iter().map(call_json).collect();
                        if text.is_empty() {
                            message["content"] = Value::Null;
                        }
                    }
                    choice(index, "message", &message, reason)
                }
            }
        };
        let choices: Vec<Value> = replies.iter().enumerate().map(choice).collect();
        let object = if self.shape == ReplyShape::Chat { "chat.completion" } else { TEXT };
        let mut whole = self.object(object, &choices.iter().collect::<Vec<_>>());
        let usage = replies.iter().map(|reply| reply.completion.usage).enumerate();
        whole["usage"] = usage_json(&added(&usage.collect::<Vec<_>>(), self.n));
        whole["timings"] =
            replies.first().map_or(Value::Null, |reply| timings_json(&reply.completion.timings));
        whole
    }

    fn object(&self, object: &str, choices: &[&Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    /// A chunk of one choice, or of none.
    fn chunk(&self, choice: Option<&Value>) -> Value {
        let object = if self.shape == ReplyShape::Chat { "chat.completion.chunk" } else { TEXT };
        self.object(object, choice.as_slice())
    }

    /// More of choice `index`: text of this kind.
    fn more(&self, index: usize, kind: &str, text: &str, reason: Option<&str>) -> Value {
        let choice = match self.shape {
            ReplyShape::Text => choice(index, "text", &json!(text), reason),
            ReplyShape::Chat if text.is_empty() => choice(index, "delta", &json!({}), reason),
            ReplyShape::Chat => choice(index, "delta", &json!({ kind: text }), reason),
        };
        self.chunk(Some(&choice))
    }
}

impl OpenAiReply {
    /// More of a call of choice `index`; what is sent, if it is whole.
    fn call(&mut self, index: usize, piece: CallPiece) -> Option<Value> {
        let (open, whole) = &mut self.calls[index];
        let mut call = call_json(&open.add(piece)?);
        call["index"] = json!(*whole);
        *whole += 1;
        Some(self.chunk(Some(&choice(index, "delta", &json!({ "tool_calls": [call] }), None))))
    }
}

const TEXT: &str = "text_completion";

fn choice(index: usize, name: &str, value: &Value, reason: Option<&str>) -> Value {
    json!({ "index": index, name: value, "logprobs": null, "finish_reason": reason })
}

/// Why it ended, in OpenAI's words.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length | FinishReason::ToolCalls => reason.name(),
        FinishReason::Stop | FinishReason::Cancelled => "stop",
    }
}

/// Counts of all choices: a prompt counts once for its `n`.
fn added(usage: &[(usize, TokenUsage)], n: usize) -> TokenUsage {
    let prompts = || usage.iter().filter(|(index, _)| index.is_multiple_of(n));
    TokenUsage {
        prompt_tokens: prompts().map(|(_, usage)| usage.prompt_tokens).sum(),
        cached_tokens: prompts().map(|(_, usage)| usage.cached_tokens).sum(),
        completion_tokens: usage.iter().map(|(_, usage)| usage.completion_tokens).sum(),
    }
}

impl Chunks for OpenAiReply {
    const FRAMES: Frames = Frames::Events;

    fn begin(&mut self) -> Vec<Value> {
        let first = |index| {
            let delta = json!({ "role": "assistant", "content": "" });
            self.chunk(Some(&choice(index, "delta", &delta, None)))
        };
        match self.shape {
            ReplyShape::Chat => (0..self.choices).map(first).collect(),
            ReplyShape::Text => Vec::new(),
        }
    }

    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>> {
        Ok(match update {
            Update::Text(text) => vec![self.more(index, "content", &text, None)],
            Update::Thought(text) => vec![self.more(index, "reasoning_content", &text, None)],
            Update::Prefill(prefill) if self.wants_progress => {
                let mut chunk = self.chunk(None);
                chunk["prompt_progress"] = json!({
                    "total": prefill.cached + prefill.total,
                    "cache": prefill.cached,
                    "processed": prefill.cached + prefill.done,
                });
                vec![chunk]
            }
            Update::Call(piece) => self.call(index, piece).into_iter().collect(),
            Update::Prefill(_) => Vec::new(),
            Update::Done(completion, _) => {
                self.usage.push((index, completion.usage));
                self.timings = timings_json(&completion.timings);
                let reason = finish_reason(completion.reason);
                let mut last = self.more(index, "content", "", Some(reason));
                last["timings"] = self.timings.clone();
                vec![last]
            }
            Update::Failed(error) => return Err(error),
        })
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.wants_usage {
            return Vec::new();
        }
        let mut chunk = self.chunk(None);
        chunk["usage"] = usage_json(&added(&self.usage, self.n));
        vec![chunk]
    }
}

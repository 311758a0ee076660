//! A reply in Anthropic's words: blocks of thought and text, whole or piece by piece.

use std::hash::{BuildHasher, RandomState};

use engine::{Completion, FinishReason};
use serde_json::{Value, json};

use crate::api::asked::Whole;
use crate::api::stream::{Chunks, Frames};
use crate::error::Result;
use crate::wire::timings_json;
use crate::worker::Update;

/// A block that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
}

impl BlockKind {
    /// What is in it, and the names of its field and its pieces.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            BlockKind::Text => ("text", "text", "text_delta"),
            BlockKind::Thinking => ("thinking", "thinking", "thinking_delta"),
        }
    }

    fn with(self, text: &str) -> Value {
        let (kind, field, _) = self.names();
        let mut block = json!({ "type": kind, field: text });
        if self == BlockKind::Thinking {
            // nobody but its author reads what others sign there
            block["signature"] = json!("");
        }
        block
    }
}

/// What all parts of a reply say, and the block that is open.
pub(super) struct AnthropicReply {
    id: String,
    model: String,
    prompt_tokens: usize,
    blocks: usize,
    open: Option<BlockKind>,
}

impl AnthropicReply {
    pub(super) fn new(model: &str, prompt_tokens: usize) -> AnthropicReply {
        AnthropicReply {
            id: format!("msg_{:016x}", RandomState::new().hash_one("reply")),
            model: model.to_owned(),
            prompt_tokens,
            blocks: 0,
            open: None,
        }
    }

    /// All of it.
    pub(super) fn whole(&self, reply: &Whole) -> Value {
        let mut content = Vec::new();
        if !reply.completion.thoughts.is_empty() {
            content.push(BlockKind::Thinking.with(&reply.completion.thoughts));
        }
        content.push(BlockKind::Text.with(&reply.completion.text));
        let mut message = self.message(content);
        message["stop_reason"] = json!(reason(&reply.completion, reply.stopped.as_deref()));
        message["stop_sequence"] = json!(reply.stopped);
        message["usage"] = usage(&reply.completion);
        message["timings"] = timings_json(&reply.completion.timings);
        message
    }

    fn message(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": Value::Array(content),
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": self.prompt_tokens, "output_tokens": 0 },
        })
    }

    /// More of a block of this kind, which is begun if another is open.
    fn more(&mut self, kind: BlockKind, text: &str) -> Vec<Value> {
        let mut events = Vec::new();
        if self.open != Some(kind) {
            events.extend(self.close());
            let block = kind.with("");
            events.push(json!({
                "type": "content_block_start", "index": self.blocks, "content_block": block,
            }));
            self.open = Some(kind);
        }
        let (_, field, delta) = kind.names();
        events.push(json!({
            "type": "content_block_delta",
            "index": self.blocks,
            "delta": { "type": delta, field: text },
        }));
        events
    }

    fn close(&mut self) -> Option<Value> {
        self.open.take()?;
        self.blocks += 1;
        Some(json!({ "type": "content_block_stop", "index": self.blocks - 1 }))
    }
}

/// Why it ended.
fn reason(completion: &Completion, stopped: Option<&str>) -> &'static str {
    match (completion.reason, stopped) {
        (FinishReason::Length, _) => "max_tokens",
        (_, Some(_)) => "stop_sequence",
        (_, None) => "end_turn",
    }
}

/// Tokens of the prompt that were computed, those that were there, and those of the reply.
fn usage(completion: &Completion) -> Value {
    let usage = &completion.usage;
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    })
}

impl Chunks for AnthropicReply {
    const FRAMES: Frames = Frames::NamedEvents;

    fn begin(&mut self) -> Vec<Value> {
        vec![json!({ "type": "message_start", "message": self.message(Vec::new()) })]
    }

    fn update(&mut self, _: usize, update: Update) -> Result<Vec<Value>> {
        Ok(match update {
            Update::Text(text) => self.more(BlockKind::Text, &text),
            Update::Thought(text) => self.more(BlockKind::Thinking, &text),
            Update::Prefill(_) | Update::Call(_) => Vec::new(),
            Update::Done(completion, stopped) => {
                let mut events: Vec<Value> = self.close().into_iter().collect();
                events.push(json!({
                    "type": "message_delta",
                    "delta": {
                        "stop_reason": reason(&completion, stopped.as_deref()),
                        "stop_sequence": stopped,
                    },
                    "usage": usage(&completion),
                }));
                events
            }
            Update::Failed(error) => return Err(error),
        })
    }

    fn end(&mut self) -> Vec<Value> {
        vec![json!({ "type": "message_stop" })]
    }
}

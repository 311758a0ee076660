//! A reply in Anthropic's words: blocks of thought, text and calls, whole or piece by piece.

use std::hash::{BuildHasher, RandomState};

use engine::{Completion, FinishReason, ToolCall, ToolCallDelta};
use serde_json::{Value, json};

use crate::api::stream::{Chunks, Frames};
use crate::error::{ErrorShape, Result};
use crate::updates::Update;
use crate::wire::ReplySource;

/// A block of text that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
}

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Block(BlockKind),
    Call,
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

/// A call, as a block.
fn call_block(call: &ToolCall) -> Value {
    let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

/// What all parts of a reply say, and the block that is open.
pub(super) struct AnthropicReply {
    source: ReplySource,
    id: String,
    prompt_tokens: usize,
    notes: Vec<String>,
    blocks: usize,
    open: Option<Open>,
}

impl AnthropicReply {
    pub(super) fn new(source: ReplySource, prompt_tokens: usize, notes: Vec<String>) -> Self {
        AnthropicReply {
            source,
            id: format!("msg_{:016x}", RandomState::new().hash_one("reply")),
            prompt_tokens,
            notes,
            blocks: 0,
            open: None,
        }
    }

    /// All of it.
    pub(super) fn whole(&self, reply: &Completion) -> Value {
        let Completion { text, thoughts, calls, .. } = reply;
        let mut content = Vec::new();
        if !thoughts.is_empty() {
            content.push(BlockKind::Thinking.with(thoughts));
        }
        if !text.is_empty() || calls.is_empty() {
            content.push(BlockKind::Text.with(text));
        }
        // an incomplete call has no object of arguments, and so no block: `warnings` names it
        content.extend(calls.iter().map(call_block));
        let mut message = self.message(content);
        message["stop_reason"] = json!(reason(reply));
        message["stop_sequence"] = json!(reply.stopped_at);
        message["usage"] = usage(reply);
        self.source.account(&mut message, reply, &self.notes);
        message
    }

    fn message(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.source.model,
            "content": Value::Array(content),
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": self.prompt_tokens, "output_tokens": 0 },
        })
    }

    /// More of a block of this kind, which is begun if another is open.
    fn more(&mut self, kind: BlockKind, text: &str) -> Vec<Value> {
        let mut events = Vec::new();
        if self.open != Some(Open::Block(kind)) {
            events.extend(self.begin_block(Open::Block(kind), &kind.with("")));
        }
        let (_, field, delta) = kind.names();
        events.push(self.delta(&json!({ "type": delta, field: text })));
        events
    }

    /// More of a call.
    fn call(&mut self, piece: &ToolCallDelta<String>) -> Vec<Value> {
        match piece {
            ToolCallDelta::Begins { id, name, .. } => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.begin_block(Open::Call, &block)
            }
            ToolCallDelta::Arguments { text, .. } => {
                vec![self.delta(&json!({ "type": "input_json_delta", "partial_json": text }))]
            }
            ToolCallDelta::Ends { .. } | ToolCallDelta::Fails { .. } => {
                self.close().into_iter().collect()
            }
        }
    }

    fn begin_block(&mut self, open: Open, block: &Value) -> Vec<Value> {
        let mut events: Vec<Value> = self.close().into_iter().collect();
        let index = self.blocks;
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        self.open = Some(open);
        events
    }

    fn delta(&self, delta: &Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.blocks, "delta": delta })
    }

    fn close(&mut self) -> Option<Value> {
        self.open.take()?;
        self.blocks += 1;
        Some(json!({ "type": "content_block_stop", "index": self.blocks - 1 }))
    }
}

/// Why it ended.
fn reason(completion: &Completion) -> &'static str {
    match (completion.reason, &completion.stopped_at) {
        // what was cut says why in `warnings`
        (FinishReason::Length | FinishReason::Cancelled, _) => "max_tokens",
        (FinishReason::ToolCalls, _) => "tool_use",
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
    const ERRORS: ErrorShape = ErrorShape::Anthropic;

    fn begin(&mut self) -> Vec<Value> {
        vec![json!({ "type": "message_start", "message": self.message(Vec::new()) })]
    }

    fn update(&mut self, _: usize, update: Update) -> Result<Vec<Value>> {
        Ok(match update {
            Update::Text(text) => self.more(BlockKind::Text, &text),
            Update::Thought(text) => self.more(BlockKind::Thinking, &text),
            Update::Call(piece) => self.call(&piece),
            Update::Prefill(_) | Update::PromptScored(_) | Update::Chosen(_) => Vec::new(),
            Update::Done(reply) => {
                let mut events: Vec<Value> = self.close().into_iter().collect();
                let stop = &reply.stopped_at;
                let mut last = json!({
                    "type": "message_delta",
                    "delta": { "stop_reason": reason(&reply), "stop_sequence": stop },
                    "usage": usage(&reply),
                });
                self.source.account(&mut last, &reply, &self.notes);
                events.push(last);
                events
            }
            Update::Failed(error) => return Err(error),
        })
    }

    fn end(&mut self) -> Vec<Value> {
        vec![json!({ "type": "message_stop" })]
    }
}

//! A reply in Ollama's words: an object a piece, the last of which counts.

use std::time::{Duration, SystemTime};

use engine::{CollectedCalls, Completion, FinishReason, ToolCall};
use serde_json::{Value, json};

use crate::api::stream::{Chunks, Frames};
use crate::error::{ErrorShape, Result};
use crate::wire::ReplySource;
use crate::worker::Update;

/// What is replied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OllamaShape {
    /// Messages.
    Chat,
    /// Texts.
    Generate,
}

/// What all pieces of a reply say.
pub(super) struct OllamaReply {
    source: ReplySource,
    shape: OllamaShape,
    began: SystemTime,
    calls: CollectedCalls,
    notes: Vec<String>,
}

/// A call in Ollama's words, whose arguments are an object.
fn call(call: &ToolCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "id": call.id, "function": { "name": call.name, "arguments": arguments } })
}

fn piece(model: &str, shape: OllamaShape, text: &str, thought: &str) -> Value {
    let at = humantime::format_rfc3339_nanos(SystemTime::now()).to_string();
    let mut piece = json!({ "model": model, "created_at": at });
    let thinks = !thought.is_empty();
    match shape {
        OllamaShape::Chat => {
            piece["message"] = json!({ "role": "assistant", "content": text });
            if thinks {
                piece["message"]["thinking"] = json!(thought);
            }
        }
        OllamaShape::Generate => {
            piece["response"] = json!(text);
            if thinks {
                piece["thinking"] = json!(thought);
            }
        }
    }
    piece["done"] = json!(false);
    piece
}

impl OllamaReply {
    pub(super) fn new(source: ReplySource, shape: OllamaShape) -> OllamaReply {
        let (calls, notes) = Default::default();
        OllamaReply { source, shape, began: SystemTime::now(), calls, notes }
    }

    /// With what whoever asked should know.
    pub(super) fn with_notes(self, notes: Vec<String>) -> OllamaReply {
        OllamaReply { notes, ..self }
    }

    /// To a request that says nothing to the model of this name: why there is no reply.
    pub(super) fn empty(model: &str, shape: OllamaShape, reason: &str) -> Value {
        let mut whole = piece(model, shape, "", "");
        whole["done"] = json!(true);
        whole["done_reason"] = json!(reason);
        whole
    }

    /// All of it.
    pub(super) fn whole(&self, reply: &Completion) -> Value {
        let mut whole = self.piece(&reply.text, &reply.thoughts);
        if !reply.calls.is_empty() {
            whole["message"]["tool_calls"] = reply.calls.iter().map(call).collect();
        }
        self.count(&mut whole, reply);
        whole
    }

    fn piece(&self, text: &str, thought: &str) -> Value {
        piece(&self.source.model, self.shape, text, thought)
    }

    /// Why it ended, and its counts; times are nanoseconds.
    fn count(&self, piece: &mut Value, completion: &Completion) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let reason = completion.reason == FinishReason::Length;
        let timings = &completion.timings;
        piece["done"] = json!(true);
        piece["done_reason"] = json!(if reason { "length" } else { "stop" });
        piece["total_duration"] = json!(ns(self.began.elapsed().unwrap_or_default()));
        piece["load_duration"] = json!(0);
        piece["prompt_eval_count"] = json!(completion.usage.prompt_tokens);
        piece["prompt_eval_duration"] = json!(ns(timings.prompt));
        piece["eval_count"] = json!(completion.usage.completion_tokens);
        piece["eval_duration"] = json!(ns(timings.predicted));
        self.source.account(piece, completion, &self.notes);
    }
}

impl Chunks for OllamaReply {
    const FRAMES: Frames = Frames::Lines;
    const ERRORS: ErrorShape = ErrorShape::Ollama;

    fn update(&mut self, _: usize, update: Update) -> Result<Vec<Value>> {
        Ok(match update {
            Update::Text(text) => vec![self.piece(&text, "")],
            Update::Thought(text) => vec![self.piece("", &text)],
            Update::Call(piece) => {
                // its arguments are an object: a call is told when it is whole
                let Some(whole) = self.calls.add(&piece).map(call) else { return Ok(Vec::new()) };
                let mut piece = self.piece("", "");
                piece["message"]["tool_calls"] = json!([whole]);
                vec![piece]
            }
            Update::Prefill(_) | Update::Chosen(_) => Vec::new(),
            Update::Done(completion) => {
                let mut last = self.piece("", "");
                self.count(&mut last, &completion);
                vec![last]
            }
            Update::Failed(error) => return Err(error),
        })
    }
}

//! A reply in Ollama's words: an object a piece, the last of which counts.

use std::time::{Duration, Instant, SystemTime};

use engine::{CollectedCalls, Completion, TokenLogprobs, ToolCall};
use serde_json::{Value, json};

use crate::api::stream::{Chunks, Frames};
use crate::api::written;
use crate::error::{ErrorShape, Result};
use crate::updates::Update;
use crate::wire::{ReplySource, ScoreList, WithField, is_cut};

/// The field with the scores of tokens.
const SCORES: &str = "logprobs";

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
    /// Arrival time of the request, and the time that loading its model took.
    times: (Instant, Duration),
    calls: CollectedCalls,
    notes: Vec<String>,
    /// Scores of tokens whose text is still to come, if they are told.
    scores: Option<Vec<TokenLogprobs>>,
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
    /// Creates the writer of a reply. `scores`: whether pieces include log probabilities. `times`: arrival time of the request, and
    /// the time that loading its model took.
    pub(super) fn new(
        source: ReplySource,
        shape: OllamaShape,
        scores: bool,
        times: (Instant, Duration),
    ) -> OllamaReply {
        let (calls, notes) = Default::default();
        let scores = scores.then(Vec::new);
        OllamaReply { source, shape, times, calls, notes, scores }
    }

    /// With the scores that are there, in OpenAI's shape without ids.
    fn scored(&self, mut piece: Value, scores: &[TokenLogprobs]) -> Value {
        if self.scores.is_some() && !scores.is_empty() {
            piece[SCORES] = self.score_list(scores).value();
        }
        piece
    }

    fn score_list<'a>(&'a self, scores: &'a [TokenLogprobs]) -> ScoreList<'a> {
        ScoreList { ids: false, ..self.source.scores(scores) }
    }

    /// The scores of tokens up to here.
    fn take_scores(&mut self) -> Vec<TokenLogprobs> {
        self.scores.as_mut().map(std::mem::take).unwrap_or_default()
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

    /// The JSON of all of it, which takes `bytes` bytes for scores. These are serialized without building their values.
    pub(super) fn text(&self, reply: &Completion, bytes: u64) -> Result<Vec<u8>> {
        let mut object = self.whole(reply);
        object[SCORES] = Value::Null;
        let value = self.score_list(&reply.logprobs);
        written::json_text_of(&WithField { object: &object, name: SCORES, value }, bytes)
    }

    /// All of it but the scores.
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
        let cut = is_cut(completion.reason);
        let timings = &completion.timings;
        piece["done"] = json!(true);
        piece["done_reason"] = json!(if cut { "length" } else { "stop" });
        piece["total_duration"] = json!(ns(self.times.0.elapsed()));
        piece["load_duration"] = json!(ns(self.times.1));
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
            Update::Text(text) => {
                let scores = self.take_scores();
                vec![self.scored(self.piece(&text, ""), &scores)]
            }
            Update::Thought(text) => {
                let scores = self.take_scores();
                vec![self.scored(self.piece("", &text), &scores)]
            }
            Update::Call(piece) => {
                // its arguments are an object: a call is told when it is whole
                let Some(whole) = self.calls.add(&piece).map(call) else { return Ok(Vec::new()) };
                let mut piece = self.piece("", "");
                piece["message"]["tool_calls"] = json!([whole]);
                vec![piece]
            }
            Update::Chosen(chosen) => {
                if let Some(scores) = &mut self.scores {
                    scores.push(*chosen);
                }
                Vec::new()
            }
            Update::Prefill(_) | Update::PromptScored(_) => Vec::new(),
            Update::Done(completion) => {
                let mut last = self.piece("", "");
                self.count(&mut last, &completion);
                let scores = self.take_scores();
                vec![self.scored(last, &scores)]
            }
            Update::Failed(error) => return Err(error),
        })
    }
}

//! A response of OpenAI's newer API: items of thought, text and calls, whole or event by event.

use std::hash::{BuildHasher, RandomState};

use engine::{Completion, ToolCallDelta};
use serde_json::{Map, Value, json};

use crate::api::stream::{Chunks, Frames};
use crate::error::{ApiError, ErrorShape, Result};
use crate::intake::ByteReservation;
use crate::updates::Update;
use crate::wire::{ReplySource, is_cut, now};

/// What all events say, and the item that is being written.
pub(super) struct ResponsesReply {
    source: ReplySource,
    id: String,
    created: u64,
    /// What the response repeats of its request.
    echo: Map<String, Value>,
    /// Memory for that.
    _reservation: ByteReservation,
    notes: Vec<String>,
    /// Events that were sent.
    sent: u64,
    /// Items that are whole.
    items: Vec<Value>,
    open: Option<Open>,
}

/// An item that is being written.
struct Open {
    kind: Kind,
    id: String,
    text: String,
    /// Of a call: what its result names, and the tool.
    call: (String, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thought,
    Text,
    Call,
}

impl Kind {
    /// What an id of such an item begins with, and the events of its pieces and its end.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::Thought => {
                ("rs", "response.reasoning_text.delta", "response.reasoning_text.done")
            }
            Kind::Text => ("msg", "response.output_text.delta", "response.output_text.done"),
            Kind::Call => (
                "fc",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
            ),
        }
    }
}

/// Status of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    InProgress,
    Completed,
    /// The item was cut and will not be continued.
    Incomplete,
}

/// Status of the item in which a reply ended.
fn last_status(reply: &Completion) -> Status {
    if is_cut(reply.reason) { Status::Incomplete } else { Status::Completed }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
        }
    }
}

fn new_id(prefix: &str) -> String {
    format!("{prefix}_{:016x}", RandomState::new().hash_one("response"))
}

impl Open {
    fn new(kind: Kind) -> Open {
        let (prefix, ..) = kind.names();
        Open { kind, id: new_id(prefix), text: String::new(), call: Default::default() }
    }

    /// The part of the content that it has, if it has one.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Text => Some(
                json!({ "type": "output_text", "text": self.text, "annotations": [], "logprobs": [] }),
            ),
            Kind::Thought => Some(json!({ "type": "reasoning_text", "text": self.text })),
            Kind::Call => None,
        }
    }

    /// Returns the item with this status.
    fn item(&self, status: Status) -> Value {
        let content = match status {
            Status::InProgress => json!([]),
            Status::Completed | Status::Incomplete => json!([self.part()]),
        };
        let status = status.name();
        match self.kind {
            Kind::Text => json!({
                "id": self.id, "type": "message", "status": status, "role": "assistant", "content": content,
            }),
            Kind::Thought => json!({
                "id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content,
            }),
            Kind::Call => json!({
                "id": self.id, "type": "function_call", "status": status, "call_id": self.call.0,
                "name": self.call.1, "arguments": self.text,
            }),
        }
    }
}

impl ResponsesReply {
    /// `echo`: what the response repeats of its request, and the memory for that.
    pub(super) fn new(
        source: ReplySource,
        echo: (Map<String, Value>, ByteReservation),
        notes: Vec<String>,
    ) -> Self {
        let (echo, reservation) = echo;
        ResponsesReply {
            _reservation: reservation,
            source,
            id: new_id("resp"),
            created: now(),
            echo,
            notes,
            sent: 0,
            items: Vec::new(),
            open: None,
        }
    }

    /// All of it.
    pub(super) fn whole(&self, reply: &Completion) -> Value {
        let mut items = Vec::new();
        let mut add = |kind, text: &str, call: (String, String), status| {
            let item = Open { text: text.to_owned(), call, ..Open::new(kind) };
            items.push(item.item(status));
        };
        let (whole, last) = (Status::Completed, last_status(reply));
        let has_calls = !reply.calls.is_empty() || reply.cut_call.is_some();
        // a reply that was cut within its thoughts has no message, as in a stream
        let in_thought = last == Status::Incomplete && !reply.thoughts.is_empty();
        let has_text = !reply.text.is_empty() || !(has_calls || in_thought);
        if !reply.thoughts.is_empty() {
            let status = if has_text || has_calls { whole } else { last };
            add(Kind::Thought, &reply.thoughts, Default::default(), status);
        }
        if has_text {
            let status = if has_calls { whole } else { last };
            add(Kind::Text, &reply.text, Default::default(), status);
        }
        let calls = reply.calls.iter().map(|call| (call, whole));
        for (call, status) in
            calls.chain(reply.cut_call.as_ref().map(|call| (call, Status::Incomplete)))
        {
            add(Kind::Call, &call.arguments, (call.id.clone(), call.name.clone()), status);
        }
        self.ended(reply, items)
    }

    /// The response with these items, and how it ended.
    fn ended(&self, reply: &Completion, items: Vec<Value>) -> Value {
        let cut = is_cut(reply.reason);
        let mut object = self.object(if cut { "incomplete" } else { "completed" }, items);
        if cut {
            object["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        let usage = &reply.usage;
        object["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": { "cached_tokens": usage.cached_tokens },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
            "total_tokens": usage.total_tokens(),
        });
        self.source.account(&mut object, reply, &self.notes);
        object
    }

    /// Returns the events of a response that failed: the error, and the response so far.
    fn failure(&mut self, error: &ApiError) -> Vec<Value> {
        let mut events = self.close(Status::Incomplete);
        let told = error.to_shape(ErrorShape::Event);
        events.push(self.event("error", told));
        let mut response = self.object("failed", self.items.clone());
        response["error"] = json!({ "code": "server_error", "message": error.message });
        events.push(self.event("response.failed", json!({ "response": response })));
        events
    }

    fn object(&self, status: &str, output: Vec<Value>) -> Value {
        let mut object = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.source.model,
            "output": [],
            "previous_response_id": null,
            "store": false,
            "truncation": "disabled",
            "usage": null,
        });
        object["output"] = Value::Array(output);
        for (name, value) in &self.echo {
            object[name] = value.clone();
        }
        object
    }

    /// An event, with its number.
    fn event(&mut self, kind: &str, mut value: Value) -> Value {
        value["type"] = json!(kind);
        value["sequence_number"] = json!(self.sent);
        self.sent += 1;
        value
    }

    /// More of an item of this kind, which is begun if another is open.
    fn more(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            events.extend(self.begin_item(Open::new(kind)));
        }
        let index = self.items.len();
        let Some(open) = &mut self.open else { return events };
        open.text.push_str(text);
        let (_, delta, _) = kind.names();
        let mut value = json!({ "item_id": open.id, "output_index": index, "delta": text });
        if kind != Kind::Call {
            value["content_index"] = json!(0);
        }
        if kind == Kind::Text {
            value["logprobs"] = json!([]);
        }
        events.push(self.event(delta, value));
        events
    }

    fn begin_item(&mut self, open: Open) -> Vec<Value> {
        let mut events = self.close(Status::Completed);
        let index = self.items.len();
        let item = open.item(Status::InProgress);
        events.push(
            self.event(
                "response.output_item.added",
                json!({ "output_index": index, "item": item }),
            ),
        );
        if let Some(part) = open.part() {
            let value = json!({ "item_id": open.id, "output_index": index, "content_index": 0, "part": part });
            events.push(self.event("response.content_part.added", value));
        }
        self.open = Some(open);
        events
    }

    /// Closes the open item, if there is one, with this status.
    fn close(&mut self, status: Status) -> Vec<Value> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let index = self.items.len();
        let (_, _, done) = open.kind.names();
        let mut events = Vec::new();
        let mut value = json!({ "item_id": open.id, "output_index": index });
        match open.part() {
            None => {
                value["arguments"] = json!(open.text);
                value["name"] = json!(open.call.1);
                events.push(self.event(done, value));
            }
            Some(part) => {
                value["content_index"] = json!(0);
                let mut told = value.clone();
                told["text"] = json!(open.text);
                if open.kind == Kind::Text {
                    told["logprobs"] = json!([]);
                }
                events.push(self.event(done, told));
                value["part"] = part;
                events.push(self.event("response.content_part.done", value));
            }
        }
        let item = open.item(status);
        events.push(
            self.event("response.output_item.done", json!({ "output_index": index, "item": item })),
        );
        self.items.push(item);
        events
    }

    fn call(&mut self, piece: &ToolCallDelta<String>) -> Vec<Value> {
        match piece {
            ToolCallDelta::Begins { id, name, .. } => {
                let call = (id.clone(), name.clone());
                self.begin_item(Open { call, ..Open::new(Kind::Call) })
            }
            ToolCallDelta::Arguments { text, .. } => self.more(Kind::Call, text),
            ToolCallDelta::Ends { .. } => self.close(Status::Completed),
            ToolCallDelta::Fails { .. } => self.close(Status::Incomplete),
        }
    }
}

impl Chunks for ResponsesReply {
    const FRAMES: Frames = Frames::NamedEvents;
    const ERRORS: ErrorShape = ErrorShape::Event;

    fn begin(&mut self) -> Vec<Value> {
        ["response.created", "response.in_progress"]
            .map(|kind| {
                let response = self.object("in_progress", Vec::new());
                self.event(kind, json!({ "response": response }))
            })
            .into()
    }

    fn update(&mut self, _: usize, update: Update) -> Result<Vec<Value>> {
        Ok(match update {
            Update::Text(text) => self.more(Kind::Text, &text),
            Update::Thought(text) => self.more(Kind::Thought, &text),
            Update::Call(piece) => self.call(&piece),
            Update::Prefill(_) | Update::PromptScored(_) | Update::Chosen(_) => Vec::new(),
            Update::Done(reply) => {
                let mut events = self.close(last_status(&reply));
                let response = self.ended(&reply, self.items.clone());
                let kind = match is_cut(reply.reason) {
                    true => "response.incomplete",
                    false => "response.completed",
                };
                events.push(self.event(kind, json!({ "response": response })));
                events
            }
            Update::Failed(error) => return Err(error),
        })
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        self.failure(error)
    }
}

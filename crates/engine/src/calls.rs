//! Tool calls in a reply: who finds them in its text ([`CallParser`]), and what is told of them meanwhile. How models write
//! them, others know.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokenizer::{Message, ToolCall, ToolDeclarations, short_id};

use crate::{Event, StopReason};

/// More of a tool call, its texts borrowed (`&str`) or kept (`String`). Calls of a reply are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallDelta<S> {
    /// A call begins.
    Begins {
        /// Which.
        index: usize,
        /// What its result will name.
        id: S,
        /// The tool.
        name: S,
    },
    /// More of its arguments: all pieces are one JSON object.
    Arguments {
        /// Which.
        index: usize,
        /// The piece.
        text: S,
    },
    /// It is whole.
    Ends {
        /// Which.
        index: usize,
    },
    /// The call will never be complete. Its text belongs neither to a call nor to the reply. The next call gets its number.
    Fails {
        /// Which.
        index: usize,
    },
}

/// Finds calls in the text of one reply while it grows.
pub trait CallParser: Send {
    /// Whether a control token of this name is part of how calls are written: it is read then, while others are no text.
    fn reads(&self, spelling: &str) -> bool;

    /// More of the reply. What is certain is told: [`Event::Text`] and [`Event::ToolCall`].
    fn push(&mut self, text: &str, emit: &mut dyn FnMut(Event<'_>));

    /// Emits the rest at the end of the reply. If the model ended the reply, the text of an opening that is not a call is emitted as
    /// text. If the reply was cut, text that could still have become a call is dropped.
    fn finish(&mut self, end: ReplyEnd, emit: &mut dyn FnMut(Event<'_>));

    /// What has come of the calls, from the first character of what opens them; `None` where there are none so far.
    fn open(&self) -> Option<String>;
}

/// Tools that a conversation's model may call, and how it does.
pub trait Toolbox: Debug + Send + Sync {
    /// What the template is told of them; `None` if they are not to be called.
    fn declared(&self) -> Option<&ToolDeclarations>;

    /// What the system message says of them where the template says nothing.
    fn instructions(&self) -> Option<&str>;

    /// Returns the parser that finds the calls in one reply and gives them these ids.
    fn parser(&self, ids: CallIds) -> Option<Box<dyn CallParser>>;
}

/// Reason why the text of a reply ended, as far as calls are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The model ended the reply.
    Model,
    /// A stop text ended the reply.
    StopText,
    /// The reply was cut: token limit, time limit, full context, or cancelled.
    Cut,
}

impl ReplyEnd {
    /// Returns the end that corresponds to this stop reason.
    pub fn of(stop: &StopReason) -> ReplyEnd {
        match stop {
            StopReason::EndOfGeneration(_) => ReplyEnd::Model,
            StopReason::StopString(_) => ReplyEnd::StopText,
            _ => ReplyEnd::Cut,
        }
    }
}

/// Ids for the calls of one reply: nine letters and digits, a form that the templates of all families accept. The ids are derived
/// from the seed of the reply and its prompt, and differ from all call ids of the conversation.
#[derive(Clone, Debug, Default)]
pub struct CallIds {
    seed: u64,
    /// Number of ids generated so far, rejected ones included.
    tried: u64,
    taken: HashSet<String>,
}

/// Maximum length in bytes of an earlier id that is remembered, so that it is not used again.
const MOST_ID_BYTES: usize = 256;

impl CallIds {
    /// Creates the ids for a reply that is drawn with this seed to this prompt, in a conversation with these messages.
    pub fn new(seed: u64, prompt: &[u32], messages: &[Message]) -> CallIds {
        let mut hasher = DefaultHasher::new();
        (seed, prompt).hash(&mut hasher);
        let taken = messages.iter().flat_map(|message| &message.tool_calls);
        // neither a model nor this engine creates longer ids
        let taken = taken.filter(|call| call.id.len() <= MOST_ID_BYTES);
        let taken = taken.map(|call| call.id.clone()).collect();
        CallIds { seed: hasher.finish(), tried: 0, taken }
    }

    /// Returns the id of the next call: the one that the model wrote, or a new one if it wrote none or another call has it.
    pub fn next_id(&mut self, given: Option<&str>) -> String {
        let given = given.filter(|id| !id.is_empty() && !self.taken.contains(*id));
        let id = given.map_or_else(|| self.made(), str::to_owned);
        self.taken.insert(id.clone());
        id
    }

    fn made(&mut self) -> String {
        loop {
            let mut hasher = DefaultHasher::new();
            (self.seed, self.tried).hash(&mut hasher);
            self.tried += 1;
            let id = short_id(hasher.finish());
            if !self.taken.contains(&id) {
                return id;
            }
        }
    }
}

impl ToolCallDelta<&str> {
    /// The same, kept.
    pub fn into_owned(self) -> ToolCallDelta<String> {
        match self {
            ToolCallDelta::Begins { index, id, name } => {
                ToolCallDelta::Begins { index, id: id.to_owned(), name: name.to_owned() }
            }
            ToolCallDelta::Arguments { index, text } => {
                ToolCallDelta::Arguments { index, text: text.to_owned() }
            }
            ToolCallDelta::Ends { index } => ToolCallDelta::Ends { index },
            ToolCallDelta::Fails { index } => ToolCallDelta::Fails { index },
        }
    }
}

/// Calls of a reply, as their pieces come.
#[derive(Debug, Default)]
pub struct CollectedCalls {
    calls: Vec<ToolCall>,
    /// Whether the last one is not whole.
    open: bool,
    /// The last call that was not completed.
    failed: Option<ToolCall>,
}

impl CollectedCalls {
    /// More of them; the call that is whole now.
    pub fn add<S: AsRef<str>>(&mut self, delta: &ToolCallDelta<S>) -> Option<&ToolCall> {
        match delta {
            ToolCallDelta::Begins { id, name, .. } => {
                self.open = true;
                self.calls.push(ToolCall {
                    id: id.as_ref().to_owned(),
                    name: name.as_ref().to_owned(),
                    arguments: String::new(),
                });
            }
            ToolCallDelta::Arguments { text, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(text.as_ref());
                }
            }
            ToolCallDelta::Ends { .. } => {
                self.open = false;
                return self.calls.last();
            }
            ToolCallDelta::Fails { .. } => {
                self.open = false;
                self.failed = self.calls.pop();
            }
        }
        None
    }

    /// Whether any is whole.
    pub fn any(&self) -> bool {
        self.calls.len() > usize::from(self.open)
    }

    /// Returns the complete calls, and the last call that began and was not completed.
    pub fn finish(mut self) -> (Vec<ToolCall>, Option<ToolCall>) {
        if self.open {
            self.failed = self.calls.pop();
        }
        (self.calls, self.failed)
    }
}

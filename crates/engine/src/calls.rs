//! Tool calls in a reply: who finds them in its text ([`CallParser`]), and what is told of them meanwhile. How models write
//! them, others know.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokenizer::{Message, ToolCall, ToolDeclarations};

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
    /// It is not whole and never will be: its text is no call's and no reply's. The next call has its number.
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

    /// The reply has ended: tell the rest. What opened a call and is none is text where the model ended the reply itself; what may
    /// still have become a call is nothing where the reply was cut.
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

    /// What finds the calls in one reply, and gives them these ids.
    fn parser(&self, ids: CallIds) -> Option<Box<dyn CallParser>>;
}

/// How the text of a reply came to its end, as far as calls are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The model ended it.
    Model,
    /// A stop text did.
    StopText,
    /// Its length, its time, the context, or somebody who asked to stop.
    Cut,
}

impl ReplyEnd {
    /// That of a reply that ended so.
    pub fn of(stop: &StopReason) -> ReplyEnd {
        match stop {
            StopReason::EndOfGeneration(_) => ReplyEnd::Model,
            StopReason::StopString(_) => ReplyEnd::StopText,
            _ => ReplyEnd::Cut,
        }
    }
}

/// Ids for the calls of one reply: nine letters and digits, which every family's template takes. They follow from the seed of the
/// reply and its prompt, and are none that the conversation has.
#[derive(Clone, Debug, Default)]
pub struct CallIds {
    seed: u64,
    /// Ids given so far, tries included.
    tried: u64,
    taken: HashSet<String>,
}

/// Characters of an id, and how many it has.
const ID_CHARS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ID_LENGTH: usize = 9;
/// Most bytes of an id of an earlier call that is not given again.
const MOST_ID_BYTES: usize = 256;

impl CallIds {
    /// For a reply drawn with this seed to this prompt, in a conversation of these messages.
    pub fn new(seed: u64, prompt: &[u32], messages: &[Message]) -> CallIds {
        let mut hasher = DefaultHasher::new();
        (seed, prompt).hash(&mut hasher);
        let taken = messages.iter().flat_map(|message| &message.tool_calls);
        // a longer id is none that a model or this engine gives
        let taken = taken.filter(|call| call.id.len() <= MOST_ID_BYTES);
        let taken = taken.map(|call| call.id.clone()).collect();
        CallIds { seed: hasher.finish(), tried: 0, taken }
    }

    /// The id of the next call: the one that the model gave it, unless another call has that, or a new one.
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
            let mut rest = hasher.finish();
            let mut digit = || {
                let digit = ID_CHARS[(rest % 36) as usize];
                rest /= 36;
                char::from(digit)
            };
            let id: String = (0..ID_LENGTH).map(|_| digit()).collect();
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
    /// The last one that never will be.
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

    /// The calls that are whole, and the last one that was begun and is not.
    pub fn finish(mut self) -> (Vec<ToolCall>, Option<ToolCall>) {
        if self.open {
            self.failed = self.calls.pop();
        }
        (self.calls, self.failed)
    }
}

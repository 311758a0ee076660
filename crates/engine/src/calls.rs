//! Tool calls in a reply: who finds them in its text ([`CallParser`]), and what is told of them meanwhile. How models write
//! them, others know.

use std::fmt::Debug;

use tokenizer::{ToolCall, ToolDeclarations};

use crate::Event;

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
    /// It was none: its text follows as [`Event::Text`], and the next call has its number.
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

    /// The reply has ended: tell the rest. What began as a call and is none is text.
    fn finish(&mut self, emit: &mut dyn FnMut(Event<'_>));

    /// What has come of the calls, from the first character of what opens them; `None` where there are none so far.
    fn open(&self) -> Option<String>;
}

/// Tools that a conversation's model may call, and how it does.
pub trait Toolbox: Debug + Send + Sync {
    /// What the template is told of them; `None` if they are not to be called.
    fn declared(&self) -> Option<&ToolDeclarations>;

    /// What the system message says of them where the template says nothing.
    fn instructions(&self) -> Option<&str>;

    /// What finds the calls in one reply. `before`: how many calls the conversation has already, so that ids differ.
    fn parser(&self, before: usize) -> Option<Box<dyn CallParser>>;
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
                self.calls.pop();
            }
        }
        None
    }

    /// Whether any is whole.
    pub fn any(&self) -> bool {
        self.calls.len() > usize::from(self.open)
    }

    /// The calls that are whole.
    pub fn finish(mut self) -> Vec<ToolCall> {
        if self.open {
            self.calls.pop();
        }
        self.calls
    }
}

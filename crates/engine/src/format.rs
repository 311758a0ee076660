//! The text side of the engine: what it needs of a tokenizer and of a chat template.

use std::borrow::Cow;

use crate::Result;

/// Tokens as text.
pub trait Vocabulary {
    /// Bytes of a token, maybe part of a character; empty for control tokens and unknown ids.
    fn bytes(&self, token: u32) -> Cow<'_, [u8]>;

    /// The token as the vocabulary spells it, control tokens included.
    fn spelling(&self, token: u32) -> Option<Cow<'_, str>>;

    /// Whether the token ends a reply.
    fn is_eog(&self, token: u32) -> bool;
}

/// Messages as tokens.
pub trait ChatFormat: Vocabulary {
    /// The whole conversation as the model's template writes it, ready for the assistant's next reply.
    ///
    /// # Errors
    /// If the template fails or refuses the messages.
    fn render(&self, messages: &[Message], reasoning: Reasoning) -> Result<Vec<Segment>>;

    /// Token ids of `segments`. `start`: they begin the conversation, so what every text starts with (BOS) is put
    /// before them unless it is there.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    fn encode(&self, segments: &[Segment], start: bool) -> Result<Vec<u32>>;
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Text.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: &str, content: impl Into<String>) -> Message {
        Message { role: role.to_owned(), content: content.into() }
    }
}

/// A piece of rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Text.
    pub text: String,
    /// Whether control tokens may be spelled in it: true for the template's own words only.
    pub special: bool,
}

/// Whether the template is told to let the model think before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// As the template does by itself.
    #[default]
    Auto,
    /// Asked to think.
    On,
    /// Asked not to.
    Off,
}

impl Reasoning {
    /// The template's `enable_thinking`; `None` leaves it undefined.
    pub fn enable_thinking(self) -> Option<bool> {
        match self {
            Reasoning::Auto => None,
            Reasoning::On => Some(true),
            Reasoning::Off => Some(false),
        }
    }
}

//! What is asked for, whatever API's words it came in.

mod calls;
mod content;
mod footprint;
mod forms;
mod messages;
mod nested;
mod prompts;
mod settings;

use std::sync::Arc;

use engine::{Message, PromptEnd, Reasoning, TemplateVariables};
use tools::{ToolList, ToolOptions};

use crate::error::{ApiError, Result};

pub(crate) use calls::{
    functions, no_tools, not_too_many_tools, of_openai as tools_of_openai, read as read_tools,
};
pub(crate) use content::{content_of, not_taken};
pub use forms::ReplyForm;
pub(crate) use forms::any_object;
pub(crate) use messages::{messages, not_too_many, numbered, without_billing};
pub(crate) use nested::{NO_PLACE, check_format, check_parts};
pub(crate) use prompts::{chat_options, effort, thinking};
pub use settings::ReplySettings;
pub(crate) use settings::{
    ANTHROPIC_RANGES, LLAMA_RANGES, Length, OLLAMA_RANGES, OPENAI_RANGES, is_setting, stops,
};

/// A request for replies, read and checked as far as that can be done without the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// What is replied to.
    pub said: Said,
    /// How.
    pub settings: ReplySettings,
    /// What the replies may call, and how.
    pub tools: Option<(Arc<ToolList>, ToolOptions)>,
    /// Replies to each prompt; those after the first are drawn with other seeds.
    pub n: usize,
    /// How many of the likeliest tokens are told beside each one, if that is asked for.
    pub logprobs: Option<usize>,
    /// Whether the likeliest tokens are returned for the tokens of prompts, too.
    pub prompt_logprobs: bool,
}

impl Asked {
    /// One reply to this, that calls nothing.
    pub(crate) fn one(said: Said, settings: ReplySettings) -> Asked {
        Asked { said, settings, tools: None, n: 1, logprobs: None, prompt_logprobs: false }
    }

    /// Replies in all.
    pub fn replies(&self) -> usize {
        match &self.said {
            Said::Messages(..) => self.n,
            Said::Texts(texts) => self.n * texts.len(),
        }
    }
}

/// Checks that a vocabulary of `n` tokens has these. `field`: name of the field that they are in.
///
/// # Errors
/// The first id that is not in the vocabulary.
pub(crate) fn check_tokens<'i>(
    field: &str,
    ids: impl IntoIterator<Item = &'i u32>,
    n: usize,
) -> Result<()> {
    match ids.into_iter().find(|id| **id as usize >= n) {
        Some(id) => {
            let problem = format!("the model has no token {id}: its vocabulary has {n} tokens");
            Err(ApiError::field(field, problem))
        }
        None => Ok(()),
    }
}

/// What is replied to.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// A conversation, and how its prompt is built.
    Messages(Vec<Message>, ChatOptions),
    /// Texts that are continued as they are.
    Texts(Vec<PromptText>),
}

/// Options for building the prompt of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatOptions {
    /// Amount of thinking.
    pub reasoning: Reasoning,
    /// Position where the prompt ends.
    pub end: PromptEnd,
    /// Additional variables of the template.
    pub variables: TemplateVariables,
}

impl ChatOptions {
    /// Creates options with this amount of thinking.
    pub(crate) fn thinking(reasoning: Reasoning) -> ChatOptions {
        ChatOptions { reasoning, ..ChatOptions::default() }
    }

    /// Returns the options with a reply that continues the last message, if that is the assistant's and has no calls.
    pub(crate) fn going_on(self, messages: &[Message]) -> ChatOptions {
        let goes_on = messages
            .last()
            .is_some_and(|last| last.role == "assistant" && last.tool_calls.is_empty());
        let end = if goes_on { PromptEnd::LastMessage } else { self.end };
        ChatOptions { end, ..self }
    }
}

/// A text that is continued as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptText {
    /// A text.
    Plain(String),
    /// Its tokens.
    Tokens(Vec<u32>),
    /// A text with a hole.
    Infill(Box<Hole>),
}

/// A text with a hole, which is to be filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// What stands before it.
    pub before: String,
    /// What stands behind it.
    pub behind: String,
    /// What fills it begins with this.
    pub begun: String,
    /// Other texts that help, the nearest last.
    pub others: Vec<NamedText>,
    /// What is far from it may be left out where the context has no room.
    pub cuts: bool,
}

/// A text and the name of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedText {
    /// The name; empty: it has none.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Hole {
    /// Between two texts.
    pub(crate) fn between(before: String, behind: String) -> PromptText {
        PromptText::Infill(Box::new(Hole { before, behind, ..Hole::default() }))
    }
}

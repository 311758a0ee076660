//! The text side of the engine: what it needs of a tokenizer and of a chat template.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use tokenizer::{
    ChatTemplate, LostBytes, Message, RenderOptions, Span, Tokenizer, ToolDeclarations,
};

use crate::{Result, Spellings};

/// Tokens as text.
pub trait Vocabulary {
    /// Bytes of a token, maybe part of a character; empty for control tokens and unknown ids.
    fn bytes(&self, token: u32) -> Cow<'_, [u8]>;

    /// The token as the vocabulary spells it, control tokens included.
    fn spelling(&self, token: u32) -> Option<Cow<'_, str>>;

    /// Whether the token ends a reply.
    fn is_eog(&self, token: u32) -> bool;

    /// How many tokens there are: ids are less. None where nobody reads them.
    fn vocab_size(&self) -> usize;

    /// Where it keeps what all of them spell, if it does: for samplers that ask.
    fn spellings(&self) -> Option<&OnceLock<Arc<Spellings>>> {
        None
    }
}

/// Tokens that only mean themselves: the vocabulary of texts that nobody reads.
pub struct TokenIds;

impl Vocabulary for TokenIds {
    fn vocab_size(&self) -> usize {
        0
    }

    fn bytes(&self, _: u32) -> Cow<'_, [u8]> {
        Cow::Borrowed(b"x")
    }

    fn spelling(&self, _: u32) -> Option<Cow<'_, str>> {
        None
    }

    fn is_eog(&self, _: u32) -> bool {
        false
    }
}

/// Messages as tokens.
pub trait ChatFormat: Vocabulary {
    /// The whole conversation as the model's template writes it, ready for the assistant's next reply. `tools`: what it
    /// may call.
    ///
    /// # Errors
    /// If the template fails or refuses the messages, or `cancel` is set.
    fn render(
        &self,
        messages: &[Message],
        tools: Option<&ToolDeclarations>,
        reasoning: Reasoning,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>>;

    /// Token ids of `spans`. `start`: they begin the conversation, so what every text starts with (BOS) is put
    /// before them unless it is there.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    fn encode(&self, spans: &[Span], start: bool) -> Result<Vec<u32>>;

    /// Bytes of a text for which the vocabulary has no token, if there are any.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    fn lost_bytes(&self, _text: &str) -> Result<Option<LostBytes>> {
        Ok(None)
    }
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

impl Vocabulary for Tokenizer {
    fn vocab_size(&self) -> usize {
        self.vocab_size()
    }

    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        Cow::Owned(self.bytes(token))
    }

    fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
        self.token_text(token).map(Cow::Borrowed)
    }

    fn is_eog(&self, token: u32) -> bool {
        self.is_eog(token)
    }
}

/// The chat format of a model file: its tokenizer and its template.
pub struct ModelFormat {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    /// Once a sampler has asked.
    spellings: OnceLock<Arc<Spellings>>,
}

impl ModelFormat {
    /// Both come from the same file.
    pub fn new(tokenizer: Arc<Tokenizer>, template: ChatTemplate) -> ModelFormat {
        ModelFormat { tokenizer, template, spellings: OnceLock::new() }
    }

    /// Its template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }
}

impl Vocabulary for ModelFormat {
    fn vocab_size(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn spellings(&self) -> Option<&OnceLock<Arc<Spellings>>> {
        Some(&self.spellings)
    }

    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        Vocabulary::bytes(&*self.tokenizer, token)
    }

    fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
        self.tokenizer.spelling(token)
    }

    fn is_eog(&self, token: u32) -> bool {
        self.tokenizer.is_eog(token)
    }
}

impl ChatFormat for ModelFormat {
    fn render(
        &self,
        messages: &[Message],
        tools: Option<&ToolDeclarations>,
        reasoning: Reasoning,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        let enable_thinking = reasoning.enable_thinking();
        let options = RenderOptions { add_generation_prompt: true, enable_thinking, tools };
        Ok(self.template.render(messages, &options, cancel)?)
    }

    fn encode(&self, spans: &[Span], start: bool) -> Result<Vec<u32>> {
        let mut tokens = self.tokenizer.encode_spans(spans)?;
        let bos = self.tokenizer.bos().filter(|_| start && self.tokenizer.adds_bos());
        // Many templates write it themselves.
        if let Some(bos) = bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    fn lost_bytes(&self, text: &str) -> Result<Option<LostBytes>> {
        Ok(self.tokenizer.lost_bytes(text)?)
    }
}

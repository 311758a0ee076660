//! The text side of the engine: what it needs of a tokenizer and of a chat template.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use tokenizer::{
    ChatTemplate, Effort, FittedMessages, LostBytes, Message, RenderOptions, Span,
    TemplateVariables, Tokenizer, ToolDeclarations,
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
    /// The whole conversation as the model's template writes it.
    ///
    /// # Errors
    /// If the template fails or refuses the messages, or `cancel` is set.
    fn render(
        &self,
        messages: &[Message],
        options: &PromptOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>>;

    /// These messages as the template takes them, and what was changed for that, a line each.
    fn fit<'m>(&self, messages: &'m [Message]) -> FittedMessages<'m> {
        (Cow::Borrowed(messages), Vec::new())
    }

    /// Whether the template's text has this in it.
    fn mentions(&self, _: &str) -> bool {
        false
    }

    /// What of these options the template does not know, a line each.
    fn unknown_options(&self, _: &PromptOptions<'_>) -> Vec<String> {
        Vec::new()
    }

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

/// How the prompt of a conversation is made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptOptions<'a> {
    /// What the model may call.
    pub tools: Option<&'a ToolDeclarations>,
    /// How much it is to think.
    pub reasoning: Reasoning,
    /// Where the prompt ends.
    pub end: PromptEnd,
    /// Further variables of the template.
    pub variables: Option<&'a TemplateVariables>,
}

/// Where the prompt of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// Where the assistant's next message begins.
    #[default]
    NextMessage,
    /// Within the last message: the reply goes on with it.
    LastMessage,
    /// Behind the last message.
    Nothing,
}

/// Whether the template is told to let the model think before it answers, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// As the template does by itself.
    #[default]
    Auto,
    /// Asked to think.
    On,
    /// Asked not to.
    Off,
    /// Asked to think so much.
    Effort(Effort),
    /// Asked to think for about so many tokens.
    Budget(u32),
}

impl Reasoning {
    /// The template's `enable_thinking`; `None` leaves it undefined.
    pub fn enable_thinking(self) -> Option<bool> {
        match self {
            Reasoning::Auto => None,
            Reasoning::On | Reasoning::Effort(_) | Reasoning::Budget(_) => Some(true),
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

/// At most so many characters of a name.
fn brief(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

impl ModelFormat {
    /// The effort that the template is told for this one, by its own levels; the budget, where it takes one.
    fn known_effort(&self, reasoning: Reasoning) -> (Option<Effort>, Option<u32>) {
        let style = self.template.effort_style();
        let (effort, budget) = match reasoning {
            Reasoning::Effort(effort) => (effort, effort.budget()),
            Reasoning::Budget(tokens) => (Effort::of_budget(tokens), tokens),
            Reasoning::Auto | Reasoning::On | Reasoning::Off => return (None, None),
        };
        (style.nearest(effort), style.takes_budget().then_some(budget))
    }

    /// Adds what the template is told of how much to think; whether it is told to.
    fn tell_effort(&self, reasoning: Reasoning, told: &mut TemplateVariables) -> Option<bool> {
        let (effort, budget) = self.known_effort(reasoning);
        if let Some(effort) = effort {
            told.set_text("reasoning_effort", effort.name());
        }
        if let Some(budget) = budget {
            told.set_number("thinking_budget", budget);
        }
        match (reasoning, effort, budget) {
            // the least there is
            (Reasoning::Effort(Effort::Minimal), None, None) => Some(false),
            _ => reasoning.enable_thinking(),
        }
    }

    /// What the template does not know of how much to think.
    fn effort_note(&self, reasoning: Reasoning) -> Option<String> {
        let style = self.template.effort_style();
        let levels: Vec<&str> = style.levels().iter().map(|level| level.name()).collect();
        let known = levels.join(", ");
        let (effort, budget) = self.known_effort(reasoning);
        match (reasoning, effort, budget) {
            (Reasoning::Off, ..) if style.always_thinks() => {
                Some(format!("reasoning cannot be turned off for this model: its least, {}, is used", levels[0]))
            }
            (Reasoning::Auto | Reasoning::On | Reasoning::Off, ..) | (_, _, Some(_)) => None,
            (Reasoning::Effort(wanted), Some(used), None) if wanted == used => None,
            (Reasoning::Effort(wanted), Some(used), None) => Some(format!(
                "reasoning effort {}: the model's chat template knows {known}: {} is used",
                wanted.name(),
                used.name()
            )),
            (Reasoning::Budget(tokens), Some(used), None) => Some(format!(
                "reasoning budget of {tokens} tokens: the model's chat template knows {known}: {} is used",
                used.name()
            )),
            (Reasoning::Effort(Effort::Minimal), None, None) => {
                Some("reasoning effort minimal: the model's chat template knows no such level: thinking is off".to_owned())
            }
            (Reasoning::Effort(wanted), None, None) => {
                let name = wanted.name();
                Some(match known.is_empty() {
                    true => format!("reasoning effort {name}: the model's chat template has no levels of it: it has no effect"),
                    false => format!("reasoning effort {name}: the model's chat template knows {known}: its usual effort is used"),
                })
            }
            (Reasoning::Budget(tokens), None, None) => Some(format!(
                "reasoning budget of {tokens} tokens: the model's chat template knows none: max_tokens bounds thoughts and reply together"
            )),
        }
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
        options: &PromptOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        let PromptOptions { tools, reasoning, end, variables } = *options;
        let mut told = TemplateVariables::default();
        let enable_thinking = self.tell_effort(reasoning, &mut told);
        if let Some(variables) = variables {
            told.extend(variables);
        }
        let options = RenderOptions {
            add_generation_prompt: end == PromptEnd::NextMessage,
            continue_final_message: end == PromptEnd::LastMessage,
            enable_thinking,
            tools,
            variables: Some(&told),
        };
        Ok(self.template.render(messages, &options, cancel)?)
    }

    fn fit<'m>(&self, messages: &'m [Message]) -> FittedMessages<'m> {
        self.template.fitted(messages)
    }

    fn mentions(&self, text: &str) -> bool {
        self.template.mentions(text)
    }

    fn unknown_options(&self, options: &PromptOptions<'_>) -> Vec<String> {
        let names = options.variables.into_iter().flat_map(TemplateVariables::names);
        let unknown = names.filter(|name| !self.template.mentions(name)).map(|name| {
            format!("the model's chat template has no variable `{}`: it has no effect", brief(name))
        });
        self.effort_note(options.reasoning).into_iter().chain(unknown).collect()
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

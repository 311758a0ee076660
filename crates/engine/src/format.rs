//! The text side of the engine: what it needs of a tokenizer and of a chat template.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use tokenizer::{
    ChatTemplate, Effort, FittedMessages, LostBytes, Message, RenderOptions, Span,
    TemplateVariables, Tokenizer, ToolDeclarations,
};

use crate::text::template_thinks;
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
    /// Renders the whole conversation with the model's template.
    ///
    /// # Errors
    /// If the template fails or refuses the messages, or `cancel` is set.
    fn render(
        &self,
        messages: &[Message],
        options: &PromptOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>>;

    /// Returns these messages in a form that the template accepts, and one line for each change.
    fn fit<'m>(&self, messages: &'m [Message]) -> FittedMessages<'m> {
        (Cow::Borrowed(messages), Vec::new())
    }

    /// Returns whether the source of the template contains this text.
    fn mentions(&self, _: &str) -> bool {
        false
    }

    /// Returns one line for each of these options that the template does not know.
    fn unknown_options(&self, _: &PromptOptions<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Returns a note if thinking is turned on or off and the template has no switch for it. Turning thinking off in a model that does
    /// not think needs no switch.
    fn switch_note(&self, _: Reasoning) -> Option<&'static str> {
        None
    }

    /// Token ids of `spans`. `start`: they begin the conversation, so what every text starts with (BOS) is put
    /// before them unless it is there.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    fn encode(&self, spans: &[Span], start: bool) -> Result<Vec<u32>>;

    /// Returns the bytes of a text for which the vocabulary has no token, or `None` if there are no such bytes.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    fn lost_bytes(&self, _text: &str) -> Result<Option<LostBytes>> {
        Ok(None)
    }
}

/// Options for the prompt of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptOptions<'a> {
    /// Tools that the model may call.
    pub tools: Option<&'a ToolDeclarations>,
    /// Reasoning that is requested from the model.
    pub reasoning: Reasoning,
    /// Position at which the prompt ends.
    pub end: PromptEnd,
    /// Additional variables for the template.
    pub variables: Option<&'a TemplateVariables>,
}

/// Position at which the prompt of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// Beginning of the assistant's next message.
    #[default]
    NextMessage,
    /// Inside the last message: the reply continues that message.
    LastMessage,
    /// End of the last message.
    Nothing,
}

/// Setting for the template: whether the model thinks before it answers, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// As the template does by itself.
    #[default]
    Auto,
    /// Asked to think.
    On,
    /// Asked not to.
    Off,
    /// Asked to think with this effort.
    Effort(Effort),
    /// Asked to think for about this number of tokens.
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

/// Returns the first 60 characters of a name, without control characters.
fn brief(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

impl ModelFormat {
    /// Returns the template's effort level that is nearest to the requested one, and the token budget if the template accepts one.
    fn known_effort(&self, reasoning: Reasoning) -> (Option<Effort>, Option<u32>) {
        let (effort, budget) = match reasoning {
            Reasoning::Effort(effort) => (effort, effort.budget()),
            Reasoning::Budget(tokens) => (Effort::of_budget(tokens), tokens),
            Reasoning::Auto | Reasoning::On | Reasoning::Off => return (None, None),
        };
        let style = self.template.effort_style();
        (style.nearest(effort), style.takes_budget().then_some(budget))
    }

    /// Adds the template variables for effort and budget. Returns the value of `enable_thinking`.
    fn tell_effort(&self, reasoning: Reasoning, told: &mut TemplateVariables) -> Option<bool> {
        let (effort, budget) = self.known_effort(reasoning);
        if let Some(effort) = effort {
            told.set_text("reasoning_effort", effort.name());
        }
        if let Some(budget) = budget {
            told.set_number("thinking_budget", budget);
        }
        match (reasoning, effort, budget) {
            // minimal effort without levels or budget turns thinking off
            (Reasoning::Effort(Effort::Minimal), None, None) => Some(false),
            _ => reasoning.enable_thinking(),
        }
    }

    /// Returns whether turning thinking on or off changes prompts. If the template always asks for some effort, `off` is its least effort.
    fn has_switch(&self) -> bool {
        let style = self.template.effort_style();
        style.switches_thinking() || style.always_thinks()
    }

    /// Returns a note about the first of these options that has no effect: a switch, an effort, a budget or a variable that the template
    /// does not know.
    pub fn without_effect(
        &self,
        reasoning: Reasoning,
        variables: &TemplateVariables,
    ) -> Option<String> {
        let effort = self.effort_note(reasoning).filter(|note| note.has_no_effect);
        let effort = effort.map(|note| note.text);
        let switch = || self.switch_note(reasoning).map(str::to_owned);
        effort.or_else(switch).or_else(|| self.unknown_variables(variables).next())
    }

    /// Returns one line for each of these variables that the template does not name.
    fn unknown_variables(&self, variables: &TemplateVariables) -> impl Iterator<Item = String> {
        let unknown = variables.names().filter(|name| !self.template.mentions(name));
        unknown.map(|name| {
            format!("the model's chat template has no variable `{}`: it has no effect", brief(name))
        })
    }

    /// Returns a note if the template cannot follow the requested reasoning exactly.
    fn effort_note(&self, reasoning: Reasoning) -> Option<EffortNote> {
        if matches!(reasoning, Reasoning::Auto | Reasoning::On) {
            return None;
        }
        let style = self.template.effort_style();
        let levels: Vec<&str> = style.levels().iter().map(|level| level.name()).collect();
        let known = levels.join(", ");
        let (effort, budget) = self.known_effort(reasoning);
        let mut has_no_effect = false;
        let text = match (reasoning, effort, budget) {
            (Reasoning::Off, ..) if style.always_thinks() => {
                format!("reasoning cannot be turned off for this model: its least, {}, is used", levels[0])
            }
            (Reasoning::Auto | Reasoning::On | Reasoning::Off, ..) | (_, _, Some(_)) => return None,
            (Reasoning::Effort(wanted), Some(used), None) if wanted == used => return None,
            (Reasoning::Effort(wanted), Some(used), None) => format!(
                "reasoning effort {}: the model's chat template knows {known}: {} is used",
                wanted.name(),
                used.name()
            ),
            (Reasoning::Budget(tokens), Some(used), None) => format!(
                "reasoning budget of {tokens} tokens: the model's chat template knows {known}: {} is used",
                used.name()
            ),
            (Reasoning::Effort(Effort::Minimal), None, None) if self.has_switch() => {
                "reasoning effort minimal: the model's chat template knows no such level: thinking is off".to_owned()
            }
            (Reasoning::Effort(wanted), None, None) => {
                has_no_effect = true;
                let name = wanted.name();
                match known.is_empty() {
                    true => format!("reasoning effort {name}: the model's chat template has no levels of it: it has no effect"),
                    false => format!("reasoning effort {name}: the model's chat template knows {known}: its usual effort is used"),
                }
            }
            (Reasoning::Budget(tokens), None, None) => {
                has_no_effect = true;
                format!(
                    "reasoning budget of {tokens} tokens: the model's chat template knows none: max_tokens bounds thoughts and reply together"
                )
            }
        };
        Some(EffortNote { text, has_no_effect })
    }
}

/// Note about requested reasoning that a template cannot follow exactly.
struct EffortNote {
    text: String,
    /// Whether the request changes nothing.
    has_no_effect: bool,
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
        let variables = options.variables.into_iter();
        let unknown = variables.flat_map(|variables| self.unknown_variables(variables));
        let effort = self.effort_note(options.reasoning).map(|note| note.text);
        effort.into_iter().chain(unknown).collect()
    }

    fn switch_note(&self, reasoning: Reasoning) -> Option<&'static str> {
        match reasoning {
            Reasoning::On if !self.has_switch() => Some(
                "thinking cannot be turned on: the model's chat template has no switch for it: it has no effect",
            ),
            Reasoning::Off if !self.has_switch() && template_thinks(self.template.source()) => {
                Some(
                    "thinking cannot be turned off: the model's chat template has no switch for it: it has no effect",
                )
            }
            _ => None,
        }
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

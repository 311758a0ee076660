//! Chat templates: a conversation to a prompt, as the model's authors laid it out.
//!
//! A template is a program from a stranger: it is rewritten before it is compiled (`rewrite.rs`), so that every operator
//! (`operators.rs`) and everything it may call (`offered.rs`) is charged to a budget of bytes and work (`budget.rs`)
//! before it is done; the engine bounds its steps and depth. It sees nothing but the conversation, and its prompt says
//! which text is the template's own (`provenance.rs`).

mod arguments;
mod budget;
mod clock;
mod continued;
mod effort;
mod filters;
mod fit;
mod ids;
mod json;
mod message;
mod offered;
mod operators;
mod provenance;
mod rewrite;
mod tools;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use gguf::Metadata;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use crate::{Error, Result, Span, Tokenizer};
use arguments::Arguments;
use budget::Budget;
pub use budget::Usage;
pub use effort::{Effort, EffortStyle};
pub use fit::FittedMessages;
use fit::Orders;
pub use ids::short_id;
pub use json::python_json;
pub use message::{Message, TemplateVariables, ToolCall, ToolDeclarations};
pub use offered::Offered;
pub(crate) use provenance::Controls;
use provenance::Marks;
pub use tools::{ToolStyle, TrialCall};

const KEY: &str = "tokenizer.chat_template";

/// ChatML, for files without a template.
const FALLBACK: &str = "{%- for message in messages %}\
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}\
    {%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

/// Longest template, in bytes.
const MAX_SOURCE: usize = 1 << 20;
/// Longest prompt, in bytes: this, and so many times the conversation, which may have a million tokens.
const MAX_PROMPT: u64 = 8 << 20;
const PROMPT_PER_BYTE: u64 = 2;
/// Text that a rendering may produce on the way, in bytes: this, and so many times the conversation.
const BUDGET: u64 = 16 << 20;
const BUDGET_PER_BYTE: u64 = 32;
/// Some templates put the prompt together piece by piece, which copies it at every message: for each of them so many
/// times the conversation more, up to a bound.
const BUDGET_PER_MESSAGE: u64 = 4;
const MAX_COPIES: u64 = 1 << 30;
/// Work a rendering may do, in bytes read: this, and so many times the conversation.
const WORK: u64 = 256 << 20;
const WORK_PER_BYTE: u64 = 512;
/// Steps of the engine: this, and so many per message.
const STEPS: u64 = 1_000_000;
const STEPS_PER_MESSAGE: u64 = 2_000;
/// Frames of loops, macros and the like inside each other.
const MAX_FRAMES: usize = 100;

/// How a prompt is to end and what the template is told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RenderOptions<'a> {
    /// End the prompt where the model's answer begins.
    pub add_generation_prompt: bool,
    /// End the prompt inside the last message, after its text, so that the answer continues it.
    pub continue_final_message: bool,
    /// Whether the model should think first; `None` leaves it to the template. It is told in the words of every family:
    /// `enable_thinking`, `thinking`, `thinking_mode` and so on.
    pub enable_thinking: Option<bool>,
    /// The tools it may call.
    pub tools: Option<&'a ToolDeclarations>,
    /// Additional variables for the template. They take precedence over variables that follow from `enable_thinking`. Their text never
    /// becomes control tokens.
    pub variables: Option<&'a TemplateVariables>,
}

/// The chat template of a model.
pub struct ChatTemplate {
    source: String,
    controls: Arc<Controls>,
    bos: String,
    eos: String,
    is_fallback: bool,
    /// Seconds since 1970; `None` asks the clock.
    now: Option<i64>,
    /// What a rendering may take; `None`: it grows with the conversation.
    limits: Option<Usage>,
    /// What it does with tools, once somebody asked.
    style: OnceLock<ToolStyle>,
    /// Prompt with the trial call, rendered at first use.
    trial_call: OnceLock<String>,
    /// Support for reasoning effort, detected at first use.
    effort: OnceLock<EffortStyle>,
    /// Message orders that the template accepts, tested at first use.
    orders: Orders,
}

impl ChatTemplate {
    /// The template in the metadata, checked to compile, or ChatML if there is none.
    ///
    /// # Errors
    /// [`Error::Template`] names the line; [`Error::Gguf`] if the key holds no text.
    pub fn from_gguf(m: &Metadata, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        match m.str(KEY)? {
            Some(source) => ChatTemplate::new(source, tokenizer),
            None => {
                Ok(ChatTemplate { is_fallback: true, ..ChatTemplate::new(FALLBACK, tokenizer)? })
            }
        }
    }

    /// A template from its source, checked to compile.
    ///
    /// # Errors
    /// [`Error::Template`]: malformed, too long or too deep; the message names the line.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        let text = |token: Option<u32>| {
            token.and_then(|id| tokenizer.token_text(id)).unwrap_or("").to_owned()
        };
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        ChatTemplate::with(source, tokenizer.template_controls()?, bos, eos)
    }

    /// A template from its source without a vocabulary: no text of its prompts is special, begin and end token are
    /// empty.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn from_source(source: &str) -> Result<ChatTemplate> {
        ChatTemplate::with(source, Arc::new(Controls::none()?), String::new(), String::new())
    }

    fn with(
        source: &str,
        controls: Arc<Controls>,
        bos: String,
        eos: String,
    ) -> Result<ChatTemplate> {
        if source.len() > MAX_SOURCE {
            return Err(Error::template(
                None,
                format!("{} bytes long, at most {MAX_SOURCE} are allowed", source.len()),
            ));
        }
        let source = source.to_owned();
        let template = ChatTemplate {
            source,
            controls,
            bos,
            eos,
            is_fallback: false,
            now: None,
            limits: None,
            style: OnceLock::new(),
            trial_call: OnceLock::new(),
            effort: OnceLock::new(),
            orders: Orders::default(),
        };
        let rewritten = template.rewrite(&template.controls.marks(&[])?)?;
        Environment::new().template_from_str(&rewritten).map_err(|e| error(&e))?;
        Ok(template)
    }

    /// Its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the file has no template and ChatML stands in.
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// Fixes the time that the template sees, in seconds since 1970, so that prompts can be repeated.
    pub fn set_time(&mut self, seconds: i64) {
        self.now = Some(seconds);
    }

    /// Sets what the template writes where it asks for the begin token.
    pub fn set_bos(&mut self, text: impl Into<String>) {
        self.bos = text.into();
    }

    /// Sets what the template writes where it asks for the end token.
    pub fn set_eos(&mut self, text: impl Into<String>) {
        self.eos = text.into();
    }

    /// Fixes what a rendering may take, whatever the conversation.
    pub fn set_limits(&mut self, limits: Usage) {
        self.limits = Some(limits);
    }

    /// What a rendering of these messages may take.
    pub fn limits(&self, messages: &[Message]) -> Usage {
        let options = RenderOptions::default();
        self.limits_of(&Arguments::of_messages(messages, &options, self.style_for(messages)))
    }

    fn limits_of(&self, arguments: &Arguments<'_>) -> Usage {
        let bytes = arguments.bytes();
        let copies = bytes.saturating_mul(BUDGET_PER_MESSAGE * (arguments.messages as u64).max(1));
        self.limits.unwrap_or(Usage {
            made: BUDGET
                .saturating_add(bytes.saturating_mul(BUDGET_PER_BYTE))
                .saturating_add(copies.min(MAX_COPIES)),
            work: WORK
                .saturating_add(bytes.saturating_mul(WORK_PER_BYTE))
                .saturating_add(copies.min(MAX_COPIES)),
        })
    }

    /// The prompt for a conversation. Only spans of the template's own control tokens are special.
    ///
    /// `cancel` is set from elsewhere to stop: it is read before everything that takes long.
    ///
    /// # Errors
    /// [`Error::Template`]: the template refuses the conversation or fails on it, or exceeds its steps, work or memory.
    /// [`Error::Cancelled`].
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        match options.continue_final_message {
            true => self.continued(messages, options, cancel),
            false => self.measure(messages, options, cancel).0,
        }
    }

    /// As [`render`](Self::render), and what it took, also if it failed.
    pub fn measure(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> (Result<Vec<Span>>, Usage) {
        let style = self.style_for(messages);
        self.measure_arguments(Arguments::of_messages(messages, options, style), cancel)
    }

    /// What it does with tools.
    pub fn tool_style(&self) -> &ToolStyle {
        self.style.get_or_init(|| ToolStyle::of(self))
    }

    /// Returns the prompt of a conversation that ends with a [`TrialCall`], or an empty text if the template rejects it.
    pub fn trial_call_prompt(&self) -> &str {
        self.trial_call.get_or_init(|| TrialCall::prompt(self))
    }

    /// Returns the template's support for reasoning effort.
    pub fn effort_style(&self) -> &EffortStyle {
        self.effort.get_or_init(|| EffortStyle::of(self))
    }

    /// Returns whether the source contains this name. Variables that it does not name have no effect on prompts.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// The same, if these messages have to do with tools.
    fn style_for(&self, messages: &[Message]) -> Option<&ToolStyle> {
        let with = |m: &Message| !m.tool_calls.is_empty() || m.tool_call_id.is_some();
        messages.iter().any(with).then(|| self.tool_style())
    }

    /// Returns the text of a trial rendering, or `None` if it fails. Writes calls in the template's own style, unless another one is
    /// given.
    fn render_text(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
        style: Option<&ToolStyle>,
    ) -> Option<String> {
        let style = style.or_else(|| self.style_for(messages));
        let arguments = Arguments::of_messages(messages, options, style);
        let spans = self.measure_arguments(arguments, &Arc::default()).0.ok()?;
        Some(spans.iter().map(|span| span.text.as_str()).collect())
    }

    /// As [`render`](Self::render), from all that a template may be given: `messages` with whatever they hold, `tools`,
    /// `add_generation_prompt` and any switch, as maps and lists of JSON. What `transformers` refuses is refused. No text of them becomes control tokens.
    ///
    /// # Errors
    /// As [`render`](Self::render), and if there are no `messages`.
    pub fn render_json(
        &self,
        arguments: &Map<String, Json>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        self.measure_arguments(Arguments::of_json(arguments)?, cancel).0
    }

    fn measure_arguments(
        &self,
        arguments: Arguments<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> (Result<Vec<Span>>, Usage) {
        let budget = Budget::new(self.limits_of(&arguments), cancel.clone());
        let rendered = match self.run(arguments, &budget) {
            Err(_) if cancel.load(Ordering::Relaxed) => Err(Error::Cancelled),
            rendered => rendered,
        };
        (rendered, budget.usage())
    }

    fn run(&self, arguments: Arguments<'_>, budget: &Budget) -> Result<Vec<Span>> {
        let marks = self.controls.marks(&arguments.texts)?;
        let rewritten = self.rewrite(&marks)?;
        let mut env = Environment::empty();
        let messages = arguments.messages as u64;
        env.set_fuel(Some(STEPS + STEPS_PER_MESSAGE.saturating_mul(messages)));
        env.set_recursion_limit(MAX_FRAMES);
        operators::install(&mut env, budget, arguments.strict);
        offered::install(&mut env, budget, self.now.unwrap_or_else(now), arguments.strict);
        let template = env.template_from_str(&rewritten).map_err(|e| error(&e))?;
        let most = MAX_PROMPT.saturating_add(arguments.bytes().saturating_mul(PROMPT_PER_BYTE));
        let prompt = template.render(self.variables(arguments, &marks)).map_err(|e| error(&e))?;
        if prompt.len() as u64 > most {
            return Err(Error::template(None, format!("prompt of more than {most} bytes")));
        }
        Ok(marks.spans(&prompt))
    }

    fn rewrite(&self, marks: &Marks<'_>) -> Result<String> {
        rewrite::rewrite(&self.source, &|text| marks.mark(text))
    }

    /// What the template sees: the arguments, and what stands for those that are not given.
    fn variables(&self, arguments: Arguments<'_>, marks: &Marks<'_>) -> Value {
        let mut variables = arguments.variables;
        let given = |variables: &[(String, Value)], name| variables.iter().any(|(n, _)| n == name);
        for (name, value) in [
            ("bos_token", Value::from(marks.mark(&self.bos))),
            ("eos_token", Value::from(marks.mark(&self.eos))),
            ("add_generation_prompt", Value::from(false)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ] {
            if !given(&variables, name) {
                variables.push((name.to_owned(), value));
            }
        }
        Value::from_pairs(variables)
    }
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0))
}

/// An error of the engine in our words.
fn error(e: &minijinja::Error) -> Error {
    let message = match (e.kind(), e.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("used more than {STEPS} steps"),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Error::template(e.line(), message)
}

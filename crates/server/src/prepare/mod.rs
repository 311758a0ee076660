//! [`Preparation`]: from what is asked for to what a turn begins with: tokens, a sampler with the form it keeps to, and what
//! finds calls. The server does it for each request, a batch for each line.

mod infill;
mod kept;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::{
    CallIds, CallParser, ChatFormat as _, EarlyEnd, Message, ModelFormat, Notes, PromptEnd,
    PromptOptions, Sampler, SamplerOptions, ThoughtMarks, Toolbox,
};
use grammar::{CompileBudget, Form, FormChecker, FormSource, GrammarError, TokenTrie};
use tools::{ReplyForms, ToolList, ToolOptions, ToolUse, with_calls_written};

use crate::error::{ApiError, Result};
use crate::fields::FieldNotes;
use crate::request::{
    Asked, ChatOptions, PromptText, ReplyForm, ReplySettings, Said, check_tokens,
};
use kept::Kept;

/// Tokens that a reply of any length has room for.
const REPLY: usize = 256;
/// Forms and tools that stay ready, of each kind.
const KEPT: usize = 16;

/// Everything of a model that requests are made ready with.
pub struct Preparation {
    format: Arc<ModelFormat>,
    /// Tokens of the vocabulary.
    vocab_size: usize,
    /// Tokens that a conversation may have.
    capacity: usize,
    /// The vocabulary as forms need it, once one was asked for.
    trie: Mutex<Option<TokenTrie>>,
    /// What compiles doubtful forms first.
    form_checker: Option<Arc<FormChecker>>,
    /// By whose they are, too: how soon one is there tells nobody else that it was asked for.
    forms: Kept<(u64, FormSource), Form>,
    tools: Kept<(u64, Arc<ToolList>, ToolOptions), ToolUse>,
    /// Marks that the model puts around thoughts, computed for the first reply whose form may come after thoughts.
    thoughts: OnceLock<Option<ThoughtMarks>>,
}

/// A request that is ready.
pub struct Prepared {
    /// A reply for each prompt and each of its choices.
    pub replies: Vec<PreparedReply>,
    /// Most tokens of each.
    pub max_tokens: Option<usize>,
    /// Texts that end them.
    pub stop: Vec<String>,
    /// Tokens that also end them.
    pub stop_tokens: Vec<u32>,
    /// Number of likeliest tokens returned for each token of their prompts; `None` if prompts have no scores.
    pub prompt_logprobs: Option<usize>,
    /// They do not end by themselves.
    pub ignore_eog: bool,
    /// Where they end early.
    pub early: EarlyEnd,
    /// Thoughts are told apart.
    pub split_thoughts: bool,
    /// What whoever asked should know.
    pub notes: Notes,
}

/// What one reply begins with.
pub struct PreparedReply {
    /// The whole text before it.
    pub prompt: Vec<u32>,
    /// What chooses its tokens.
    pub sampler: Sampler,
    /// What finds the calls of tools in it, if it may call any.
    pub parser: Option<Box<dyn CallParser>>,
}

impl Preparation {
    /// For a model whose vocabulary has so many tokens, and conversations of at most `capacity`.
    pub fn new(format: Arc<ModelFormat>, vocab_size: usize, capacity: usize) -> Preparation {
        Preparation {
            format,
            vocab_size,
            capacity,
            trie: Mutex::default(),
            form_checker: None,
            forms: Kept::new(KEPT),
            tools: Kept::new(KEPT),
            thoughts: OnceLock::new(),
        }
    }

    /// With what compiles doubtful forms in a process of their own first.
    pub fn with_form_checker(self, form_checker: Option<Arc<FormChecker>>) -> Preparation {
        Preparation { form_checker, ..self }
    }

    /// Get a request ready. `scope`: whose it is; `cancel` ends the rendering of its template and the compilation of its forms.
    ///
    /// # Errors
    /// What cannot be had of this model: a prompt that does not fit, a form, tools, tokens.
    pub fn prepare(&self, asked: &Asked, scope: u64, cancel: &Arc<AtomicBool>) -> Result<Prepared> {
        let settings = &asked.settings;
        self.check(asked)?;
        let budget = CompileBudget::new(Arc::clone(cancel));
        let tools = self.tools(asked, scope, &budget)?;
        let must_end = settings.form.is_some() || tools.as_ref().is_some_and(|t| t.must());
        if must_end && settings.ignore_eog {
            let problem = "a reply that has a form ends when it has it";
            return Err(ApiError::field("ignore_eos", problem));
        }
        let form = match &settings.form {
            Some(asked) => Some(self.form(scope, asked, &budget)?),
            None => None,
        };
        let notes = tool_notes(tools.as_deref());
        if let (Some(asked), Some(form)) = (&settings.form, &form) {
            notes.join(&format!("{}: ", asked.field), form.notes());
        }
        let prompts = self.prompts(asked, tools.as_deref(), cancel, &notes)?;
        prompts.iter().try_for_each(|prompt| self.check_length(prompt))?;
        // after the length check, because reading long texts for it takes as long as encoding them
        self.note_lost_bytes(&asked.said, &notes)?;
        let holds = form.is_some() || tools.as_ref().is_some_and(|tools| tools.must());
        let marks = self.thought_marks(holds && matches!(asked.said, Said::Messages(..)));
        let all = prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, asked.n));
        let reply = |(index, prompt): (usize, Vec<u32>)| {
            let mut sampler = self.sampler(settings, index as u64)?;
            if let Some(n) = asked.logprobs {
                sampler = sampler.with_logprobs(n);
            }
            let forms = ReplyForms {
                form: form.as_deref(),
                tools: tools.as_deref(),
                asks: true,
                begun: begun_of(&asked.said),
            };
            let thoughts = |form| match marks {
                Some(marks) => marks.before(form, &*self.format, &prompt),
                None => form,
            };
            let sampler = forms.constrain(sampler, &thoughts).map_err(|error| match error {
                engine::Error::Constraint { problem } if !forms.begun.is_empty() => {
                    let problem =
                        format!("the last message does not begin a reply of the form: {problem}");
                    ApiError::field("messages", problem)
                }
                error => error.into(),
            })?;
            let ids = || CallIds::new(sampler.seed(), &prompt, messages_of(&asked.said));
            let parser = tools.as_ref().and_then(|tools| tools.parser(ids()));
            Ok(PreparedReply { prompt, sampler, parser })
        };
        Ok(Prepared {
            replies: all.enumerate().map(reply).collect::<Result<_>>()?,
            max_tokens: settings.max_tokens,
            stop: settings.stop.clone(),
            stop_tokens: settings.stop_tokens.clone(),
            prompt_logprobs: asked.logprobs.filter(|_| asked.prompt_logprobs),
            ignore_eog: settings.ignore_eog,
            early: settings.early,
            split_thoughts: matches!(asked.said, Said::Messages(..)),
            notes: notes.all(),
        })
    }

    /// Returns the number of tokens of a prompt, and the warnings that its reply would have.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub(crate) fn count(
        &self,
        asked: &Asked,
        scope: u64,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(usize, Notes)> {
        let tools = self.tools(asked, scope, &CompileBudget::new(Arc::clone(cancel)))?;
        let notes = tool_notes(tools.as_deref());
        let prompts = self.prompts(asked, tools.as_deref(), cancel, &notes)?;
        self.note_lost_bytes(&asked.said, &notes)?;
        Ok((prompts.first().map_or(0, Vec::len), notes.all()))
    }

    /// Returns the prompt of a conversation as text, as the model's template writes it, and the warnings that its reply would have.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub(crate) fn rendered(
        &self,
        asked: &Asked,
        scope: u64,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(String, Notes)> {
        let Said::Messages(messages, options) = &asked.said else { return Ok(Default::default()) };
        let tools = self.tools(asked, scope, &CompileBudget::new(Arc::clone(cancel)))?;
        let tools = tools.as_deref();
        let notes = tool_notes(tools);
        let (spans, changes) =
            self.conversation(messages, options, tools, |messages, tools, options| {
                engine::spans_of(&*self.format, messages, tools, options, cancel)
            })?;
        notes.extend(&changes);
        self.note_switch(options, &notes);
        self.note_lost_bytes(&asked.said, &notes)?;
        Ok((spans.iter().map(|span| &*span.text).collect(), notes.all()))
    }

    /// Adds a warning if the conversation turns thinking on or off and the template has no switch for that.
    fn note_switch(&self, options: &ChatOptions, notes: &FieldNotes) {
        if let Some(note) = self.format.switch_note(options.reasoning) {
            notes.add(|| note.to_owned());
        }
    }

    /// Refuses options of a prompt that have no effect with this model's template. A strict server calls it before anything is computed.
    ///
    /// # Errors
    /// If an option has no effect; the error names the first one.
    pub(crate) fn check_effects(&self, asked: &Asked) -> Result<()> {
        let Said::Messages(_, ChatOptions { reasoning, variables, .. }) = &asked.said else {
            return Ok(());
        };
        let told = self.format.without_effect(*reasoning, variables);
        told.map_or(Ok(()), |problem| Err(ApiError::invalid(problem)))
    }

    /// Calls `made` with a conversation whose calls are written in the model's own format.
    fn conversation<T>(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        tools: Option<&ToolUse>,
        made: impl FnOnce(&[Message], Option<&dyn Toolbox>, &PromptOptions<'_>) -> engine::Result<T>,
    ) -> Result<T> {
        let template = self.format.template();
        let written = |message: &Message| with_calls_written(message.clone(), template);
        let messages: Vec<Message> = messages.iter().map(written).collect();
        let ChatOptions { reasoning, end, variables } = options;
        let variables = Some(variables).filter(|variables| !variables.is_empty());
        let options = PromptOptions { tools: None, reasoning: *reasoning, end: *end, variables };
        let tools = tools.map(|tools| tools as &dyn Toolbox);
        Ok(made(&messages, tools, &options)?)
    }

    fn sampler(&self, settings: &ReplySettings, index: u64) -> Result<Sampler> {
        let seed = settings.sampler.seed.map(|seed| seed.wrapping_add(index));
        let options = SamplerOptions { seed, ..settings.sampler.clone() };
        Ok(Sampler::new(options)?.with_vocabulary(&*self.format))
    }

    /// Refuses a text that the context cannot hold.
    ///
    /// # Errors
    /// More tokens than its capacity.
    pub(crate) fn check_length(&self, tokens: &[u32]) -> Result<()> {
        self.check_length_of(tokens.len())
    }

    /// The same of a text that has this many tokens at least.
    ///
    /// # Errors
    /// As [`check_length`](Self::check_length).
    pub(crate) fn check_length_of(&self, wanted: usize) -> Result<()> {
        let capacity = self.capacity;
        match wanted > capacity {
            true => Err(engine::Error::ContextFull { wanted, capacity }.into()),
            false => Ok(()),
        }
    }

    /// What needs no model to be found wrong, but its vocabulary.
    fn check(&self, asked: &Asked) -> Result<()> {
        let n = self.vocab_size;
        let bias = &asked.settings.sampler.logit_bias;
        check_tokens("logit_bias", bias.iter().map(|(id, _)| id), n)?;
        check_tokens("stop_token_ids", &asked.settings.stop_tokens, n)?;
        let Said::Texts(texts) = &asked.said else { return Ok(()) };
        for text in texts {
            if let PromptText::Tokens(tokens) = text {
                check_tokens("prompt", tokens, n)?;
            }
        }
        Ok(())
    }

    fn prompts(
        &self,
        asked: &Asked,
        tools: Option<&ToolUse>,
        cancel: &Arc<AtomicBool>,
        notes: &FieldNotes,
    ) -> Result<Vec<Vec<u32>>> {
        match &asked.said {
            Said::Messages(messages, options) => {
                let (prompt, changes) =
                    self.conversation(messages, options, tools, |messages, tools, options| {
                        engine::prompt_of(&*self.format, messages, tools, options, cancel)
                    })?;
                notes.extend(&changes);
                self.note_switch(options, notes);
                Ok(vec![prompt])
            }
            Said::Texts(texts) => {
                let reply = asked.settings.max_tokens.unwrap_or(REPLY).min(self.capacity / 2);
                let room = self.capacity - reply;
                texts.iter().map(|text| self.text(text, room, notes)).collect()
            }
        }
    }

    /// Adds a warning about the first text with bytes that the vocabulary cannot encode.
    fn note_lost_bytes(&self, said: &Said, notes: &FieldNotes) -> Result<()> {
        let texts: Vec<&str> = match said {
            Said::Messages(messages, _) => messages.iter().map(|m| &*m.content).collect(),
            Said::Texts(texts) => texts
                .iter()
                .filter_map(|text| match text {
                    PromptText::Plain(text) => Some(&**text),
                    PromptText::Tokens(_) | PromptText::Infill(_) => None,
                })
                .collect(),
        };
        let lost = texts.into_iter().map(|text| self.format.tokenizer().lost_bytes(text));
        let lost = lost.filter_map(std::result::Result::transpose).next();
        if let Some(lost) = lost.transpose().map_err(engine::Error::from)? {
            notes.add(|| lost.to_string());
        }
        Ok(())
    }

    /// The tokens of a text, which may be cut to `room` of them where it says so.
    fn text(&self, text: &PromptText, room: usize, notes: &FieldNotes) -> Result<Vec<u32>> {
        let tokenizer = self.format.tokenizer();
        match text {
            PromptText::Tokens(tokens) => Ok(tokens.clone()),
            PromptText::Plain(text) => {
                Ok(tokenizer.encode_prompt(text).map_err(engine::Error::from)?)
            }
            PromptText::Infill(hole) => {
                let (tokens, note) = infill::tokens(tokenizer, hole, room)?;
                notes.extend(&note);
                Ok(tokens)
            }
        }
    }

    /// Returns the compiled tools of a request, if it has any.
    fn tools(
        &self,
        asked: &Asked,
        scope: u64,
        budget: &CompileBudget,
    ) -> Result<Option<Arc<ToolUse>>> {
        let Some((list, options)) = &asked.tools else { return Ok(None) };
        let tools = self.tools.get((scope, Arc::clone(list), options.clone()), || {
            let trie = self.trie().ok();
            let template = self.format.template();
            Ok(ToolUse::new(list, options.clone(), template, trie.as_ref(), budget)?)
        })?;
        Ok(Some(tools))
    }

    /// Returns the compiled form that a request asks for.
    ///
    /// # Errors
    /// A form that cannot be compiled, or that is strict and has parts that are not enforced; the error names the field.
    fn form(&self, scope: u64, asked: &ReplyForm, budget: &CompileBudget) -> Result<Arc<Form>> {
        let ReplyForm { source, field, strict } = asked;
        let make = || Ok(Form::compile(source, &self.trie()?, budget)?);
        let form = self.forms.get((scope, source.clone()), make);
        let form = form.map_err(|error| match error.status() {
            400 => error.at(field),
            _ => error,
        })?;
        match form.notes().kept().first().filter(|_| *strict) {
            Some(note) => {
                let on = "strict is on (`strict: true`, or the server's --strict)";
                Err(ApiError::field(field, format!("{note}, and {on}: remove the keyword")))
            }
            None => Ok(form),
        }
    }

    /// Returns the marks of thoughts if `holds`: if the reply is held to a form that may come after thoughts.
    fn thought_marks(&self, holds: bool) -> Option<&ThoughtMarks> {
        let marks = || self.thoughts.get_or_init(|| ThoughtMarks::of(&*self.format));
        if holds { marks().as_ref() } else { None }
    }

    /// The vocabulary as forms need it, made when it is first wanted.
    fn trie(&self) -> Result<TokenTrie> {
        let mut trie = self.trie.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trie) = &*trie {
            return Ok(trie.clone());
        }
        let mut made = TokenTrie::new(Arc::clone(self.format.tokenizer()))?;
        if let Some(checker) = &self.form_checker {
            made = made.with_checker(Arc::clone(checker));
        }
        Ok(trie.insert(made).clone())
    }
}

/// Returns the warnings about tools.
fn tool_notes(tools: Option<&ToolUse>) -> FieldNotes {
    let notes = FieldNotes::default();
    tools.into_iter().for_each(|tools| notes.join("", tools.notes()));
    notes
}

/// Returns the text of the last message if the reply continues that; otherwise an empty text.
fn begun_of(said: &Said) -> &str {
    match said {
        Said::Messages(messages, options) if options.end == PromptEnd::LastMessage => {
            messages.last().map_or("", |last| &last.content)
        }
        _ => "",
    }
}

/// Returns the messages before a reply.
fn messages_of(said: &Said) -> &[Message] {
    match said {
        Said::Messages(messages, _) => messages,
        Said::Texts(_) => &[],
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> ApiError {
        match error {
            GrammarError::Busy | GrammarError::Cancelled => ApiError::in_use(error.to_string()),
            error => ApiError::invalid(error.to_string()),
        }
    }
}

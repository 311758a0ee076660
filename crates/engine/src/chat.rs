//! [`Conversation`]: messages, the session that holds them, and the format between.
//!
//! Every turn renders the whole conversation through the model's template, takes over the tokens of what the cache
//! stands for already (`history.rs`) and leaves the rest to the session, which computes only what is new.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use program::CacheOptions;

use crate::history::History;
use crate::{
    CallIds, ChatFormat, Drafters, Error, Event, Generated, Message, PromptOptions, Reasoning,
    Request, Result, Sampler, Session, Span, Stats, StopReason, ToolCall, Toolbox, Turn,
};

/// What happens where a conversation outgrows its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullContext {
    /// It is an error, and nothing is forgotten.
    #[default]
    Stop,
    /// The oldest turns are forgotten, the system message and the last message never. Room is made for the reply too: as
    /// many tokens as it may have, at most a quarter of the context.
    DropOldest,
}

/// How a reply is made.
#[derive(Clone, Copy, Debug)]
pub struct ReplyOptions<'a> {
    /// Most tokens; `None`: until the model ends its reply or the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the reply.
    pub stop: &'a [String],
    /// Never choose an end-of-generation token.
    pub ignore_eog: bool,
    /// What the template is told about thinking.
    pub reasoning: Reasoning,
    /// What happens where there is no room.
    pub full: FullContext,
    /// Set from elsewhere to stop the reply: read while the conversation is rendered, and as in [`Request`].
    pub cancel: &'a Arc<AtomicBool>,
}

/// A chat with a model.
pub struct Conversation {
    session: Session,
    format: Arc<dyn ChatFormat + Send + Sync>,
    messages: Vec<Message>,
    history: History,
    drafters: Option<Drafters>,
    tools: Option<Arc<dyn Toolbox>>,
    /// Notes on the last prompt: changes that the template required and options it does not know.
    changes: Vec<String>,
    /// How often the last reply was generated again.
    attempt: u64,
}

impl Conversation {
    /// An empty conversation in `session`.
    pub fn new(session: Session, format: Arc<dyn ChatFormat + Send + Sync>) -> Conversation {
        Conversation {
            session,
            format,
            messages: Vec::new(),
            history: History::default(),
            drafters: None,
            tools: None,
            changes: Vec::new(),
            attempt: 0,
        }
    }

    /// The messages so far; replies as generated, thoughts included.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Between its messages and its tokens.
    pub fn format(&self) -> &dyn ChatFormat {
        &*self.format
    }

    /// Returns what was changed in the conversation for the model's template at the last reply, one line for each change.
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// The session underneath.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Have replies drafted by these, or by nobody.
    pub fn set_drafters(&mut self, drafters: Option<Drafters>) {
        self.drafters = drafters;
    }

    /// Let the model call these tools from the next reply on, or none.
    pub fn set_tools(&mut self, tools: Option<Arc<dyn Toolbox>>) {
        self.tools = tools;
    }

    /// The calls of the last reply that have no results yet, in order.
    pub fn open_calls(&self) -> &[ToolCall] {
        let answered = self.messages.iter().rev().take_while(|m| m.role == TOOL).count();
        let last = self.messages.len().checked_sub(answered + 1).map(|at| &self.messages[at]);
        last.map_or(&[], |last| last.tool_calls.get(answered..).unwrap_or(&[]))
    }

    /// Set or remove the system message. It takes effect with the next reply, for which everything after it is computed
    /// anew.
    pub fn set_system(&mut self, text: Option<String>) {
        if self.messages.first().is_some_and(|m| m.role == SYSTEM) {
            self.messages.remove(0);
        }
        if let Some(text) = text {
            self.messages.insert(0, Message::new(SYSTEM, text));
        }
    }

    /// Go on from these messages in place of what was said.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        self.history.clear();
        self.attempt = 0;
    }

    /// Removes the last user message and everything after it. Returns its text, or `None` if there is no user message.
    pub fn undo(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|m| m.role == USER)?;
        self.attempt = 0;
        self.messages.drain(at..).next().map(|message| message.content)
    }

    /// Give the conversation another cache. With the next reply all of it is computed anew.
    ///
    /// # Errors
    /// If the model does not support the cache; the old one stays then.
    pub fn set_cache(&mut self, cache: CacheOptions) -> Result<()> {
        let model = Arc::clone(self.session.model());
        self.session = Session::new(model, cache, self.session.chunk())?;
        Ok(())
    }

    /// Forget all messages but the system message, and the cache.
    ///
    /// # Errors
    /// If the model has lost the session.
    pub fn clear(&mut self) -> Result<()> {
        self.messages.retain(|m| m.role == SYSTEM);
        self.history.clear();
        self.attempt = 0;
        self.session.clear()
    }

    /// Say `text` and generate the reply.
    ///
    /// Calls that have no results get empty ones. A reply that was cancelled or cut counts as it stands. If there is none, because of an error or a cancel before
    /// its first token, the message is taken back.
    ///
    /// # Errors
    /// If the template refuses the conversation, it does not fit the context, or generation fails.
    pub fn say(
        &mut self,
        text: impl Into<String>,
        sampler: &mut Sampler,
        options: &ReplyOptions<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generated> {
        let mut messages: Vec<_> =
            self.open_calls().iter().map(|call| Message::result(call, "")).collect();
        messages.push(Message::new(USER, text.into()));
        self.add(messages, sampler, options, on_event)
    }

    /// Give what tools answered to the calls of the last reply, in order, and generate the next one.
    ///
    /// # Errors
    /// [`Error::Results`] unless there is one for each call, and as [`say`](Self::say); the calls are open then.
    pub fn give_results(
        &mut self,
        results: Vec<String>,
        sampler: &mut Sampler,
        options: &ReplyOptions<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generated> {
        let calls = self.open_calls();
        if calls.len() != results.len() || calls.is_empty() {
            return Err(Error::Results { calls: calls.len(), results: results.len() });
        }
        let results = calls.iter().zip(results).map(|(call, text)| Message::result(call, text));
        self.add(results.collect(), sampler, options, on_event)
    }

    /// Add messages and generate the reply; they are taken back if there is none.
    fn add(
        &mut self,
        messages: Vec<Message>,
        sampler: &mut Sampler,
        options: &ReplyOptions<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generated> {
        let before = (self.messages.clone(), self.history.clone());
        self.messages.extend(messages);
        self.attempt = 0;
        let reply = self.reply(sampler, options, on_event);
        if !matches!(&reply, Ok(reply) if reply.counts()) {
            (self.messages, self.history) = before;
        }
        reply
    }

    /// Drop the last reply and generate another one. If there is none, because of an error or a cancel before its
    /// first token, the old one stays.
    ///
    /// # Errors
    /// [`Error::NoReply`] if the last message is no reply, and as [`say`](Self::say).
    pub fn regenerate(
        &mut self,
        sampler: &mut Sampler,
        options: &ReplyOptions<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generated> {
        let before = (self.messages.clone(), self.history.clone());
        self.messages.pop_if(|m| m.role == ASSISTANT).ok_or(Error::NoReply)?;
        self.history.pop_reply();
        self.attempt += 1;
        let reply = self.reply(sampler, options, on_event);
        if !matches!(&reply, Ok(reply) if reply.counts()) {
            (self.messages, self.history) = before;
        }
        reply
    }

    /// Generate the assistant's next message and add it.
    fn reply(
        &mut self,
        sampler: &mut Sampler,
        options: &ReplyOptions<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generated> {
        let (mut dropped, capacity) = (0, self.session.capacity());
        let room = options.max_tokens.unwrap_or(usize::MAX).min(capacity / 4);
        let Encoded { prompt, new, tokens } = loop {
            let encoded = match self.encode(options) {
                Err(Error::Text(tokenizer::Error::Cancelled)) => return Ok(Generated::cancelled()),
                encoded => encoded?,
            };
            let fits = encoded.prompt.len().saturating_add(room) <= capacity;
            if fits || options.full == FullContext::Stop {
                break encoded;
            }
            match self.drop_oldest() {
                0 => break encoded,
                n => dropped += n,
            }
        };
        if dropped > 0 {
            on_event(Event::Dropped(dropped));
        }

        let ids = CallIds::new(sampler.seed().wrapping_add(self.attempt), &prompt, &self.messages);
        let parser = self.tools.as_ref().and_then(|tools| tools.parser(ids));
        sampler.set_attempt(self.attempt);
        let request = Request {
            prompt: &prompt,
            max_tokens: options.max_tokens,
            stop: options.stop,
            ignore_eog: options.ignore_eog,
            split_thoughts: true,
            cancel: options.cancel,
        };
        let mut turn = Turn::new(&mut self.session, sampler, &*self.format, &request);
        if let Some(drafters) = &mut self.drafters {
            turn = turn.drafted(drafters);
        }
        if let Some(parser) = parser {
            turn = turn.with_calls(parser);
        }
        let reply = turn.alone(on_event)?;
        if reply.counts() {
            self.history.push_prompt(new, tokens);
            let kept = reply.tokens[..reply.kept_tokens].to_vec();
            self.history.push_reply(&reply.raw[..reply.kept_bytes], kept);
            self.messages.push(reply.as_message());
        }
        Ok(reply)
    }
}

/// The whole conversation as tokens.
struct Encoded {
    /// All of them.
    prompt: Vec<u32>,
    /// What the history does not hold, as text and as tokens: the end of `prompt`.
    new: Vec<Span>,
    tokens: Vec<u32>,
}

impl Conversation {
    fn encode(&mut self, options: &ReplyOptions<'_>) -> Result<Encoded> {
        let prompt = PromptOptions { reasoning: options.reasoning, ..Default::default() };
        let (format, tools) = (&*self.format, self.tools.as_deref());
        let (rendered, notes) = spans_of(format, &self.messages, tools, &prompt, options.cancel)?;
        self.changes = notes;
        let (mut prompt, new) = self.history.take_over(rendered);
        let tokens = self.format.encode(&new, prompt.is_empty())?;
        prompt.extend_from_slice(&tokens);
        Ok(Encoded { prompt, new, tokens })
    }

    /// Forget the oldest message and what answers it; how many that are. The last message of the user stays.
    fn drop_oldest(&mut self) -> usize {
        let first = usize::from(self.messages.first().is_some_and(|m| m.role == SYSTEM));
        let later = self.messages.iter().enumerate().skip(first + 1);
        let Some((end, _)) = later.into_iter().find(|(_, m)| m.role == USER) else { return 0 };
        self.messages.drain(first..end);
        self.history.clear();
        end - first
    }
}

impl Generated {
    /// No reply, because somebody asked to stop before the prompt was there.
    fn cancelled() -> Generated {
        Generated {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            text: String::new(),
            thoughts: String::new(),
            calls: Vec::new(),
            cut_call: None,
            message: String::new(),
            raw: String::new(),
            kept_tokens: 0,
            kept_bytes: 0,
            stop: StopReason::Cancelled,
            stats: Stats::default(),
        }
    }

    /// It as a message of a conversation.
    pub fn as_message(&self) -> Message {
        let has_calls = !self.calls.is_empty();
        let kept = |text: &str| (has_calls && !text.is_empty()).then(|| text.to_owned());
        Message {
            tool_calls: self.calls.clone(),
            thoughts: kept(&self.thoughts),
            written: kept(&self.raw),
            ..Message::new(ASSISTANT, self.message.clone())
        }
    }

    /// Whether there is a reply at all, be it an empty one the model ended at once.
    pub fn counts(&self) -> bool {
        self.stop != StopReason::Cancelled || !self.tokens.is_empty()
    }
}

/// Returns the prompt tokens of a conversation whose reply may call `tools`, and one line for each change that the model's template
/// required and each option that it does not know. `options.tools` is used only if `tools` declares nothing to the template.
///
/// # Errors
/// A template that refuses the messages, or fails; that `cancel` is set.
pub fn prompt_of(
    format: &dyn ChatFormat,
    messages: &[Message],
    tools: Option<&dyn Toolbox>,
    options: &PromptOptions<'_>,
    cancel: &Arc<AtomicBool>,
) -> Result<(Vec<u32>, Vec<String>)> {
    let (spans, notes) = spans_of(format, messages, tools, options, cancel)?;
    Ok((format.encode(&spans, true)?, notes))
}

/// Returns the same prompt as [`prompt_of`] before it is encoded, with the same notes.
///
/// # Errors
/// As [`prompt_of`].
pub fn spans_of(
    format: &dyn ChatFormat,
    messages: &[Message],
    tools: Option<&dyn Toolbox>,
    options: &PromptOptions<'_>,
    cancel: &Arc<AtomicBool>,
) -> Result<(Vec<Span>, Vec<String>)> {
    let told = tools.and_then(Toolbox::instructions);
    let told = told.map(|instructions| with_instructions(messages, instructions));
    let messages = told.as_deref().unwrap_or(messages);
    let declared = tools.and_then(Toolbox::declared);
    let options = PromptOptions { tools: declared.or(options.tools), ..*options };
    let (messages, mut notes) = format.fit(messages);
    notes.extend(format.unknown_options(&options));
    Ok((format.render(&messages, &options, cancel)?, notes))
}

/// Messages of which the system message ends with instructions.
pub fn with_instructions(messages: &[Message], instructions: &str) -> Vec<Message> {
    let mut messages = messages.to_vec();
    match messages.first_mut().filter(|first| first.role == SYSTEM) {
        Some(system) => system.content = format!("{}\n\n{instructions}", system.content),
        None => messages.insert(0, Message::new(SYSTEM, instructions)),
    }
    messages
}

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

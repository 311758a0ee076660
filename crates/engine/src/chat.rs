//! [`Conversation`]: messages, the session that holds them, and the format between.
//!
//! Every turn renders the whole conversation through the model's template, takes over the tokens of what the cache
//! stands for already (`history.rs`) and leaves the rest to the session, which computes only what is new.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::history::History;
use crate::{
    ChatFormat, Error, Event, Generated, Message, Reasoning, Request, Result, Sampler, Session,
    Stats, StopReason, generate,
};

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
    /// Set from elsewhere to stop the reply: read while the conversation is rendered, and as in [`Request`].
    pub cancel: &'a Arc<AtomicBool>,
}

/// A chat with a model.
pub struct Conversation {
    session: Session,
    format: Arc<dyn ChatFormat>,
    messages: Vec<Message>,
    history: History,
    /// How often the last reply was generated again.
    attempt: u64,
}

impl Conversation {
    /// An empty conversation in `session`.
    pub fn new(session: Session, format: Arc<dyn ChatFormat>) -> Conversation {
        Conversation {
            session,
            format,
            messages: Vec::new(),
            history: History::default(),
            attempt: 0,
        }
    }

    /// The messages so far; replies as generated, thoughts included.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The session underneath.
    pub fn session(&self) -> &Session {
        &self.session
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
    /// A reply that was cancelled or cut counts as it stands. If there is none, because of an error or a cancel before
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
        self.messages.push(Message::new(USER, text.into()));
        self.attempt = 0;
        let reply = self.reply(sampler, options, on_event);
        if !matches!(&reply, Ok(reply) if reply.counts()) {
            self.messages.pop();
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
        let old = self.messages.pop_if(|m| m.role == ASSISTANT).ok_or(Error::NoReply)?;
        self.history.pop_reply();
        self.attempt += 1;
        let reply = self.reply(sampler, options, on_event);
        if !matches!(&reply, Ok(reply) if reply.counts()) {
            self.messages.push(old);
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
        let rendered = match self.format.render(&self.messages, options.reasoning, options.cancel) {
            Err(Error::Text(tokenizer::Error::Cancelled)) => return Ok(Generated::cancelled()),
            rendered => rendered?,
        };
        let (mut prompt, new) = self.history.take_over(rendered);
        let tokens = self.format.encode(&new, prompt.is_empty())?;
        prompt.extend_from_slice(&tokens);

        sampler.set_attempt(self.attempt);
        let request = Request {
            prompt: &prompt,
            max_tokens: options.max_tokens,
            stop: options.stop,
            ignore_eog: options.ignore_eog,
            split_thoughts: true,
            cancel: options.cancel,
        };
        let reply = generate(&mut self.session, sampler, &*self.format, &request, on_event)?;
        if reply.counts() {
            self.history.push_prompt(new, tokens);
            let kept = reply.tokens[..reply.kept_tokens].to_vec();
            self.history.push_reply(&reply.raw[..reply.kept_bytes], kept);
            self.messages.push(Message::new(ASSISTANT, reply.raw.clone()));
        }
        Ok(reply)
    }
}

impl Generated {
    /// No reply, because somebody asked to stop before the prompt was there.
    fn cancelled() -> Generated {
        Generated {
            tokens: Vec::new(),
            text: String::new(),
            raw: String::new(),
            kept_tokens: 0,
            kept_bytes: 0,
            stop: StopReason::Cancelled,
            stats: Stats::default(),
        }
    }

    /// Whether there is a reply at all, be it an empty one the model ended at once.
    fn counts(&self) -> bool {
        self.stop != StopReason::Cancelled || !self.tokens.is_empty()
    }
}

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";

//! [`Chat`]: a conversation with a model. Replies are iterators of events.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use engine::{
    Conversation, Event as EngineEvent, FullContext, Generated, ModelFormat, Reasoning,
    ReplyOptions, Sampler, SamplerOptions, Session,
};
use tokenizer::Message;

use crate::{Error, Result};

/// Capacity of the event queue. When the queue is full, the model waits for the reader.
const WAITING: usize = 64;

/// A conversation with a model.
///
/// ```
/// # fn main() -> rooflight::Result<()> {
/// # let bytes = conformance::demo_gguf();
/// let model = rooflight::Model::builder(bytes).context(256).load()?;
/// let mut chat = model.chat()?;
/// chat.set_max_tokens(Some(16));
/// for event in chat.send("Why is the sky blue?")? {
///     if let rooflight::Event::Text(text) = event? {
///         print!("{text}");
///     }
/// }
/// assert_eq!(chat.messages()[0].content, "Why is the sky blue?");
/// # Ok(())
/// # }
/// ```
pub struct Chat {
    /// `None` while a reply is generated, and after a reply that panicked.
    state: Option<State>,
    max_tokens: Option<usize>,
    stop: Vec<String>,
    reasoning: Reasoning,
}

struct State {
    conversation: Conversation,
    sampler: Sampler,
}

/// A part of a reply.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Progress of the prompt.
    Prompt {
        /// Number of tokens computed so far.
        done: usize,
        /// Number of tokens to compute: those that are not cached.
        total: usize,
    },
    /// Next piece of the model's reasoning.
    Thought(String),
    /// Next piece of the reply.
    Text(String),
    /// This number of the oldest messages was dropped to make room in the context.
    Dropped(usize),
    /// The whole reply. This is the last event.
    End(Box<Generated>),
}

impl Chat {
    pub(crate) fn new(
        session: Session,
        format: Arc<ModelFormat>,
        sampler: SamplerOptions,
    ) -> Result<Chat> {
        let conversation = Conversation::new(session, format);
        let state = State { conversation, sampler: Sampler::new(sampler)? };
        Ok(Chat {
            state: Some(state),
            max_tokens: None,
            stop: Vec::new(),
            reasoning: Reasoning::Auto,
        })
    }

    /// Sets or removes the system message.
    pub fn set_system(&mut self, text: Option<String>) {
        if let Some(state) = &mut self.state {
            state.conversation.set_system(text);
        }
    }

    /// Sets the sampler options for the following replies.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn set_sampler(&mut self, options: SamplerOptions) -> Result<()> {
        let sampler = Sampler::new(options)?;
        if let Some(state) = &mut self.state {
            state.sampler = sampler;
        }
        Ok(())
    }

    /// Sets the maximum number of tokens of a reply. By default, a reply ends where the model ends it or when the context is
    /// full.
    pub fn set_max_tokens(&mut self, tokens: Option<usize>) {
        self.max_tokens = tokens;
    }

    /// Sets the strings that end a reply.
    pub fn set_stop(&mut self, texts: Vec<String>) {
        self.stop = texts;
    }

    /// Sets how the chat template handles reasoning.
    pub fn set_reasoning(&mut self, reasoning: Reasoning) {
        self.reasoning = reasoning;
    }

    /// Returns the messages of the conversation so far. Empty after a reply that panicked.
    pub fn messages(&self) -> &[Message] {
        self.state.as_ref().map_or(&[], |state| state.conversation.messages())
    }

    /// Sends a message and returns the events of the reply as they arrive. Dropping the iterator stops the reply; the text
    /// generated so far stays in the conversation.
    ///
    /// # Errors
    /// If the system cannot start a thread, or an earlier reply panicked. If the reply itself fails, the iterator yields the
    /// error as its last item.
    pub fn send(&mut self, text: impl Into<String>) -> Result<Reply<'_>> {
        let lost = || Error::Options("an earlier reply of this chat has failed".into());
        let state = self.state.take().ok_or_else(lost)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let (sender, events) = sync_channel(WAITING);
        let (text, stop, is_cancelled) = (text.into(), self.stop.clone(), Arc::clone(&cancel));
        let (max_tokens, reasoning) = (self.max_tokens, self.reasoning);
        let (give, take) = sync_channel::<State>(1);
        let worker = Builder::new().name("rooflight-reply".into()).spawn(move || {
            // the state is sent right after the thread starts
            let Ok(mut state) = take.recv() else { return None };
            let options = ReplyOptions {
                max_tokens,
                stop: &stop,
                ignore_eog: false,
                reasoning,
                full: FullContext::DropOldest,
                cancel: &is_cancelled,
            };
            let State { conversation, sampler } = &mut state;
            let reply = conversation.say(text, sampler, &options, &mut |event| {
                forward(&sender, &event);
            });
            // sending fails if the reply was dropped
            let _ = sender.send(reply.map(|reply| Event::End(Box::new(reply))));
            Some(state)
        });
        match worker {
            Ok(worker) => {
                // cannot fail: the thread waits for the state
                let _ = give.send(state);
                let (events, worker) = (Some(events), Some(worker));
                Ok(Reply { chat: self, events, worker, cancel })
            }
            Err(why) => {
                self.state = Some(state);
                Err(Error::Options(format!("no thread for the reply: {why}")))
            }
        }
    }
}

/// Sends an event to the reader, if there is still one.
fn forward(sender: &SyncSender<engine::Result<Event>>, event: &EngineEvent<'_>) {
    let event = match event {
        EngineEvent::Prefill(prefill) => Event::Prompt { done: prefill.done, total: prefill.total },
        EngineEvent::Text(text) => Event::Text((*text).to_owned()),
        EngineEvent::Thought(text) => Event::Thought((*text).to_owned()),
        EngineEvent::Dropped(n) => Event::Dropped(*n),
        _ => return,
    };
    let _ = sender.send(Ok(event));
}

/// Iterator over the events of a reply. See [`Chat::send`].
pub struct Reply<'c> {
    chat: &'c mut Chat,
    events: Option<Receiver<engine::Result<Event>>>,
    worker: Option<JoinHandle<Option<State>>>,
    cancel: Arc<AtomicBool>,
}

impl Iterator for Reply<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        match self.events.as_ref()?.recv() {
            Ok(event) => Some(event.map_err(Error::from)),
            Err(_) => {
                self.finish();
                None
            }
        }
    }
}

impl Reply<'_> {
    /// Waits for the worker and returns the state to the chat.
    fn finish(&mut self) {
        // unblocks a worker that waits for the reader
        self.events = None;
        let Some(worker) = self.worker.take() else { return };
        match worker.join() {
            Ok(state) => self.chat.state = state,
            Err(panic) if !std::thread::panicking() => resume_unwind(panic),
            Err(_) => {}
        }
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.finish();
    }
}

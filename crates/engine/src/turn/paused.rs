//! [`PausedTurn`]: a turn that has released its session, to resume later in the same session or in another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Asks, Lent, Next, State, Turn, generated};
use crate::text::ReplyText;
use crate::{Drafters, Event, Generated, Result, Sampler, Session, Stats, Vocabulary};

/// A turn without a session. When it resumes, tokens that the new session lacks are computed again. The reply is the same as without
/// the pause, for models that compute a token alike in a prompt and in a reply.
pub struct PausedTurn<'a> {
    sampler: Lent<'a, Sampler>,
    drafters: Option<Lent<'a, Drafters>>,
    vocabulary: &'a dyn Vocabulary,
    prompt: Vec<u32>,
    max_tokens: usize,
    ignore_eog: bool,
    most_time: Option<Duration>,
    cancel: Arc<AtomicBool>,
    state: State,
    reply: ReplyText,
    tokens: Vec<u32>,
    stats: Stats,
    start: Instant,
    chosen: Duration,
}

impl<'a> Turn<'a> {
    /// Takes the session out of the turn.
    pub fn pause(self) -> (Lent<'a, Session>, PausedTurn<'a>) {
        let Turn { session, sampler, drafters, vocabulary, prompt, max_tokens, .. } = self;
        let Turn { ignore_eog, most_time, cancel, reply, tokens, stats, start, chosen, .. } = self;
        let state = match self.state {
            State::Ended(stop) => State::Ended(stop),
            // no token was chosen: it begins anew
            _ if tokens.is_empty() => State::New,
            _ => State::Resumed { text: [&prompt[..], &tokens].concat() },
        };
        let paused = PausedTurn {
            sampler,
            drafters,
            vocabulary,
            prompt,
            max_tokens,
            ignore_eog,
            most_time,
            cancel,
            state,
            reply,
            tokens,
            stats,
            start,
            chosen,
        };
        (session, paused)
    }

    /// Begin to compute again what the session lacks.
    pub(super) fn reread(&mut self, text: Vec<u32>, on_event: &mut dyn FnMut(Event<'_>)) {
        match self.session.begin(&text) {
            Ok(cached) => self.state = self.reread_from(text, cached),
            Err(error) => self.end(Err(error), on_event),
        }
    }

    /// Returns the state that follows: rereading as long as the session lacks tokens of `text`, then writing from its last token.
    fn reread_from(&mut self, mut text: Vec<u32>, start: usize) -> State {
        if self.session.len() + 1 < text.len() {
            return State::Rereading { text, start };
        }
        // the pause is no part of the time that the next token takes
        self.chosen = self.start.elapsed();
        State::Writing { rows: text.split_off(text.len() - 1) }
    }

    /// `n` more tokens of `text` were read again.
    pub(super) fn take_again(
        &mut self,
        text: Vec<u32>,
        start: usize,
        n: usize,
        out: program::Result<program::RowsOut>,
    ) -> Result<Next> {
        out?;
        let held = self.session.len();
        self.session.appended(&text[held..held + n]);
        self.session.keep(held + n)?;
        Ok(Next::Goes(self.reread_from(text, start)))
    }
}

impl<'a> PausedTurn<'a> {
    /// Resumes the turn in this session.
    pub fn resume(self, session: impl Into<Lent<'a, Session>>) -> Turn<'a> {
        let PausedTurn { sampler, drafters, vocabulary, prompt, max_tokens, ignore_eog, .. } = self;
        let PausedTurn { most_time, cancel, state, reply, tokens, stats, start, chosen, .. } = self;
        Turn {
            session: session.into(),
            sampler,
            drafters,
            vocabulary,
            prompt,
            max_tokens,
            ignore_eog,
            most_time,
            cancel,
            held: false,
            state,
            asks: Asks::default(),
            failed: false,
            reply,
            tokens,
            stats,
            start,
            chosen,
        }
    }

    /// The tokens that its session held, and those that it is to hold next: prompt and reply.
    pub fn text(&self) -> Vec<u32> {
        [&self.prompt[..], &self.tokens].concat()
    }

    /// Whether the turn was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Ends the turn as if it was cancelled, and returns its result.
    ///
    /// # Errors
    /// The error that ended the turn before it paused.
    pub fn finish(self) -> Result<Generated> {
        let stop = match self.state {
            State::Ended(stop) => stop,
            _ => Ok(crate::StopReason::Cancelled),
        };
        generated((self.sampler, self.drafters), (self.reply, self.tokens, self.stats), stop)
    }
}

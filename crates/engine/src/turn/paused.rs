//! [`PausedTurn`]: a turn that has released its session, to resume later in the same session or in another.

use std::sync::atomic::Ordering;

use super::{Lent, Next, Progress, State, Turn};
use crate::{Event, Generated, Result, Session};

/// A turn without a session. When it resumes, tokens that the new session lacks are computed again. The reply is the same as without
/// the pause, for models that compute a token alike in a prompt and in a reply.
pub struct PausedTurn<'a>(Progress<'a>);

impl<'a> Turn<'a> {
    /// Takes the session out of the turn.
    pub fn pause(self) -> (Lent<'a, Session>, PausedTurn<'a>) {
        let Turn { session, mut progress, .. } = self;
        progress.state = match progress.state {
            State::Ended(stop) => State::Ended(stop),
            // no token was chosen: the turn starts over
            _ if progress.tokens.is_empty() => State::New,
            _ => State::Resumed { text: progress.text() },
        };
        (session, PausedTurn(progress))
    }

    /// Begin to compute again what the session lacks.
    pub(super) fn reread(&mut self, text: Vec<u32>, on_event: &mut dyn FnMut(Event<'_>)) {
        match self.session.begin(&text) {
            Ok(cached) => self.progress.state = self.reread_from(text, cached),
            Err(error) => self.end(Err(error), on_event),
        }
    }

    /// Returns the state that follows: rereading as long as the session lacks tokens of `text`, then writing from its last token.
    fn reread_from(&mut self, mut text: Vec<u32>, start: usize) -> State {
        if self.session.len() + 1 < text.len() {
            return State::Rereading { text, start };
        }
        // the pause is no part of the time that the next token takes
        self.progress.chosen = self.progress.start.elapsed();
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
        Turn::with_progress(session.into(), self.0)
    }

    /// The tokens that its session held, and those that it is to hold next: prompt and reply.
    pub fn text(&self) -> Vec<u32> {
        self.0.text()
    }

    /// Whether the turn was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.load(Ordering::Relaxed)
    }

    /// Ends the turn as if it was cancelled, and returns its result.
    ///
    /// # Errors
    /// The error that ended the turn before it paused.
    pub fn finish(self) -> Result<Generated> {
        self.0.finish()
    }
}

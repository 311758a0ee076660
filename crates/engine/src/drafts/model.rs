//! Drafts by a smaller model, which knows the same tokens.
//!
//! Its rows are run by the scheduler, together with those of other turns' drafters on the same model.

use program::{Outputs, Prompt, RowsOut};

use super::guesses::{Guesses, Timed};
use super::{Draft, DraftStep, Drafter};
use crate::{Result, Sampler, Session};

/// Tokens that a model reads which was left behind: the last ones, as if the text began there.
const RECENT: usize = 256;

/// Drafts by a model of its own.
pub(super) struct ModelDrafter {
    session: Session,
    guesses: Guesses,
    /// Where in the text the session's tokens begin.
    from: usize,
    /// The rows that are being run.
    rows: Vec<u32>,
    /// Where the prompt that they are part of begins.
    prompt: Option<Prompt>,
    /// Tokens that the session keeps for good.
    kept: usize,
    timed: Timed,
}

impl ModelDrafter {
    pub(super) fn new(session: Session) -> ModelDrafter {
        ModelDrafter {
            session,
            guesses: Guesses::default(),
            from: 0,
            rows: Vec::new(),
            prompt: None,
            kept: 0,
            timed: Timed::default(),
        }
    }

    /// Tokens of the text up to the last one that the session has read.
    fn held(&self) -> usize {
        self.from + self.session.len()
    }

    /// Read on at most [`RECENT`] tokens before the `end`th: those before are left out.
    fn skip(&mut self, end: usize) {
        if end > self.held() + RECENT && self.session.clear().is_ok() {
            (self.from, self.kept, self.prompt) = (end - RECENT, 0, None);
        }
    }

    /// At most `most` rows of what is written, up to the `end`th token. After a row alone, which shows what a guess costs,
    /// and after the last one the next token's scores are wanted.
    fn read(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        let held = self.held();
        let most = self.timed.most(most.min(self.session.chunk()));
        let end = end.min(held + most);
        if held >= end {
            return None;
        }
        self.rows.clear();
        self.rows.extend_from_slice(&self.guesses.text()[held..end]);
        let wanted = end == self.guesses.written() || self.rows.len() == 1;
        let outputs = if wanted { Outputs::LAST } else { Outputs::NONE };
        let prompt = self.prompt.filter(|prompt| end <= prompt.start + prompt.len);
        self.step(outputs, prompt)
    }

    fn step(&self, outputs: Outputs, prompt: Option<Prompt>) -> Option<DraftStep<'_>> {
        if self.session.len() + self.rows.len() > self.session.capacity() {
            return None;
        }
        let sequence = self.session.sequence(&self.rows, outputs, prompt);
        Some(DraftStep { session: &self.session, sequence, inputs: Vec::new() })
    }

    /// Keep these tokens of the session for good, drop those behind.
    fn keep(&mut self, len: usize) {
        if (self.session.len(), self.kept) != (len, len) {
            let _ = self.session.keep(len).or_else(|_| self.session.clear());
            self.kept = self.session.len();
        }
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &'static str {
        "draft"
    }

    fn has_model(&self) -> bool {
        true
    }

    fn begin(&mut self, tokens: &[u32], sampler: &Sampler) {
        self.guesses.begin(tokens, sampler);
        self.from = 0;
        let begun = self.session.begin(tokens);
        let start = begun.as_ref().map_or(0, |start| *start);
        self.prompt = Some(Prompt { start, len: tokens.len() - start });
        self.kept = start;
        if begun.is_err() {
            // a text that is longer than its cache is known by its end; without a session its rows fail
            let _ = self.session.clear();
            self.skip(tokens.len());
        }
    }

    fn push(&mut self, tokens: &[u32]) {
        let held = self.held();
        let before = self.guesses.written();
        let right = self.guesses.push(tokens);
        // the last token's scores are wanted
        let same = held.min(before + right).min(self.guesses.written().saturating_sub(1));
        self.keep(same.saturating_sub(self.from));
    }

    fn behind(&self) -> usize {
        self.guesses.written().saturating_sub(self.held()).min(RECENT)
    }

    fn left_behind(&mut self, cached: usize) {
        self.skip(cached);
    }

    fn reads(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        // the last token's scores are wanted, when something is
        self.read(end.min(self.guesses.written().saturating_sub(1)), most)
    }

    fn wants(&mut self, max: usize) -> Option<DraftStep<'_>> {
        if !self.guesses.may_guess(max) {
            return None;
        }
        match self.guesses.guessed().last() {
            None => {
                self.skip(self.guesses.written());
                self.read(self.guesses.written(), usize::MAX)
            }
            Some(&last) => {
                self.rows.clear();
                self.rows.push(last);
                self.step(Outputs::LAST, None)
            }
        }
    }

    fn take(&mut self, out: Result<RowsOut, program::Error>) -> Result<()> {
        let logits = out?.into_logits();
        self.session.appended(&self.rows);
        self.timed.ran(self.rows.len());
        if self.held() <= self.guesses.written() {
            self.keep(self.session.len());
        }
        if logits.rows().len() > 0 && self.held() >= self.guesses.text().len() {
            self.guesses.choose(&logits.into());
        }
        Ok(())
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        Ok(self.guesses.draft(max))
    }
}

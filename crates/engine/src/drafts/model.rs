//! Drafts by a smaller model, which knows the same tokens.
//!
//! Its rows are run by the scheduler, together with those of other turns' drafters on the same model. It chooses with the
//! target's own sampler, seed and positions: where both models agree on what is likely, the same random number falls on the
//! same token.

use program::{Outputs, Prompt, RowsOut};

use super::{Draft, DraftStep, Drafter};
use crate::{Result, Sampler, Session};

/// Rows that are run one by one, as guesses are, before it is known what they cost.
const TIMED: usize = 3;

/// Drafts by a model of its own.
pub(super) struct ModelDrafter {
    session: Session,
    /// The target's, once a reply has begun.
    sampler: Option<Sampler>,
    /// What is written, and behind it what is guessed.
    text: Vec<u32>,
    /// Tokens of `text` that are written.
    written: usize,
    /// The rows that are being run.
    rows: Vec<u32>,
    /// Where the prompt that they are part of begins.
    prompt: Option<Prompt>,
    /// Tokens of it that the session keeps for good.
    kept: usize,
    /// Passes over one row so far, up to [`TIMED`].
    timed: usize,
}

impl ModelDrafter {
    pub(super) fn new(session: Session) -> ModelDrafter {
        let (text, rows) = (Vec::new(), Vec::new());
        ModelDrafter {
            session,
            sampler: None,
            text,
            written: 0,
            rows,
            prompt: None,
            kept: 0,
            timed: 0,
        }
    }

    /// At most `most` rows of what is written, up to the `end`th token; after the last one the next token's scores are wanted.
    fn read(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        let held = self.session.len();
        let most = if self.timed < TIMED { 1 } else { most.min(self.session.chunk()) };
        let end = end.min(held + most);
        if held >= end {
            return None;
        }
        self.rows.clear();
        self.rows.extend_from_slice(&self.text[held..end]);
        let outputs = if end == self.written { Outputs::LAST } else { Outputs::NONE };
        let prompt = self.prompt.filter(|prompt| end <= prompt.start + prompt.len);
        self.step(outputs, prompt)
    }

    fn step(&self, outputs: Outputs, prompt: Option<Prompt>) -> Option<DraftStep<'_>> {
        if self.session.len() + self.rows.len() > self.session.capacity() {
            return None;
        }
        let sequence = self.session.sequence(&self.rows, outputs, prompt);
        Some(DraftStep { session: &self.session, sequence })
    }

    fn drafted(&self) -> &[u32] {
        &self.text[self.written..]
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
        self.sampler = Some(sampler.clone());
        self.text.clear();
        self.text.extend_from_slice(tokens);
        self.written = tokens.len();
        let begun = self.session.begin(tokens);
        if begun.is_err() {
            // without a session nothing is drafted: its rows fail
            let _ = self.session.clear();
        }
        let start = begun.unwrap_or(0);
        self.kept = start;
        self.prompt = Some(Prompt { start, len: tokens.len() - start });
    }

    fn push(&mut self, tokens: &[u32]) {
        let held = self.session.len();
        let right = self.drafted().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.text.truncate(self.written);
        self.text.extend_from_slice(tokens);
        // the last token's scores are wanted
        let same = held.min(self.written + right).min(self.text.len().saturating_sub(1));
        self.written = self.text.len();
        if (held, self.kept) != (same, same) {
            let _ = self.session.keep(same).or_else(|_| self.session.clear());
            self.kept = self.session.len();
        }
    }

    fn behind(&self) -> usize {
        self.written.saturating_sub(self.session.len())
    }

    fn reads(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        // the last token's scores are wanted, when something is
        self.read(end.min(self.written.saturating_sub(1)), most)
    }

    fn wants(&mut self, max: usize) -> Option<DraftStep<'_>> {
        if self.drafted().len() >= max || self.written == 0 {
            return None;
        }
        match self.drafted().last() {
            None => self.read(self.written, usize::MAX),
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
        if self.rows.len() == 1 {
            self.timed = TIMED.min(self.timed + 1);
        }
        if logits.rows().len() == 0 {
            return Ok(());
        }
        if let Some(sampler) = &mut self.sampler {
            let token = sampler.sample_scores(&logits.into(), &self.text)?;
            self.text.push(token);
        }
        Ok(())
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        let n = self.drafted().len().min(max);
        Ok(Draft { tokens: self.drafted()[..n].to_vec(), class: 0 })
    }
}

//! Drafts by a smaller model, which knows the same tokens.
//!
//! Its rows are run by the scheduler, together with those of other turns' drafters on the same model. It chooses with the
//! target's own sampler, seed and positions: where both models agree on what is likely, the same random number falls on the
//! same token.

use program::{Outputs, Prompt, RowsOut};

use super::{Draft, DraftStep, Drafter};
use crate::{Result, Sampler, Session};

/// Drafts by a model of its own.
pub(super) struct ModelDrafter {
    session: Session,
    /// The target's, once a reply has begun.
    sampler: Option<Sampler>,
    text: Vec<u32>,
    drafted: Vec<u32>,
    /// The rows that are being run.
    rows: Vec<u32>,
    /// Where the prompt that they are part of begins.
    prompt: Option<Prompt>,
}

impl ModelDrafter {
    pub(super) fn new(session: Session) -> ModelDrafter {
        let (text, drafted, rows) = (Vec::new(), Vec::new(), Vec::new());
        ModelDrafter { session, sampler: None, text, drafted, rows, prompt: None }
    }

    /// Forget what the text does not go on with.
    fn settle(&mut self) {
        self.drafted.clear();
        let held = self.session.tokens();
        let same = held.iter().zip(&self.text).take_while(|(a, b)| a == b).count();
        // the last token's scores are wanted
        let same = same.min(self.text.len().saturating_sub(1));
        if self.session.keep(same).is_err() && self.session.clear().is_err() {
            // without a session nothing is drafted: its rows fail
            self.rows.clear();
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
        self.sampler = Some(sampler.clone());
        self.text.clear();
        self.text.extend_from_slice(tokens);
        self.settle();
        let start = self.session.len();
        self.prompt = Some(Prompt { start, len: tokens.len() - start });
    }

    fn push(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
        self.settle();
    }

    fn wants(&mut self, max: usize) -> Option<DraftStep<'_>> {
        let (held, len) = (self.session.len(), self.text.len());
        if self.drafted.len() >= max || held + 1 > self.session.capacity() || len == 0 {
            return None;
        }
        self.rows.clear();
        let (outputs, prompt) = match self.drafted.last() {
            Some(&last) => {
                self.rows.push(last);
                (Outputs::LAST, None)
            }
            None => {
                let end = len.min(held + self.session.chunk());
                self.rows.extend_from_slice(&self.text[held..end]);
                let outputs = if end == len { Outputs::LAST } else { Outputs::NONE };
                (outputs, self.prompt.filter(|prompt| end <= prompt.start + prompt.len))
            }
        };
        if held + self.rows.len() > self.session.capacity() {
            return None;
        }
        let sequence = self.session.sequence(&self.rows, outputs, prompt);
        Some(DraftStep { session: &self.session, sequence })
    }

    fn take(&mut self, out: Result<RowsOut, program::Error>) -> Result<()> {
        let logits = out?.into_logits();
        self.session.appended(&self.rows);
        if logits.rows().len() == 0 {
            return Ok(());
        }
        let before: Vec<u32> = self.text.iter().chain(&self.drafted).copied().collect();
        if let Some(sampler) = &mut self.sampler {
            self.drafted.push(sampler.sample_scores(&logits.into(), &before)?);
        }
        Ok(())
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        let n = self.drafted.len().min(max);
        Ok(Draft { tokens: self.drafted[..n].to_vec(), class: 0 })
    }
}

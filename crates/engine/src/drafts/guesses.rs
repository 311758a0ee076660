//! A text and what a model guesses of how it goes on, token by token.

use super::Draft;
use crate::alike::alike;
use crate::{Sampler, Scores};

/// What is written, and behind it what is guessed. It chooses with the target's own sampler, seed and positions: where both
/// models agree on what is likely, the same random number falls on the same token.
#[derive(Default)]
pub(super) struct Guesses {
    /// The target's, once a reply has begun.
    sampler: Option<Sampler>,
    text: Vec<u32>,
    /// Tokens of `text` that are written.
    written: usize,
    /// No token could be chosen after the last one: what is guessed ends there.
    stuck: bool,
}

impl Guesses {
    /// The text is `tokens`; `sampler` chooses what follows.
    pub(super) fn begin(&mut self, tokens: &[u32], sampler: &Sampler) {
        self.sampler = Some(sampler.clone());
        self.text.clear();
        self.text.extend_from_slice(tokens);
        (self.written, self.stuck) = (tokens.len(), false);
    }

    /// The text goes on with these. Returns how many of the guesses were these.
    pub(super) fn push(&mut self, tokens: &[u32]) -> usize {
        let right = alike(self.guessed(), tokens);
        self.text.truncate(self.written);
        self.text.extend_from_slice(tokens);
        (self.written, self.stuck) = (self.text.len(), false);
        right
    }

    /// The text and the guesses.
    pub(super) fn text(&self) -> &[u32] {
        &self.text
    }

    /// Tokens of the text.
    pub(super) fn written(&self) -> usize {
        self.written
    }

    /// What is guessed.
    pub(super) fn guessed(&self) -> &[u32] {
        &self.text[self.written..]
    }

    /// Whether more may be guessed, up to `max` tokens in all.
    pub(super) fn may_guess(&self, max: usize) -> bool {
        self.guessed().len() < max && self.written > 0 && !self.stuck
    }

    /// Guess the next token by its scores.
    pub(super) fn choose(&mut self, scores: &Scores) {
        let Some(sampler) = &mut self.sampler else { return };
        match sampler.sample_scores(scores, &self.text) {
            Ok(token) => self.text.push(token),
            // a form that a wrong guess has ended: what was guessed before may be right
            Err(_) => self.stuck = true,
        }
    }

    /// The first `max` guesses.
    pub(super) fn draft(&self, max: usize) -> Draft {
        let n = self.guessed().len().min(max);
        Draft { tokens: self.guessed()[..n].to_vec(), class: 0 }
    }
}

/// Passes over one row so far: the first ones are run one by one, as guesses are, before it is known what they cost.
#[derive(Clone, Copy, Default)]
pub(super) struct Timed(usize);

impl Timed {
    /// So many.
    const ENOUGH: usize = 3;

    /// The most rows of a pass that could have `most`.
    pub(super) fn most(self, most: usize) -> usize {
        if self.0 < Timed::ENOUGH { most.min(1) } else { most }
    }

    /// A pass over so many rows was run.
    pub(super) fn ran(&mut self, rows: usize) {
        self.0 += usize::from(rows == 1 && self.0 < Timed::ENOUGH);
    }
}

//! [`PromptScores`]: how likely the model found the tokens of a prompt, each after those before it.

use super::Seen;
use crate::{Error, Logprob, PromptLogprobs, Result, TokenLogprobs};

/// Most rows of logits that one step yields: each has a number for every token of the vocabulary.
const ROWS: usize = 64;

/// Collects the scores of a prompt while it is read.
pub(super) struct PromptScores {
    /// Likeliest tokens beside each one.
    top: usize,
    /// Of the tokens after the first.
    rest: Vec<TokenLogprobs>,
}

impl PromptScores {
    /// With this number of the likeliest tokens beside each one.
    pub(super) fn new(top: usize) -> PromptScores {
        PromptScores { top, rest: Vec::new() }
    }

    /// The prompt is read from its beginning.
    pub(super) fn begin(&mut self) {
        self.rest.clear();
    }

    /// Rows of the prompt to run in the next step, of `left` that are left.
    pub(super) fn rows(left: usize) -> usize {
        left.min(ROWS)
    }

    /// Takes what the rows from position `first` on yielded, each of the token after it.
    ///
    /// # Errors
    /// A logit that is no number.
    pub(super) fn take(&mut self, prompt: &[u32], first: usize, seen: &[Seen]) -> Result<()> {
        for (seen, position) in seen.iter().zip(first + 1..) {
            let (Seen::All(scores), Some(&next)) = (seen, prompt.get(position)) else { continue };
            if next as usize >= scores.len() {
                return Err(program::Error::Token { token: next, vocab_size: scores.len() }.into());
            }
            let row = TokenLogprobs::new(scores, next, self.top);
            let Logprob { token, logprob } = row.chosen;
            if logprob.is_nan() {
                return Err(Error::NonFinite { position, token: token as usize, value: logprob });
            }
            self.rest.push(row);
        }
        Ok(())
    }

    /// The scores of a prompt that was read.
    pub(super) fn finish(self, prompt: &[u32]) -> Option<PromptLogprobs> {
        let first = *prompt.first()?;
        (self.rest.len() + 1 == prompt.len()).then_some(PromptLogprobs { first, rest: self.rest })
    }
}

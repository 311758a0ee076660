//! [`PromptScores`]: log probabilities of a prompt's tokens, each given the tokens before it.

use super::Seen;
use crate::{Error, Logprob, PromptLogprobs, Result, TokenLogprobs};

/// Maximum number of rows of logits that one step yields: each row has one logit for every token of the vocabulary.
const ROWS: usize = 64;

/// Collects the scores of a prompt while it is read.
pub(super) struct PromptScores {
    /// Number of likeliest tokens reported with each token.
    top: usize,
    /// Log probabilities of the tokens after the first.
    rest: Vec<TokenLogprobs>,
}

impl PromptScores {
    /// Creates an empty collection that reports the `top` likeliest tokens with each token.
    pub(super) fn new(top: usize) -> PromptScores {
        PromptScores { top, rest: Vec::new() }
    }

    /// Discards the scores, because the prompt is read from its beginning.
    pub(super) fn begin(&mut self) {
        self.rest.clear();
    }

    /// Returns the number of prompt rows to run in the next step, of `left` remaining rows.
    pub(super) fn rows(left: usize) -> usize {
        left.min(ROWS)
    }

    /// Adds the results of the rows from position `first` on. Each row scores the token that follows it.
    ///
    /// # Errors
    /// A token outside the vocabulary, or a log probability that is NaN.
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

    /// Returns the scores, or `None` if the prompt was not read to its end.
    pub(super) fn finish(self, prompt: &[u32]) -> Option<PromptLogprobs> {
        let first = *prompt.first()?;
        (self.rest.len() + 1 == prompt.len()).then_some(PromptLogprobs { first, rest: self.rest })
    }
}

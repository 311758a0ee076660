//! [`RowAsk`]: choices that go by few tokens although logits are changed or a form leaves tokens out.
//!
//! Who changes the logits of `n` known tokens chooses among these and the `k + n` likeliest of the row, where `k` would be
//! enough unchanged. So a device need not tell the row, and everything is changed where it always was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use program::{Among, AmongRow, Candidate};

use super::stages::Situation;
use super::{Chance, Sampler, Shown, choices::BANNED, is_greedy, spells};
use crate::{Error, Result, TokenMask};

/// How long a mask is waited for: whole rows are read without one.
const MASK_WAIT: Duration = Duration::from_millis(1);

/// Biased tokens that are asked for one by one; where there are more, a whole row is read sooner.
const MOST_TOLD: usize = 1024;

/// What is asked of a row for one choice.
pub(crate) struct RowAsk {
    /// So many of its likeliest tokens.
    pub(crate) k: usize,
    /// The tokens whose logits something changes, by id.
    told: Vec<u32>,
    /// Of these, those that must not be drawn.
    banned: BTreeSet<u32>,
    /// The tokens that the form allows.
    mask: Option<Arc<TokenMask>>,
}

impl RowAsk {
    /// How a step is asked for it.
    pub(crate) fn among(&self) -> Among<'_> {
        Among { allowed: self.mask.as_ref().map(|mask| mask.words()), told: &self.told }
    }

    /// What is chosen from, by id.
    fn list(&self, row: AmongRow) -> Vec<Candidate> {
        let mut list = row.candidates;
        list.retain(|one| self.told.binary_search(&one.token).is_err());
        let may = |token: u32| self.mask.as_ref().is_none_or(|mask| mask.has(token));
        for (&token, logit) in self.told.iter().zip(row.told).filter(|(token, _)| may(**token)) {
            let logit = if self.banned.contains(&token) { BANNED } else { logit };
            list.push(Candidate { token, logit });
        }
        list.sort_unstable_by_key(|one| one.token);
        list
    }
}

impl Sampler {
    /// What a choice after `before` and `next` goes by, where no token of `banned` may be drawn: `None` if it may go by any of
    /// the `vocab_size` logits, or the form's mask takes its time. `sure`: the form may not begin before that choice.
    pub(crate) fn ask(
        &mut self,
        (before, next): (&[u32], &[u32]),
        banned: &[u32],
        vocab_size: usize,
        sure: bool,
    ) -> Option<RowAsk> {
        let begins = self.opened.is_some() || self.waits();
        let biased =
            self.options.logit_bias.iter().all(|(token, _)| (*token as usize) < vocab_size);
        let many = self.options.logit_bias.len() > MOST_TOLD;
        if self.logprobs.is_some() || spells(&self.options) || !biased || many || (begins && !sure)
        {
            return None;
        }
        let all = [before, next].concat();
        let chance = Chance { seed: self.seed, attempt: self.attempt, position: all.len() as u64 };
        let (breakers, spellings) = (self.breakers.as_ref()?, self.spellings.as_ref()?);
        let options = &self.options;
        let at = Situation { options, before: &all, chance, breakers, spellings };
        let mut told: BTreeSet<u32> = banned.iter().copied().collect();
        let mut wanted = None;
        for stage in &self.chain {
            match stage.letter() {
                // one more tells whether any is left out
                'k' => wanted = usize::try_from(options.top_k).ok()?.checked_add(1),
                't' if is_greedy(options) => wanted = Some(1),
                _ => {
                    told.extend(stage.changes(&at)?);
                    continue;
                }
            }
            break;
        }
        told.retain(|token| (*token as usize) < vocab_size);
        let k = wanted?.checked_add(told.len())?;
        let mask = match self.form() {
            Some(form) => {
                let own = form.own(before, next);
                Some(form.ahead.mask_within(&own, MASK_WAIT)?)
            }
            None => None,
        };
        let banned = banned.iter().copied().collect();
        Some(RowAsk { k, told: told.into_iter().collect(), banned, mask })
    }

    /// Choose the token after `before` from what was asked: the same as from the whole row.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub(crate) fn sample_asked(
        &mut self,
        row: AmongRow,
        asked: &RowAsk,
        before: &[u32],
    ) -> Result<u32> {
        let list = asked.list(row);
        if list.is_empty() && asked.mask.is_none() {
            return Err(Error::Logits { expected: 1, found: 0 });
        }
        self.choose(Shown::Asked(&list), before)
    }
}

//! [`Asks`]: what a step is asked for the choices after its rows, where few tokens are enough for them.

use program::{Among, AmongRow};

use crate::sampler::RowAsk;
use crate::{Result, Sampler, Scores, Session, Vocabulary};

/// What is asked, and what is never chosen.
#[derive(Default)]
pub(super) struct Asks {
    /// One for each row; none where whole rows are wanted, or nothing but the likeliest.
    each: Vec<RowAsk>,
    /// Tokens that are never chosen, once the vocabulary's size is known.
    banned: Option<Vec<u32>>,
}

impl Asks {
    /// Nothing.
    pub(super) fn clear(&mut self) {
        self.each.clear();
    }

    /// What the choices after each of `rows` go by, which follow `before`; of a prompt, which is in `before`, after its last.
    /// `ignore_eog` bans what `vocabulary` says ends a reply.
    pub(super) fn prepare(
        &mut self,
        (session, sampler): (&Session, &mut Sampler),
        ignore_eog: Option<&dyn Vocabulary>,
        (before, rows): (&[u32], &[u32]),
    ) {
        self.clear();
        let most = session.most_candidates();
        if most == 0 || (ignore_eog.is_none() && sampler.needs().is_some()) {
            return;
        }
        let vocab_size = session.n_logits();
        let banned = ignore_eog.map_or(&[][..], |vocabulary| self.banned(vocabulary, vocab_size));
        let n = rows.len().max(1);
        let mut each = Vec::with_capacity(n);
        for i in 0..n {
            let next = &rows[..rows.len().min(i + 1)];
            let asked = sampler.ask((before, next), banned, vocab_size, n == 1);
            match asked.filter(|asked| asked.k <= most) {
                Some(asked) => each.push(asked),
                None => return,
            }
        }
        self.each = each;
    }

    fn banned(&mut self, vocabulary: &dyn Vocabulary, vocab_size: usize) -> &[u32] {
        let all = 0..vocab_size as u32;
        self.banned.get_or_insert_with(|| all.filter(|token| vocabulary.is_eog(*token)).collect())
    }

    /// Make tokens so unlikely that no sampler draws them.
    pub(super) fn ban(&mut self, scores: &mut Scores, vocabulary: &dyn Vocabulary) {
        let n = scores.len();
        scores.ban(self.banned(vocabulary, n));
    }

    /// How many of the likeliest tokens `n` rows are asked for, if they are.
    pub(super) fn candidates(&self, n: usize) -> Option<usize> {
        let most = self.each.iter().map(|asked| asked.k).max();
        most.filter(|_| self.each.len() == n)
    }

    /// What they are looked for among: nothing, or one for each of `n` rows.
    pub(super) fn among(&self, n: usize) -> Vec<Among<'_>> {
        self.candidates(n).map_or_else(Vec::new, |_| self.each.iter().map(RowAsk::among).collect())
    }

    /// Choose the token after row `i` by what it yielded.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub(super) fn choose(
        &self,
        sampler: &mut Sampler,
        (i, row): (usize, AmongRow),
        before: &[u32],
    ) -> Result<u32> {
        sampler.sample_asked(row, &self.each[i], before)
    }
}

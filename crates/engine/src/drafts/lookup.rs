//! Prompt lookup: what followed the last few tokens when they stood here before.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Draft, Drafter};
use crate::{Result, Sampler};

/// The longest and the shortest ends of the text that are looked for.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// Looks for the text's last tokens earlier in it, the longest run first, the latest place first.
#[derive(Debug)]
pub(super) struct Lookup {
    text: Vec<u32>,
    /// Most tokens whose runs are noted; of a longer text the latest, this many or half of them.
    most: usize,
    /// The first of these.
    first: usize,
    /// For each length: where the run that a key stands for ended last, the end of the text left out: nothing follows that.
    ends: [HashMap<[u32; LONGEST], u32, RandomState>; LONGEST - SHORTEST + 1],
    /// Tokens whose runs are in `ends`.
    indexed: usize,
}

impl Lookup {
    /// In the last tokens of a text, so many at most.
    pub(super) fn within(most: usize) -> Lookup {
        Lookup { text: Vec::new(), most, first: 0, ends: Default::default(), indexed: 0 }
    }

    /// The `n` tokens before `end`, filled up.
    fn key(&self, n: usize, end: usize) -> [u32; LONGEST] {
        let mut key = [u32::MAX; LONGEST];
        key[..n].copy_from_slice(&self.text[end - n..end]);
        key
    }

    /// Note the runs that something follows by now.
    fn index(&mut self) {
        if self.text.len() - self.first > self.most {
            // memory goes with the runs
            self.ends = Default::default();
            self.first = self.text.len() - self.most / 2;
            self.indexed = self.first;
        }
        for end in self.indexed.max(self.first + SHORTEST)..self.text.len() {
            for n in SHORTEST..=LONGEST.min(end - self.first) {
                let key = self.key(n, end);
                self.ends[n - SHORTEST].insert(key, end as u32);
            }
        }
        self.indexed = self.indexed.max(self.text.len());
    }
}

impl Drafter for Lookup {
    fn name(&self) -> &'static str {
        "lookup"
    }

    fn begin(&mut self, tokens: &[u32], _: &Sampler) {
        if !tokens.starts_with(&self.text) {
            *self = Lookup::within(self.most);
        }
        let held = self.text.len();
        self.push(&tokens[held..]);
    }

    fn push(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
        self.index();
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        let len = self.text.len();
        for n in (SHORTEST..=LONGEST.min(len)).rev() {
            let Some(&end) = self.ends[n - SHORTEST].get(&self.key(n, len)) else { continue };
            let end = end as usize;
            // what repeats with a short period goes on beyond the end of the text
            let period = len - end;
            let token = |i: usize| self.text[end + i % period];
            return Ok(Draft { tokens: (0..max).map(token).collect(), class: n });
        }
        Ok(Draft::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplerOptions;

    fn sampler() -> Sampler {
        Sampler::new(SamplerOptions::greedy()).expect("they are in range")
    }

    fn drafted(text: &[u32], max: usize) -> Draft {
        let mut lookup = Lookup::within(usize::MAX);
        lookup.begin(text, &sampler());
        lookup.draft(max).unwrap_or_default()
    }

    #[test]
    fn the_longest_and_latest_run_counts() {
        assert_eq!(drafted(&[1, 2, 3], 4), Draft::default());
        assert_eq!(drafted(&[], 4), Draft::default());
        assert_eq!(drafted(&[1, 2, 3, 9, 1, 2], 2), Draft { tokens: vec![3, 9], class: 2 });
        assert_eq!(drafted(&[1, 2, 3, 1, 2, 4, 1, 2], 1).tokens, [4], "the latest");
        let text = [5, 1, 2, 3, 9, 1, 2, 4, 5, 1, 2];
        assert_eq!(drafted(&text, 1), Draft { tokens: vec![3], class: 3 }, "the longest");
    }

    #[test]
    fn a_period_goes_on() {
        assert_eq!(drafted(&[7, 8, 7, 8, 7, 8], 5).tokens, [7, 8, 7, 8, 7]);
        assert_eq!(drafted(&[4, 4, 4, 4], 3).tokens, [4, 4, 4]);
    }

    /// Token by token or at once, and after an edit: the same drafts.
    #[test]
    fn how_a_text_came_does_not_matter() {
        let text: Vec<u32> = (0..300u32).map(|i| (i * i) % 7).collect();
        let mut grown = Lookup::within(usize::MAX);
        for (i, &token) in text.iter().enumerate() {
            assert_eq!(grown.draft(5).unwrap_or_default(), drafted(&text[..i], 5), "{i}");
            grown.push(&[token]);
        }
        let edited: Vec<u32> = text[..200].iter().copied().chain([1, 2, 3]).collect();
        grown.begin(&edited, &sampler());
        assert_eq!(grown.draft(5).unwrap_or_default(), drafted(&edited, 5));
    }

    /// Of a long text the latest tokens are known, as if it had begun there, and no more are held.
    #[test]
    fn of_a_long_text_the_end_is_known() {
        let text: Vec<u32> = (0..500u32).map(|i| (i * i) % 11 + i / 100).collect();
        let (mut lookup, most) = (Lookup::within(64), 64);
        for (i, &token) in text.iter().enumerate() {
            lookup.push(&[token]);
            let held = i + 1 - lookup.first;
            assert!(held <= most && held >= (i + 1).min(most / 2), "{i}: {held}");
            assert!(lookup.ends.iter().all(|ends| ends.len() <= most), "{i}");
            let found = lookup.draft(5).unwrap_or_default();
            assert_eq!(found, drafted(&text[lookup.first..=i], 5), "{i}");
        }
        let mut at_once = Lookup::within(64);
        at_once.begin(&text, &sampler());
        assert_eq!(at_once.text.len() - at_once.first, 32);
        assert_eq!(at_once.draft(5).unwrap_or_default(), drafted(&text[468..], 5));
    }
}

//! What came of the questions of one kind about texts of one length: right answers, tokens, times.

use std::time::Duration;

use super::{Language, RecallKind, RecallPlace, Tally};
use crate::Stats;

/// Results of one kind and length.
#[derive(Clone, Debug, PartialEq)]
pub struct RecallCell {
    /// What was asked.
    pub kind: RecallKind,
    /// Tokens that a prompt and the longest reply may have together.
    pub length: usize,
    /// All questions together.
    pub score: Tally,
    depths: [Tally; 10],
    languages: [Tally; 2],
    prompt_tokens: u64,
    whole: Mean,
    steps: Mean,
}

/// Times that are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mean {
    n: u32,
    sum: Duration,
}

impl Mean {
    fn add(&mut self, time: Duration) {
        self.n += 1;
        self.sum += time;
    }

    fn value(self) -> Option<Duration> {
        (self.n > 0).then(|| self.sum / self.n)
    }
}

impl RecallCell {
    /// Nothing asked yet.
    pub fn new(kind: RecallKind, length: usize) -> RecallCell {
        RecallCell {
            kind,
            length,
            score: Tally::default(),
            depths: Default::default(),
            languages: Default::default(),
            prompt_tokens: 0,
            whole: Mean::default(),
            steps: Mean::default(),
        }
    }

    /// Count a reply to the question at `place`.
    pub fn add(&mut self, place: &RecallPlace, right: bool, stats: &Stats) {
        self.score.add(right);
        if let Some(tenth) = place.tenth {
            self.depths[tenth.min(9)].add(right);
        }
        self.languages[usize::from(place.language == Language::Chinese)].add(right);
        self.prompt_tokens += stats.prompt_tokens as u64;
        // Of a text that was in the cache, the first token says nothing about the length.
        let whole = stats.cached_tokens * 20 <= stats.prompt_tokens;
        if let Some(time) = stats.first_token.filter(|_| whole) {
            self.whole.add(time);
        }
        stats.steps.iter().for_each(|time| self.steps.add(*time));
    }

    /// By tenth of the depth, if the kind has depths.
    pub fn depths(&self) -> Option<&[Tally; 10]> {
        self.kind.has_depth().then_some(&self.depths)
    }

    /// Questions about texts of one language.
    pub fn language(&self, language: Language) -> Tally {
        self.languages[usize::from(language == Language::Chinese)]
    }

    /// Mean tokens of the prompts; 0 if there were none.
    pub fn prompt_tokens(&self) -> f64 {
        if self.score.asked == 0 {
            0.0
        } else {
            self.prompt_tokens as f64 / self.score.asked as f64
        }
    }

    /// Mean time to the first token, of prompts of which at most a twentieth was in the cache.
    pub fn first_token(&self) -> Option<Duration> {
        self.whole.value()
    }

    /// How many prompts those are.
    pub fn whole_prompts(&self) -> u32 {
        self.whole.n
    }

    /// Mean time of a step.
    pub fn step(&self) -> Option<Duration> {
        self.steps.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_prompts_that_were_computed() {
        let mut cell = RecallCell::new(RecallKind::PassKey, 1024);
        assert_eq!((cell.prompt_tokens(), cell.first_token(), cell.step()), (0.0, None, None));
        let places = RecallKind::PassKey.places(2);
        let ms = Duration::from_millis;
        let stats = |cached_tokens, first, steps: &[u64]| Stats {
            prompt_tokens: 1000,
            cached_tokens,
            first_token: Some(ms(first)),
            steps: steps.iter().copied().map(ms).collect(),
            ..Stats::default()
        };
        cell.add(&places[0], true, &stats(50, 100, &[2, 4]));
        cell.add(&places[1], false, &stats(900, 10, &[6]));
        assert_eq!((cell.score, cell.prompt_tokens()), (Tally { asked: 2, right: 1 }, 1000.0));
        assert_eq!((cell.first_token(), cell.whole_prompts()), (Some(ms(100)), 1));
        assert_eq!(cell.step(), Some(ms(4)));
        let depths = cell.depths().unwrap();
        assert_eq!((depths[0].right, depths[9].asked, depths[9].right), (1, 1, 0));
        let chinese = cell.language(Language::Chinese);
        assert_eq!((cell.language(Language::English).right, chinese.asked), (1, 1));
        assert!(RecallCell::new(RecallKind::Sum, 1).depths().is_none());
    }
}

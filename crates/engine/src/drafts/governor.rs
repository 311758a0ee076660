//! How far to draft: as far as the tokens it brings are worth the rows it takes.
//!
//! A draft of `k` tokens that each hold with probability `a` yields `E(k) = (1 - a^(k+1)) / (1 - a)` tokens in a pass that
//! costs `v(k + 1)` plain ones. The `k` with the greatest `E(k) / v(k + 1)` is taken if it gains enough, else none. `a` is
//! learned by class, from the tokens that were reached. What stopped paying is tried again now and then, shortly.
//! Source: arXiv:2211.17192, section 3.

use super::{CLASSES, MOST_DRAFTED, May, PassCosts};

/// The least gain worth a draft.
const WORTH: f64 = 1.05;
/// How much of what was learned a new draft leaves.
const KEEP: f64 = 0.9;
/// How much a new measurement of what guessing costs counts.
const COST_WEIGHT: f64 = 0.1;
/// What is believed of a class before anything is known: so many kept of so many.
const PRIOR: (f64, f64) = (1.2, 2.0);
/// Tokens after which a class that does not pay is tried again; doubled each time it fails, up to [`LONGEST`].
const AGAIN: usize = 64;
/// See [`AGAIN`].
const LONGEST: usize = 1024;
/// Most tokens of a draft of a model before it is known what they cost.
const FIRST: usize = 2;
/// Measurements of what guessing costs of which the least counts: the first ones pay for what is cold.
const COLD: usize = 3;

/// What is known of one drafter.
#[derive(Clone, Debug)]
pub(super) struct Governor {
    classes: [Class; CLASSES],
    /// Seconds that a guessed token takes by itself; `None` of a drafter without a model, or before it is known.
    seconds: Option<f64>,
    /// Seconds that a row takes that is read among others.
    row: Option<f64>,
    /// How often a guess was measured, up to [`COLD`].
    measured: usize,
    /// Tokens since it was measured.
    since: usize,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    /// Tokens kept and tokens tried, of late.
    kept: f64,
    tried: f64,
    /// Tokens since its last draft.
    since: usize,
    /// After how many it is tried again.
    again: usize,
}

impl Default for Governor {
    fn default() -> Self {
        let class = Class { kept: PRIOR.0, tried: PRIOR.1, since: 0, again: AGAIN };
        Governor { classes: [class; CLASSES], seconds: None, row: None, measured: 0, since: 0 }
    }
}

impl Class {
    fn acceptance(&self) -> f64 {
        (self.kept / self.tried).clamp(0.0, 0.999)
    }

    /// The length that gains most, at most `max`; 0: none gains enough.
    fn best(&self, max: usize, cost: f64, costs: &PassCosts, beside: usize) -> usize {
        let a = self.acceptance();
        let plain = costs.times(beside + 1);
        let (mut best, mut most) = (0, WORTH);
        // tokens that come of a draft of k: 1 + a + ... + a^k
        let (mut power, mut tokens) = (1.0, 1.0);
        for k in 1..=max {
            power *= a;
            tokens += power;
            let gain = tokens / (costs.times(beside + 1 + k) / plain + cost * k as f64);
            // of equals the longer
            if gain >= most {
                (best, most) = (k, gain);
            }
        }
        best
    }
}

impl Governor {
    /// How much of a draft of `len` tokens to check.
    pub(super) fn length(
        &self,
        class: usize,
        len: usize,
        costs: &PassCosts,
        beside: usize,
    ) -> usize {
        let known = &self.classes[class];
        match known.best(len, self.cost(costs), costs, beside) {
            0 if known.since >= known.again => len.min(1),
            n => n,
        }
    }

    /// How far to let a drafter with a model go.
    pub(super) fn may(&self, max: usize, costs: &PassCosts, beside: usize) -> May {
        match (self.seconds, costs.plain()) {
            (None, _) => May::Guess(max.min(FIRST)),
            (_, None) => May::Rest,
            // the first ones pay for what is cold
            _ if self.measured < COLD => May::Guess(max.min(FIRST)),
            _ if self.may_pay(max, costs, beside) => May::Guess(self.length(0, max, costs, beside)),
            // what it costs may have been measured at a bad moment
            _ if self.since >= LONGEST => May::Try,
            _ => May::Rest,
        }
    }

    /// Whether drafts would pay if all of them held, as far as is known what they cost.
    pub(super) fn may_pay(&self, max: usize, costs: &PassCosts, beside: usize) -> bool {
        let sure = Class { kept: 1.0, tried: 1.0, since: 0, again: 0 };
        sure.best(max, self.cost(costs), costs, beside) > 0
    }

    /// What a guessed token costs by itself in plain steps, 0 if that is not known.
    fn cost(&self, costs: &PassCosts) -> f64 {
        let cost = self.seconds.zip(costs.plain()).map(|(seconds, plain)| seconds / plain);
        cost.unwrap_or(0.0)
    }

    /// Seconds that a drafter with a model takes to read so many tokens that it is behind; as many as drafts have are free.
    pub(super) fn reading(&self, behind: usize) -> f64 {
        let row = self.row.or(self.seconds).unwrap_or(0.0);
        row * behind.saturating_sub(MOST_DRAFTED) as f64
    }

    /// So many rows were read, or a token guessed, in so many seconds.
    pub(super) fn took(&mut self, rows: usize, seconds: f64) {
        let weighed = |known: Option<f64>, new: f64| {
            known.map_or(new, |known| known + COST_WEIGHT * (new - known))
        };
        match rows {
            1 => (),
            // a draft that held whole: neither a guess nor a text
            0 | 2 => return,
            n => {
                self.row = Some(weighed(self.row, seconds / n as f64));
                return;
            }
        }
        let least = self.seconds.unwrap_or(seconds).min(seconds);
        let cold = self.measured < COLD;
        self.seconds = Some(if cold { least } else { weighed(self.seconds, seconds) });
        self.measured = COLD.min(self.measured + 1);
        self.since = 0;
    }

    /// Of a draft of `drafted` tokens `kept` held.
    pub(super) fn learn(&mut self, class: usize, drafted: usize, kept: usize) {
        let known = &mut self.classes[class];
        // the first that did not hold was tried, those after it were not
        let tried = (kept + 1).min(drafted);
        known.kept = known.kept * KEEP + kept as f64;
        known.tried = known.tried * KEEP + tried as f64;
        known.since = 0;
        known.again = if kept == drafted { AGAIN } else { (known.again * 2).min(LONGEST) };
    }

    /// The text grew by so many tokens.
    pub(super) fn passed(&mut self, tokens: usize) {
        self.since += tokens;
        for class in &mut self.classes {
            class.since += tokens;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passes over `m` rows that cost `1 + slope (m - 1)`.
    fn costs(slope: f64) -> PassCosts {
        let mut costs = PassCosts::default();
        costs.measured(1, 1.0);
        for rows in 2..=16 {
            costs.measured(rows, 1.0 + slope * (rows - 1) as f64);
        }
        costs
    }

    /// Time of a text of `n` tokens in plain steps. The `i`th token is guessed as `trace(i)` says: the class of the draft
    /// that can be made there, and how many of its tokens hold.
    fn time(n: usize, costs: &PassCosts, trace: &dyn Fn(usize) -> Option<(usize, usize)>) -> f64 {
        let mut governor = Governor::default();
        let (mut at, mut time) = (0, 0.0);
        while at < n {
            let draft = trace(at);
            let k = draft.map_or(0, |(class, _)| governor.length(class, 15, costs, 0));
            let kept = draft.map_or(0, |(_, holds)| holds.min(k));
            if let Some((class, _)) = draft.filter(|_| k > 0) {
                governor.learn(class, k, kept);
            }
            time += costs.times(1 + k);
            governor.passed(kept + 1);
            at += kept + 1;
        }
        time
    }

    #[test]
    fn a_text_that_repeats_is_drafted_far() {
        let time = time(1000, &costs(0.1), &|_| Some((3, 15)));
        assert!(1000.0 / time > 4.0, "{time}");
    }

    #[test]
    fn nothing_is_drafted_where_rows_cost_as_much_as_steps() {
        let governor = Governor::default();
        assert_eq!(governor.length(0, 15, &costs(1.0), 0), 0);
        assert!(governor.length(0, 15, &costs(0.05), 0) > 2);
    }

    /// Drafts that never hold cost next to nothing, whatever rows cost: at most 2 % of a text of 1,000 tokens.
    #[test]
    fn wrong_drafts_are_given_up() {
        for slope in [0.02, 0.1, 0.3, 0.6, 1.0] {
            for class in 0..CLASSES {
                let time = time(1000, &costs(slope), &|_| Some((class, 0)));
                assert!(time <= 1020.0, "slope {slope}: {time}");
            }
        }
    }

    /// A model whose guesses cost nearly as much as steps is not asked, but that its cost is looked at again now and then.
    #[test]
    fn a_model_that_cannot_pay_rests() {
        let costs = costs(0.1);
        let mut governor = Governor::default();
        assert_eq!(governor.may(15, &costs, 0), May::Guess(FIRST), "before anything is known");
        for seconds in [7.0, 0.9, 3.0] {
            governor.took(1, seconds);
        }
        assert!(!governor.may_pay(15, &costs, 0));
        let mut tried = 0;
        for _ in 0..4 * LONGEST {
            match governor.may(15, &costs, 0) {
                May::Rest | May::Read => (),
                May::Try => {
                    tried += 1;
                    governor.took(1, 0.9);
                }
                May::Guess(n) => panic!("{n} tokens"),
            }
            governor.passed(1);
        }
        assert_eq!(tried, 3);
        governor.took(1, -5.0);
        assert!(governor.may_pay(15, &costs, 0), "what it costs may change");
    }

    #[test]
    fn who_is_far_behind_has_to_read() {
        let mut governor = Governor::default();
        governor.took(1, 0.5);
        assert_eq!((governor.reading(MOST_DRAFTED), governor.reading(115)), (0.0, 50.0));
        governor.took(100, 1.0);
        assert_eq!(governor.reading(115), 1.0);
    }

    proptest! {
        /// Whatever holds when: never below 0.98 of plain steps by more than what learning anew costs.
        #[test]
        fn regret_is_bounded(seed in any::<u64>(), slope in 0.02..1.0f64, p in 0.0..1.0f64, turn in 50usize..500) {
            // stretches of luck and of none, in classes that say nothing
            let hash = |i: usize| (seed ^ (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
            let lucky = |i: usize| (i / turn).is_multiple_of(2);
            let trace = |i: usize| {
                let draws = (0..15).take_while(|j| lucky(i) && ((hash(i + j) & 0xFFFF) as f64) < p * 65536.0);
                Some(((hash(i * 7) & 1) as usize, draws.count()))
            };
            let n = 3000;
            let time = time(n, &costs(slope), &trace);
            let changes = (n / turn + 1) as f64;
            prop_assert!(time <= n as f64 / 0.98 + 6.0 * changes, "{time}");
        }
    }
}

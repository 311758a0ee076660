//! How far to draft: as far as the tokens it brings are worth the rows it takes.
//!
//! A draft of `k` tokens that each hold with probability `a` yields `E(k) = (1 - a^(k+1)) / (1 - a)` tokens in a pass that
//! costs `v(k + 1)` plain ones. The `k` with the greatest `E(k) / v(k + 1)` is taken if it gains enough, else none. `a` is
//! learned by class, from the tokens that were reached. What stopped paying is tried again now and then, shortly.
//! Source: arXiv:2211.17192, section 3.

use super::{CLASSES, PassCosts};

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

/// What is known of one drafter.
#[derive(Clone, Debug)]
pub(super) struct Governor {
    classes: [Class; CLASSES],
    /// What a guessed token costs by itself, in plain steps; `None` of a drafter without a model, or before it is known.
    cost: Option<f64>,
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
        Governor { classes: [class; CLASSES], cost: None }
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
        let gain = |k: usize| {
            let tokens = (1.0 - a.powi(k as i32 + 1)) / (1.0 - a);
            tokens / (costs.times(beside + 1 + k) / plain + cost * k as f64)
        };
        let best = (1..=max).max_by(|a, b| gain(*a).total_cmp(&gain(*b)));
        best.filter(|&k| gain(k) >= WORTH).unwrap_or(0)
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
        match known.best(len, self.cost.unwrap_or(0.0), costs, beside) {
            0 if known.since >= known.again => len.min(1),
            n => n,
        }
    }

    /// A token was guessed in so many plain steps.
    pub(super) fn costs(&mut self, steps: f64) {
        let cost = self.cost.unwrap_or(steps);
        self.cost = Some(cost + COST_WEIGHT * (steps - cost));
    }

    /// Whether it is known what guessing costs.
    pub(super) fn knows_costs(&self) -> bool {
        self.cost.is_some()
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

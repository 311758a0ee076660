//! Penalties: tokens that were used lately become less likely. Source: arXiv:1909.05858 (repetition), the OpenAI API
//! (frequency and presence).

use std::collections::BTreeMap;

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Penalties;

impl Stage for Penalties {
    fn names(&self) -> &'static [&'static str] {
        &["penalties"]
    }

    fn letter(&self) -> char {
        'e'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        let any = options.repeat_penalty != 1.0
            || options.frequency_penalty != 0.0
            || options.presence_penalty != 0.0;
        any && options.repeat_last_n != 0
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn changes(&self, at: &Situation<'_>) -> Option<Vec<u32>> {
        Some(counts(at).into_keys().collect())
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let options = at.options;
        let changed: Vec<_> = counts(at).into_iter().collect();
        choices.change(&changed, |logit, &count| {
            let factor = options.repeat_penalty;
            let repeated = if logit <= 0.0 { logit * factor } else { logit / factor };
            repeated - count as f32 * options.frequency_penalty - options.presence_penalty
        });
    }
}

/// How often each token was used lately.
fn counts(at: &Situation<'_>) -> BTreeMap<u32, u32> {
    let before = at.before;
    let window = usize::try_from(at.options.repeat_last_n).unwrap_or(before.len());
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for &token in &before[before.len() - window.min(before.len())..] {
        *counts.entry(token).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::sampler::reference::changed;
    use crate::sampler::{SamplerOptions, reference};

    /// Logits after the penalties.
    fn penalized(options: &SamplerOptions, logits: &[f32], before: &[u32]) -> Vec<f32> {
        let left = changed(&super::Penalties, options, logits, before);
        let left: BTreeMap<u32, f32> = left.into_iter().collect();
        left.into_values().collect()
    }

    #[test]
    fn penalties_follow_their_formulas() {
        let mut options = SamplerOptions { repeat_penalty: 2.0, ..SamplerOptions::default() };
        let logits = [4.0, -4.0, 1.0, 0.5];
        assert_eq!(penalized(&options, &logits, &[0, 1, 1, 99]), [2.0, -8.0, 1.0, 0.5]);
        options.repeat_last_n = 2;
        assert_eq!(penalized(&options, &logits, &[0, 1, 1]), [4.0, -8.0, 1.0, 0.5]);
        options = SamplerOptions {
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            repeat_last_n: -1,
            ..SamplerOptions::default()
        };
        assert_eq!(penalized(&options, &logits, &[0, 1, 1]), [3.25, -5.25, 1.0, 0.5]);
        options.repeat_last_n = 0;
        assert!(!reference::acts(&super::Penalties, &options));
    }
}

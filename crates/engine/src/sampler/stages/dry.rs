//! DRY ("don't repeat yourself"): a token that would go on with a repetition becomes less likely, the more so the longer
//! the repetition is. Source: the proposal by p-e-w, text-generation-webui pull request 5677.

use std::collections::BTreeMap;

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Dry;

impl Stage for Dry {
    fn names(&self) -> &'static [&'static str] {
        &["dry"]
    }

    fn letter(&self) -> char {
        'd'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.dry_multiplier != 0.0 && options.dry_penalty_last_n != 0
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn changes(&self, at: &Situation<'_>) -> Option<Vec<u32>> {
        Some(repeats(at).into_keys().collect())
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let options = at.options;
        let allowed = allowed(options);
        let changed: Vec<_> = repeats(at).into_iter().collect();
        choices.change(&changed, |logit, &length| {
            let exponent = (length - allowed) as f64;
            let penalty =
                f64::from(options.dry_multiplier) * f64::from(options.dry_base).powf(exponent);
            (f64::from(logit) - penalty) as f32
        });
    }
}

/// Tokens that may be repeated together.
fn allowed(options: &SamplerOptions) -> usize {
    usize::try_from(options.dry_allowed_length).unwrap_or(0)
}

/// The tokens that would go on with a repetition of more than is allowed, and how long the longest is.
fn repeats(at: &Situation<'_>) -> BTreeMap<u32, usize> {
    let (options, before) = (at.options, at.before);
    let allowed = allowed(options);
    let window = usize::try_from(options.dry_penalty_last_n).unwrap_or(before.len());
    let window = &before[before.len() - window.min(before.len())..];
    let mut repeats = BTreeMap::new();
    // nothing repeats over the last place where repetitions end
    let longest = at.breakers.tokens_after_last(window);
    if window.len() <= allowed || longest < allowed {
        return repeats;
    }
    for (token, length) in repetitions(window) {
        let length = length.min(longest);
        if length >= allowed && !at.breakers.is_one(token) {
            let most = repeats.entry(token).or_insert(0);
            *most = length.max(*most);
        }
    }
    repeats
}

/// For each earlier place: the token that came there, and how many tokens before it equal the last ones of `window`.
fn repetitions(window: &[u32]) -> impl Iterator<Item = (u32, usize)> + '_ {
    let last = window.len() - 1;
    let backwards = move |i: usize| window[last - i];
    // the Z-algorithm on the reversed window, in which `backwards(from..to)` is a known match of its beginning
    let mut matches = vec![0; window.len()];
    let (mut from, mut to) = (0, 0);
    for place in 1..window.len() {
        let known = if place < to { matches[place - from].min(to - place) } else { 0 };
        let rest = (known..window.len() - place)
            .take_while(|&i| backwards(i) == backwards(place + i))
            .count();
        matches[place] = known + rest;
        if place + matches[place] > to {
            (from, to) = (place, place + matches[place]);
        }
    }
    (1..window.len()).map(move |place| (backwards(place - 1), matches[place]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: compare backwards from each place.
    fn naive(window: &[u32]) -> Vec<(u32, usize)> {
        let n = window.len();
        let equal =
            |end: usize| (1..=end).take_while(|&i| window[end - i] == window[n - i]).count();
        (1..n).rev().map(|at| (window[at], equal(at))).collect()
    }

    proptest! {
        #[test]
        fn repetitions_are_found_everywhere(window in prop::collection::vec(0u32..3, 1..80)) {
            let got: Vec<_> = repetitions(&window).collect();
            prop_assert_eq!(got, naive(&window));
        }
    }
}

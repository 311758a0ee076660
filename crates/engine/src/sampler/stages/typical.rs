//! Locally typical sampling: the tokens whose surprise is nearest to the surprise that is expected, until together they
//! have a probability. Source: arXiv:2202.00666.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Typical;

impl Stage for Typical {
    fn names(&self) -> &'static [&'static str] {
        &["typ_p", "typical", "typical_p", "typical-p", "typ-p", "typ"]
    }

    fn letter(&self) -> char {
        'y'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.typical_p < 1.0
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let total = choices.mass();
        let sorted = choices.sorted().clone();
        let probabilities: Vec<f64> =
            sorted.iter().map(|c| choices.weight(c.logit, sorted[0].logit) / total).collect();
        let surprise = |p: f64| -p.ln();
        let entropy: f64 =
            probabilities.iter().filter(|&&p| p > 0.0).map(|&p| p * surprise(p)).sum();
        let mut order: Vec<usize> = (0..sorted.len()).collect();
        // stable: of two that are equally typical the likelier comes first
        let strangeness = |&i: &usize| (surprise(probabilities[i]) - entropy).abs();
        order.sort_by(|a, b| strangeness(a).total_cmp(&strangeness(b)));
        let mut sum = 0.0;
        let enough = order.iter().enumerate().position(|(n, &i)| {
            sum += probabilities[i];
            sum > f64::from(at.options.typical_p) && n + 1 >= at.options.kept()
        });
        order.truncate(enough.map_or(order.len(), |n| n + 1));
        order.sort_unstable();
        let list = choices.sorted();
        list.clear();
        list.extend(order.into_iter().map(|i| sorted[i]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::reference::changed;

    #[test]
    fn of_equals_the_first_are_kept() {
        let kept = |typical_p, logits: &[f32]| {
            let options = SamplerOptions { typical_p, ..SamplerOptions::default() };
            let left = changed(&Typical, &options, logits, &[]);
            left.into_iter().map(|(token, _)| token).collect::<Vec<_>>()
        };
        assert_eq!(kept(0.5, &[1.0; 5]), [0, 1, 2]);
        assert_eq!(kept(0.0, &[1.0; 5]), [0]);
        assert_eq!(kept(0.5, &[3.0]), [0]);
        // what is certain surprises less than is expected
        assert_eq!(kept(0.2, &[2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), [1, 2]);
    }
}

//! Top-n-sigma: only tokens whose logits are within so many standard deviations of the highest. Source: arXiv:2411.07641.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::{BANNED, Choices};

pub(super) struct TopNSigma;

impl Stage for TopNSigma {
    fn names(&self) -> &'static [&'static str] {
        &["top_n_sigma", "top-n-sigma"]
    }

    fn letter(&self) -> char {
        's'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.top_n_sigma > 0.0
    }

    fn spares_likeliest(&self) -> bool {
        true
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        // a token that was banned says nothing about the others
        let logits = || choices.logits().filter(|&x| x > BANNED).map(f64::from);
        let n = logits().count() as f64;
        let mean = logits().sum::<f64>() / n;
        let variance = logits().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let reach = f64::from(at.options.top_n_sigma) * variance.sqrt();
        let max = choices.likeliest().logit;
        // rounded down, so that equals of the border stay on its side of it
        let floor = (f64::from(max) - reach).max(f64::from(BANNED)) as f32;
        choices.keep_from(floor.min(max));
    }
}

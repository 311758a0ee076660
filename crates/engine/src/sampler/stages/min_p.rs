//! Min-p: only tokens at least a fraction as likely as the likeliest. Source: arXiv:2407.01082.

use super::{Situation, Stage, at_least_kept};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct MinP;

impl Stage for MinP {
    fn names(&self) -> &'static [&'static str] {
        &["min_p", "min-p"]
    }

    fn letter(&self) -> char {
        'm'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.min_p > 0.0
    }

    fn spares_likeliest(&self) -> bool {
        true
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let floor = choices.likeliest().logit + at.options.min_p.ln() * choices.temperature();
        if at.options.kept() > 1 {
            let sorted = choices.sorted();
            let likely = sorted.partition_point(|c| c.logit >= floor);
            let n = at_least_kept(likely, sorted.len(), at.options);
            sorted.truncate(n);
        } else {
            choices.keep_from(floor);
        }
    }
}

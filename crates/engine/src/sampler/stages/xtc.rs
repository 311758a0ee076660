//! XTC ("exclude top choices"): now and then, all likely tokens but the least likely of them are left out. Source: the
//! proposal by p-e-w, text-generation-webui pull request 6335.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Xtc;

impl Stage for Xtc {
    fn names(&self) -> &'static [&'static str] {
        &["xtc"]
    }

    fn letter(&self) -> char {
        'x'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        // two tokens cannot both have more than half
        options.xtc_probability > 0.0 && options.xtc_threshold <= 0.5
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        if at.chance.exclude() >= f64::from(at.options.xtc_probability) {
            return;
        }
        let floor = f64::from(at.options.xtc_threshold) * choices.mass();
        let max = choices.likeliest().logit;
        let sorted = choices.sorted().clone();
        let likely = sorted.partition_point(|c| choices.weight(c.logit, max) >= floor);
        let left_out = likely.saturating_sub(1);
        if sorted.len() - left_out >= at.options.kept() {
            choices.sorted().drain(..left_out);
        }
    }
}

//! Top-p (nucleus): only the likeliest tokens that together reach a probability. Source: arXiv:1904.09751.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct TopP;

impl Stage for TopP {
    fn names(&self) -> &'static [&'static str] {
        &["top_p", "top-p", "nucleus"]
    }

    fn letter(&self) -> char {
        'p'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.top_p < 1.0
    }

    fn spares_likeliest(&self) -> bool {
        true
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let share = f64::from(at.options.top_p) * choices.mass();
        choices.keep_mass(share, at.options.kept());
    }
}

//! Top-k: only the so many likeliest tokens.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct TopK;

impl Stage for TopK {
    fn names(&self) -> &'static [&'static str] {
        &["top_k", "top-k"]
    }

    fn letter(&self) -> char {
        'k'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.top_k > 0
    }

    fn spares_likeliest(&self) -> bool {
        true
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        choices.keep_likeliest(usize::try_from(at.options.top_k).unwrap_or(usize::MAX));
    }
}

//! Logit bias: what the user adds to the logits of single tokens.

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct LogitBias;

impl Stage for LogitBias {
    fn names(&self) -> &'static [&'static str] {
        &["logit_bias"]
    }

    fn letter(&self) -> char {
        'b'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        !options.logit_bias.is_empty()
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn changes(&self, at: &Situation<'_>) -> Option<Vec<u32>> {
        Some(at.options.logit_bias.iter().map(|(token, _)| *token).collect())
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        choices.change(&at.options.logit_bias, |logit, bias| logit + bias);
    }
}

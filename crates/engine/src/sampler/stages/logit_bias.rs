//! Logit bias: what the user adds to the logits of single tokens.

use std::collections::BTreeMap;

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
        let mut biases = BTreeMap::new();
        for &(token, bias) in &at.options.logit_bias {
            *biases.entry(token).or_insert(0.0) += bias;
        }
        choices.change(&biases, |logit, bias| logit + bias);
    }
}

//! Temperature: sharper below 1, flatter above; with a range it follows how sure the model is. Source of the latter:
//! arXiv:2309.02772 (entropy-based dynamic temperature).

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::{BANNED, Choices};

pub(super) struct Temperature;

impl Stage for Temperature {
    fn names(&self) -> &'static [&'static str] {
        &["temperature", "temp"]
    }

    fn letter(&self) -> char {
        't'
    }

    fn acts(&self, options: &SamplerOptions) -> bool {
        options.temperature != 1.0 || options.dynatemp_range > 0.0
    }

    fn spares_likeliest(&self) -> bool {
        true
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let options = at.options;
        let temperature = if options.dynatemp_range > 0.0 {
            if choices.len() == 1 {
                return;
            }
            let low = (options.temperature - options.dynatemp_range).max(0.0);
            let high = options.temperature + options.dynatemp_range;
            low + (high - low) * doubt(choices).powf(options.dynatemp_exponent)
        } else {
            options.temperature
        };
        if temperature > 0.0 { choices.heat(temperature) } else { choices.keep_one() }
    }
}

/// The entropy of what may be drawn beside the most that so many tokens can have: 0 if one is certain, 1 if all are equally likely.
fn doubt(choices: &Choices<'_>) -> f32 {
    let (total, max) = (choices.mass(), choices.likeliest().logit);
    // what was banned is no choice
    let there = || choices.logits().filter(|&logit| logit > BANNED);
    let probabilities = there().map(|logit| choices.weight(logit, max) / total);
    let entropy: f64 = probabilities.filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
    let most = (there().count() as f64).ln();
    if most > 0.0 { (entropy / most).clamp(0.0, 1.0) as f32 } else { 0.0 }
}

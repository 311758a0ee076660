//! Mirostat 2: tokens whose surprise is above a level are left out, and the level follows how surprising the chosen ones
//! were. Source: arXiv:2007.14966, algorithm 2.

use std::f64::consts::LN_2;

use super::{Chooser, Feedback, probabilities};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Mirostat2;

impl Chooser for Mirostat2 {
    fn start(&self, options: &SamplerOptions) -> Feedback {
        Feedback { level: 2.0 * f64::from(options.mirostat_tau), weight: 0.0 }
    }

    fn prepare(&self, choices: &mut Choices<'_>, _: &SamplerOptions, known: Feedback) -> Vec<f64> {
        // -log2(p) <= level, where p = exp((logit - max) / temperature) / mass
        let max = choices.likeliest().logit;
        let below = f64::from(choices.temperature()) * (choices.mass().ln() - known.level * LN_2);
        if below > 0.0 {
            choices.keep_one();
        } else {
            choices.keep_from((f64::from(max) + below).max(f64::from(f32::MIN)) as f32);
        }
        probabilities(choices)
    }

    fn learn(&self, options: &SamplerOptions, known: Feedback, probability: f64) -> Feedback {
        let error = -probability.log2() - f64::from(options.mirostat_tau);
        Feedback { level: known.level - f64::from(options.mirostat_eta) * error, ..known }
    }
}

//! Adaptive-p: tokens near a target probability are preferred, and the target moves against what was chosen lately, so
//! that the chosen probabilities come out at the target on average. Source: llama.cpp pull request 17927.

use super::{Chooser, Feedback, probabilities};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

/// How far from the target counts as one.
const WIDTH: f64 = 0.3;
/// Logit at the target.
const PEAK: f64 = 5.0;
/// How steeply logits fall away from it.
const SHARPNESS: f64 = 10.0;

pub(super) struct AdaptiveP;

impl Chooser for AdaptiveP {
    fn start(&self, options: &SamplerOptions) -> Feedback {
        // as if the target had been met always
        let weight = 1.0 / (1.0 - decay(options));
        Feedback { level: f64::from(options.adaptive_target) * weight, weight }
    }

    fn prepare(
        &self,
        choices: &mut Choices<'_>,
        options: &SamplerOptions,
        known: Feedback,
    ) -> Vec<f64> {
        let probabilities = probabilities(choices);
        let average = known.level / known.weight;
        let target = (2.0 * f64::from(options.adaptive_target) - average).clamp(0.0, 1.0);
        choices.set_logits(probabilities.iter().map(|p| {
            // what cannot be drawn stays so
            if *p == 0.0 {
                return f32::MIN;
            }
            let distance = ((p - target) / WIDTH).abs();
            // quadratic near the target, linear far from it
            (PEAK - SHARPNESS * distance * distance / (1.0 + distance)) as f32
        }));
        probabilities
    }

    fn learn(&self, options: &SamplerOptions, known: Feedback, probability: f64) -> Feedback {
        let decay = decay(options);
        let older = |sum: f64| decay * sum;
        Feedback { level: probability + older(known.level), weight: 1.0 + older(known.weight) }
    }
}

fn decay(options: &SamplerOptions) -> f64 {
    f64::from(options.adaptive_decay)
}

//! By probability alone.

use super::{Chooser, Feedback};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Draw;

impl Chooser for Draw {
    fn start(&self, _: &SamplerOptions) -> Feedback {
        Feedback::default()
    }

    fn prepare(&self, _: &mut Choices<'_>, _: &SamplerOptions, _: Feedback) -> Vec<f64> {
        Vec::new()
    }

    fn learn(&self, _: &SamplerOptions, known: Feedback, _: f64) -> Feedback {
        known
    }
}

//! What draws a token from those that may be: by their probabilities alone, or so that something comes out evenly over
//! a text. What the latter learn from a choice is a value that belongs to that choice, so that whoever takes tokens back
//! takes it back with them.

mod adaptive_p;
mod draw;
mod mirostat;

use super::SamplerOptions;
use super::choices::Choices;

/// What a chooser has learned from the tokens it chose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Feedback {
    /// Mirostat: the most surprise that is let through, in bits. Adaptive-p: the sum of chosen probabilities, older ones
    /// weighing less.
    pub(super) level: f64,
    /// Adaptive-p: the sum of those weights.
    pub(super) weight: f64,
}

/// A way to choose from what a chain leaves.
pub(super) trait Chooser: Sync {
    /// What is known before the first choice.
    fn start(&self, options: &SamplerOptions) -> Feedback;

    /// Make of the choices what is drawn from. Returns for each of its candidates, in order, the probability that is learned
    /// from if it is drawn; nothing, if nothing is learned.
    fn prepare(
        &self,
        choices: &mut Choices<'_>,
        options: &SamplerOptions,
        known: Feedback,
    ) -> Vec<f64>;

    /// What is known after a token of this probability was chosen.
    fn learn(&self, options: &SamplerOptions, known: Feedback, probability: f64) -> Feedback;
}

/// What these settings ask for.
pub(super) fn chooser(options: &SamplerOptions) -> &'static dyn Chooser {
    match options.mirostat {
        2 => &mirostat::Mirostat2,
        _ if options.adaptive_target >= 0.0 => &adaptive_p::AdaptiveP,
        _ => &draw::Draw,
    }
}

/// The probability of each candidate, in order.
fn probabilities(choices: &mut Choices<'_>) -> Vec<f64> {
    let (total, max) = (choices.mass(), choices.likeliest().logit);
    let logits: Vec<f32> = choices.list().iter().map(|c| c.logit).collect();
    logits.into_iter().map(|logit| choices.weight(logit, max) / total).collect()
}

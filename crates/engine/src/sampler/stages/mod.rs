//! What happens to the tokens that may be drawn before one is: each sampler of llama.cpp's chain is a file here and a
//! line in [`STAGES`], in the order in which they act by default.

mod dry;
mod infill;
mod logit_bias;
mod min_p;
mod penalties;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;
mod xtc;

use super::SamplerOptions;
use super::breakers::Breakers;
use super::choices::Choices;
use super::random::Chance;
use super::spellings::Spellings;

/// What is known where a token is chosen.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    /// The settings.
    pub(super) options: &'a SamplerOptions,
    /// The tokens before.
    pub(super) before: &'a [u32],
    /// The position's random numbers.
    pub(super) chance: Chance,
    /// Where repetitions end.
    pub(super) breakers: &'a Breakers,
    /// What tokens spell.
    pub(super) spellings: &'a Spellings,
}

/// One sampler of a chain.
pub(super) trait Stage: Sync {
    /// Its name in `--samplers`; the first is shown, and others are understood.
    fn names(&self) -> &'static [&'static str];

    /// Its letter in `--sampler-seq`.
    fn letter(&self) -> char;

    /// Whether it does anything with these settings.
    fn acts(&self, options: &SamplerOptions) -> bool;

    /// Whether the likeliest token is the likeliest after it too, so that greedy choice needs it not.
    fn spares_likeliest(&self) -> bool;

    /// The tokens whose logits it changes, if that is all it does; `None` if it may leave tokens out or change any.
    fn changes(&self, at: &Situation<'_>) -> Option<Vec<u32>> {
        let _ = at;
        None
    }

    /// Change what may be drawn. At least one token stays.
    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>);
}

/// All that can be ordered: those that act by default, in llama.cpp's order, and others.
pub(super) static STAGES: &[&dyn Stage] = &[
    &penalties::Penalties,
    &dry::Dry,
    &top_n_sigma::TopNSigma,
    &top_k::TopK,
    &typical::Typical,
    &top_p::TopP,
    &min_p::MinP,
    &xtc::Xtc,
    &temperature::Temperature,
    &infill::Infill,
];

/// So many of them act by default.
pub(super) const BY_DEFAULT: usize = 9;

/// Comes before all others, whatever their order.
pub(super) static FIRST: &dyn Stage = &logit_bias::LogitBias;

/// How many of the sorted tokens stay, where samplers want `n`: never less than the settings say, never none.
fn at_least_kept(n: usize, len: usize, options: &SamplerOptions) -> usize {
    n.max(options.kept()).clamp(1, len)
}

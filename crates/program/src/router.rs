//! [`Router`]: which experts a row uses, and how much of each.

use crate::WeightId;

/// The smallest sum that weights are divided by. Source: llama.cpp (the least normal f16).
pub const LEAST_WEIGHT_SUM: f32 = 6.103_515_6e-5;

/// From the scores of all experts to the chosen ones and their weights.
///
/// ```text
/// p    = gating(scores)
/// s    = p + bias                        the bias only helps choosing
/// s    = -inf outside the best groups    if experts are grouped
/// ids  = the n_used highest of s, the highest first; of equal ones the lower id
/// ids  = ids / per_chunk                 if experts share what is mixed
/// w    = p[ids]
/// w    = w / max(sum(w), LEAST_WEIGHT_SUM)    if normalized
/// w    = w * scale
/// w    = w * factors[ids]                if there are such
/// of equal ids one stays, with the sum of their weights; the lowest others follow, with weights of 0
/// ```
///
/// Source: arXiv:2405.04434, section 2.2; arXiv:2412.19437, section 2.1.2.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Experts per row.
    pub n_used: usize,
    /// From scores to weights.
    pub gating: Gating,
    /// Added to choose experts but not to weigh them, `[n_experts]`.
    pub bias: Option<WeightId>,
    /// Choose among the experts of the best groups only.
    pub groups: Option<Groups>,
    /// Whether the weights of a row are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// Factors on the weights, `[n_experts]`; `None` for 1.
    pub factors: Option<WeightId>,
    /// Neighbours among the experts that share one of those to mix; 1 where each is its own. Divides their number. The
    /// weight is then that of the expert whose number is the chunk's, as llama.cpp has it for GroveMoE.
    pub per_chunk: usize,
}

/// From scores to weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// `exp(x) / sum(exp(x))` over all experts.
    Softmax,
    /// `1 / (1 + exp(-x))` of each.
    Sigmoid,
}

/// Experts in groups of neighbours, of which only the best are considered; of equal groups the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Groups; divides the number of experts.
    pub n_groups: usize,
    /// Groups whose experts may be chosen.
    pub n_used: usize,
    /// What makes a group good.
    pub score: GroupScore,
}

/// What makes a group of experts good, from the biased scores of its experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupScore {
    /// Its best expert (DeepSeek-V2).
    Max,
    /// The sum of its best two (DeepSeek-V3).
    TopTwoSum,
}

//! [`Attention`] and [`LatentAttention`]: what a layer attends to, and how scores become weights.

use crate::{CacheId, LatentUp, Rope, Selection, WeightId};

/// Attention over cached keys and values: [`Op::Attention`](crate::Op::Attention).
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The cache that is read.
    pub cache: CacheId,
    /// Whether k and v are inputs and are appended to the cache; otherwise q is the only input, and an earlier layer of
    /// the same pass has appended what it reads.
    pub appends: bool,
    /// Rotation of q, and of k if it appends; `None` for none.
    pub rope: Option<Rope>,
    /// RMS norms on heads that have rotated; `None` for none.
    pub norm: Option<RotatedNorm>,
    /// From q and k to weights.
    pub score: Score,
    /// What of the positions is read that the mask lets a query see; `None`: all. An indexer chose it: the last input.
    pub select: Option<Selection>,
}

/// RMS norms on each head of q and k behind the rotation, which is part of attention: norms before it are ops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatedNorm {
    /// Factors on queries, `[key_dim]`; `None` for 1.
    pub q: Option<WeightId>,
    /// On keys, likewise; the cache holds what is normed.
    pub k: Option<WeightId>,
    /// Added under the root.
    pub eps: f32,
}

impl Attention {
    /// A layer with a cache of its own whose queries see all positions up to theirs.
    pub fn causal(cache: CacheId, rope: Option<Rope>, scale: f32) -> Attention {
        let score = Score::causal(scale);
        Attention { cache, appends: true, rope, norm: None, score, select: None }
    }
}

/// Attention over cached latents: [`Op::LatentAttention`](crate::Op::LatentAttention).
#[derive(Clone, Debug, PartialEq)]
pub struct LatentAttention {
    /// The layer's cache, of the kind [`Latent`](crate::CacheKind::Latent).
    pub cache: CacheId,
    /// Rotation of all of q_pe and k_pe; `None` for none.
    pub rope: Option<Rope>,
    /// From latents to keys and values.
    pub up: LatentUp,
    /// From q and k to weights.
    pub score: Score,
    /// As for [`Attention::select`].
    pub select: Option<Selection>,
}

impl LatentAttention {
    /// A layer whose queries see all positions up to theirs.
    pub fn causal(cache: CacheId, rope: Option<Rope>, up: LatentUp, scale: f32) -> LatentAttention {
        LatentAttention { cache, rope, up, score: Score::causal(scale), select: None }
    }
}

/// From a query and the keys it may see to the weights of their values, in this order:
///
/// ```text
/// q = q * temperature(p)                        p the query's position, after rotation
/// s_j = scale * q.k_j                           j the position of a key
/// s_j = softcap * tanh(s_j / softcap)
/// s_j = s_j - slope_h * |j - p|                 ALiBi, h the query head
/// weights = softmax of s_j over the j that the mask lets p see, and of the head's sink, which has no value
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Factor on `q.k`, usually `1 / sqrt(key_dim)`.
    pub scale: f32,
    /// Which positions a query sees.
    pub mask: Mask,
    /// Bound on scores.
    pub softcap: Option<f32>,
    /// One more score for each query head, `[n_heads]`, that takes weight from the others.
    pub sinks: Option<WeightId>,
    /// Factor on queries by position.
    pub temperature: Option<Temperature>,
    /// ALiBi's greatest exponent (usually 8): scores fall with distance, by [`alibi_slope`].
    pub alibi: Option<f32>,
}

impl Score {
    /// All positions up to the query's, `softmax(scale * q.k)`.
    pub fn causal(scale: f32) -> Score {
        Score {
            scale,
            mask: Mask::Causal,
            softcap: None,
            sinks: None,
            temperature: None,
            alibi: None,
        }
    }
}

/// Which positions `j` a query at position `p` sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// `j <= p`.
    Causal,
    /// A sliding window of `n`, itself included: `p - n < j <= p`.
    Window(u32),
    /// The stretch of `n` positions that it stands in: `floor(p / n) * n <= j <= p`.
    Chunk(u32),
    /// All rows of the sequence, later ones too. They must come in one step, from position 0 on.
    Full,
    /// The same, those within a distance: `p - n <= j <= p + n`.
    Around(u32),
}

impl Mask {
    /// The first position that a query at `position` sees.
    pub fn first(self, position: usize) -> usize {
        match self {
            Mask::Causal | Mask::Full => 0,
            Mask::Window(n) => (position + 1).saturating_sub(n as usize),
            Mask::Chunk(n) => position / n as usize * n as usize,
            Mask::Around(n) => position.saturating_sub(n as usize),
        }
    }

    /// The position after the last that a query at `position` sees, in a sequence of `len`.
    pub fn end(self, position: usize, len: usize) -> usize {
        match self {
            Mask::Causal | Mask::Window(_) | Mask::Chunk(_) => position + 1,
            Mask::Full => len,
            Mask::Around(n) => (position + 1).saturating_add(n as usize).min(len),
        }
    }

    /// Whether queries see later rows.
    pub fn looks_ahead(self) -> bool {
        matches!(self, Mask::Full | Mask::Around(_))
    }
}

/// A factor on queries that grows with their position `p`: `1 + beta * ln(1 + floor((p + offset) / floor))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// How much it grows.
    pub beta: f32,
    /// Positions between steps; usually the trained context.
    pub floor: f32,
    /// Added to the position.
    pub offset: f32,
}

impl Temperature {
    /// The factor at a position.
    pub fn at(&self, position: usize) -> f64 {
        let steps = ((position as f64 + f64::from(self.offset)) / f64::from(self.floor)).floor();
        1.0 + f64::from(self.beta) * steps.ln_1p()
    }
}

/// How much a score of query head `head` falls by each position of distance (ALiBi, arXiv:2108.12409): a geometric row
/// from `2^(-max_bias / n)` on, `n` the greatest power of two within `n_heads`; heads beyond it stand between.
pub fn alibi_slope(head: usize, n_heads: usize, max_bias: f32) -> f64 {
    let n = 1usize << n_heads.max(1).ilog2();
    let (step, power) = if head < n { (1.0, head + 1) } else { (0.5, 2 * (head - n) + 1) };
    (-f64::from(max_bias) * step * power as f64 / n as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_sees() {
        let first = |mask: Mask| [0, 1, 6, 7, 8, 20].map(|p| mask.first(p));
        assert_eq!(first(Mask::Causal), [0; 6]);
        assert_eq!(first(Mask::Full), [0; 6]);
        assert_eq!(first(Mask::Window(1)), [0, 1, 6, 7, 8, 20]);
        assert_eq!(first(Mask::Window(7)), [0, 0, 0, 1, 2, 14]);
        assert_eq!(first(Mask::Chunk(7)), [0, 0, 0, 7, 7, 14]);
        assert_eq!(first(Mask::Around(7)), [0, 0, 0, 0, 1, 13]);
        let end = |mask: Mask| [0, 1, 6, 7, 8, 20].map(|p| mask.end(p, 21));
        for mask in [Mask::Causal, Mask::Window(7), Mask::Chunk(7)] {
            assert_eq!((end(mask), mask.looks_ahead()), ([1, 2, 7, 8, 9, 21], false));
        }
        assert_eq!((end(Mask::Full), Mask::Full.looks_ahead()), ([21; 6], true));
        assert_eq!(end(Mask::Around(7)), [8, 9, 14, 15, 16, 21]);
        assert_eq!(
            (end(Mask::Around(0)), Mask::Around(0).looks_ahead()),
            (end(Mask::Causal), true)
        );
    }

    #[test]
    fn temperature_grows_in_steps() {
        let at = Temperature { beta: 0.1, floor: 8192.0, offset: 1.0 };
        assert_eq!((at.at(0), at.at(8190)), (1.0, 1.0));
        assert!((at.at(8191) - (1.0 + f64::from(0.1f32) * 2f64.ln())).abs() < 1e-12);
    }

    #[test]
    fn slopes_by_hand() {
        assert_eq!(alibi_slope(0, 8, 8.0), 0.5);
        assert_eq!(alibi_slope(7, 8, 8.0), 1.0 / 256.0);
        // 12 heads: 8 as above, then every other one of 16
        assert_eq!(alibi_slope(7, 12, 8.0), 1.0 / 256.0);
        assert_eq!(alibi_slope(8, 12, 8.0), (-0.5f64).exp2());
        assert_eq!(alibi_slope(11, 12, 8.0), (-3.5f64).exp2());
        assert_eq!(alibi_slope(0, 1, 8.0), (-8f64).exp2());
    }
}

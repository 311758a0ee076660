//! [`CausalConv`] and [`Scan`]: ops whose rows depend on those before by a state of fixed size.

use crate::{Act, CacheId, WeightId};

/// A sum over the last few rows, channel by channel: `y_t[c] = act(bias[c] + sum_i w[c][i] * x_{t - step * (width - 1 - i)}[c])`;
/// rows before the first are zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CausalConv {
    /// What it keeps: the last `step * (width - 1)` rows.
    pub cache: CacheId,
    /// `[channels, width]`, the last of each for the newest row. `None`: the row before, of a width of 2, as it is.
    pub taps: Option<WeightId>,
    /// `[channels]`.
    pub bias: Option<WeightId>,
    /// Rows that a sum is over, its own included.
    pub width: usize,
    /// From one of them to the next, at least 1.
    pub step: usize,
    /// What is made of the sum.
    pub act: Option<Act>,
}

impl CausalConv {
    /// How many rows before its own a sum reaches.
    pub fn reach(&self) -> usize {
        self.step * (self.width - 1)
    }
}

/// A recurrence over rows: each head has a matrix `S` `[key_dim, value_dim]`, zeros at the start, that every row changes and
/// is read by. What rows do to it is the [`ScanKind`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    /// Where the matrices are kept.
    pub cache: CacheId,
    /// What a row does.
    pub kind: ScanKind,
    /// Of all heads.
    pub dims: ScanDims,
}

/// The shape of a [`Scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanDims {
    /// Heads, each with a matrix of its own.
    pub n_heads: usize,
    /// Heads of keys and queries; divides `n_heads`.
    pub n_key_heads: usize,
    /// Rows of a matrix.
    pub key_dim: usize,
    /// Columns of a matrix that are used.
    pub value_dim: usize,
    /// Head `h` has the keys of head `h mod n_key_heads`, not of `h / (n_heads / n_key_heads)`.
    pub by_turns: bool,
}

impl ScanDims {
    /// Numbers in all matrices.
    pub fn elements(&self) -> usize {
        self.n_heads * self.key_dim * self.value_dim
    }

    /// Columns are kept in strips of so many.
    pub const STRIP: usize = 16;

    /// Columns of a matrix as it is kept, those included that fill its last strip.
    pub fn kept_columns(&self) -> usize {
        self.value_dim.div_ceil(Self::STRIP).saturating_mul(Self::STRIP)
    }

    /// Numbers in all matrices as they are kept.
    pub fn kept_elements(&self) -> usize {
        self.n_heads.saturating_mul(self.key_dim).saturating_mul(self.kept_columns())
    }

    /// The head whose keys and queries `head` has.
    pub fn key_head(&self, head: usize) -> usize {
        if self.by_turns {
            head % self.n_key_heads
        } else {
            head / (self.n_heads / self.n_key_heads)
        }
    }
}

/// What a row does to the matrix `S` of a head, and what it reads of it. The first input is what reads; all others are what
/// the cache is given. `*` along `key_dim` is a factor on each row of `S`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScanKind {
    /// q, k `[n_key_heads, key_dim]`, v `[n_heads, value_dim]`, g `[n_heads]` or `[n_heads, key_dim]`, beta `[n_heads]`:
    /// `S = exp(g) * S; S += k (beta (v - S^T k))^T; y = S^T q / sqrt(key_dim)`, where q and k are divided by their lengths,
    /// `sqrt(sum x^2 + eps)`, first.
    ///
    /// Source: arXiv:2412.06464 (one g for a head), arXiv:2510.26692 (one for each row of `S`).
    Delta {
        /// Added under the roots.
        eps: f32,
    },
    /// q, k `[n_key_heads, key_dim]`, v `[n_heads, value_dim]`, g `[n_heads]` or `[n_heads, key_dim]`:
    /// `S = exp(g) * S + k v^T; y = S^T q * scale`.
    Linear {
        /// Factor on what is read.
        scale: f32,
    },
    /// q, k `[n_heads, key_dim]`, v `[n_heads, value_dim]`: the same with `g = -slope(h) * factor` and a scale of 1, the
    /// slopes those of [`alibi_slope`](crate::alibi_slope) with a maximum of 8.
    ///
    /// Source: arXiv:2501.08313, section 2.2.
    Lightning {
        /// On the slopes.
        factor: f32,
    },
    /// c, b `[n_key_heads, key_dim]`, x `[n_heads, value_dim]`, dt `[n_heads]`: `S = exp(dt a[h]) * S + b (dt x)^T;
    /// y = S^T c + d[h] x`.
    ///
    /// Source: arXiv:2405.21060, section 2.
    Ssd {
        /// `[n_heads]`, below 0.
        a: WeightId,
        /// `[n_heads]`.
        d: WeightId,
    },
    /// c, b `[1, key_dim]`, x, dt `[1, value_dim]`, one head: `S = exp(dt a^T) S + b (dt x)^T`, the exponential element by
    /// element; `y = S^T c + d x`.
    ///
    /// Source: arXiv:2312.00752, section 3.
    Selective {
        /// `[value_dim, key_dim]`, below 0.
        a: WeightId,
        /// `[value_dim]`.
        d: WeightId,
    },
    /// r, k, g `[n_heads, key_dim]`, v `[n_heads, value_dim]`, in the order r, k, v, g: `y = (S + (first * k) v^T)^T r;
    /// S = exp(g) * S + k v^T`.
    ///
    /// Source: arXiv:2404.05892, section 4.
    Wkv6 {
        /// `[n_heads * key_dim]`.
        first: WeightId,
    },
    /// r, k, g, a, b `[n_heads, key_dim]`, v `[n_heads, value_dim]`, in the order r, k, v, g, a, b:
    /// `S = exp(g) * S + b (S^T a)^T + k v^T`, all of the right side's `S` the old one; `y = S^T r`.
    ///
    /// Source: arXiv:2503.14456, section 4.
    Wkv7,
}

/// A [`ScanKind`] without what is said of one model: its speed does not depend on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanRule {
    /// [`ScanKind::Delta`].
    Delta,
    /// [`ScanKind::Linear`].
    Linear,
    /// [`ScanKind::Lightning`].
    Lightning,
    /// [`ScanKind::Ssd`].
    Ssd,
    /// [`ScanKind::Selective`].
    Selective,
    /// [`ScanKind::Wkv6`].
    Wkv6,
    /// [`ScanKind::Wkv7`].
    Wkv7,
}

impl ScanRule {
    /// All of them.
    pub const ALL: [ScanRule; 7] = [
        ScanRule::Delta,
        ScanRule::Linear,
        ScanRule::Lightning,
        ScanRule::Ssd,
        ScanRule::Selective,
        ScanRule::Wkv6,
        ScanRule::Wkv7,
    ];

    /// Name for listings.
    pub fn name(self) -> &'static str {
        match self {
            ScanRule::Delta => "delta_net",
            ScanRule::Linear => "linear_attention",
            ScanRule::Lightning => "lightning_attention",
            ScanRule::Ssd => "ssd_scan",
            ScanRule::Selective => "selective_scan",
            ScanRule::Wkv6 => "wkv6",
            ScanRule::Wkv7 => "wkv7",
        }
    }

    /// Multiply-adds of a row with each number of the matrices.
    pub fn products(self) -> usize {
        match self {
            ScanRule::Linear | ScanRule::Lightning | ScanRule::Ssd => 3,
            // its exponential takes about ten
            ScanRule::Selective => 13,
            ScanRule::Delta | ScanRule::Wkv6 => 4,
            ScanRule::Wkv7 => 5,
        }
    }
}

impl ScanKind {
    /// Which one it is.
    pub fn rule(&self) -> ScanRule {
        match self {
            ScanKind::Delta { .. } => ScanRule::Delta,
            ScanKind::Linear { .. } => ScanRule::Linear,
            ScanKind::Lightning { .. } => ScanRule::Lightning,
            ScanKind::Ssd { .. } => ScanRule::Ssd,
            ScanKind::Selective { .. } => ScanRule::Selective,
            ScanKind::Wkv6 { .. } => ScanRule::Wkv6,
            ScanKind::Wkv7 => ScanRule::Wkv7,
        }
    }

    /// Name for listings.
    pub fn name(&self) -> &'static str {
        self.rule().name()
    }

    /// Its weights.
    pub(crate) fn weights(&self) -> impl Iterator<Item = WeightId> {
        let (first, second) = match *self {
            ScanKind::Ssd { a, d } | ScanKind::Selective { a, d } => (Some(a), Some(d)),
            ScanKind::Wkv6 { first } => (Some(first), None),
            ScanKind::Delta { .. }
            | ScanKind::Linear { .. }
            | ScanKind::Lightning { .. }
            | ScanKind::Wkv7 => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The same, to be changed.
    pub(crate) fn weights_mut(&mut self) -> impl Iterator<Item = &mut WeightId> {
        let (first, second) = match self {
            ScanKind::Ssd { a, d } | ScanKind::Selective { a, d } => (Some(a), Some(d)),
            ScanKind::Wkv6 { first } => (Some(first), None),
            ScanKind::Delta { .. }
            | ScanKind::Linear { .. }
            | ScanKind::Lightning { .. }
            | ScanKind::Wkv7 => (None, None),
        };
        first.into_iter().chain(second)
    }
}

//! [`Norm`]: how a group of numbers is brought to size.

use crate::WeightId;

/// A norm over each group of a row: `n(x) * weight + bias`, element by element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// What `n` is.
    pub kind: NormKind,
    /// Factors, `[dim]` for all groups or `[groups * dim]`; `None` for 1.
    pub weight: Option<WeightId>,
    /// What is added, as long as `weight` may be; `None` for 0.
    pub bias: Option<WeightId>,
    /// Added under the root.
    pub eps: f32,
}

/// How numbers are brought to size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps)` (arXiv:1910.07467).
    Rms,
    /// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)` (arXiv:1607.06450).
    Layer,
}

impl Norm {
    /// An RMS norm with factors.
    pub fn rms(weight: WeightId, eps: f32) -> Norm {
        Norm { kind: NormKind::Rms, weight: Some(weight), bias: None, eps }
    }

    /// Its vectors.
    pub fn vectors(&self) -> impl Iterator<Item = WeightId> {
        [self.weight, self.bias].into_iter().flatten()
    }
}

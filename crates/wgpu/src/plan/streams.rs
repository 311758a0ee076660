//! Works of single architectures.

use super::{MatrixId, Place, VectorId};

/// See [`GpuWork::Balance`](super::GpuWork::Balance).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BalanceWork {
    /// Rows of a matrix, and its columns.
    pub(crate) n: usize,
    pub(crate) rounds: u32,
    pub(crate) eps: f32,
    pub(crate) a: Place,
    pub(crate) out: Place,
}

/// See [`GpuWork::Grams`](super::GpuWork::Grams).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GramsWork {
    pub(crate) table: MatrixId,
    /// The multipliers, 16 bits at a time from the lowest on, 4 each; then of each head its first row and how many it has, 2
    /// each.
    pub(crate) numbers: VectorId,
    /// Ids that are hashed, at most.
    pub(crate) n_ids: usize,
    pub(crate) n_heads: usize,
    /// The id that ends a text.
    pub(crate) end: u32,
    /// Numbers of a row of the table.
    pub(crate) cols: usize,
    pub(crate) ids: Place,
    pub(crate) out: Place,
}

//! Phases of indexers.

use program::{Indexer, Selection};

use super::Operand;

/// Rotation, cache write and choice of what attention reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexerPhase {
    pub(crate) at: Indexer,
    /// Index in [`Plan::ropes`](super::Plan::ropes).
    pub(crate) rope: Option<usize>,
    /// That of keys.
    pub(crate) key_rope: Option<usize>,
    /// `[Tokens, heads * dim]`.
    pub(crate) q: Operand,
    /// `[Tokens, heads]`, where scores have such.
    pub(crate) weights: Option<Operand>,
    /// `[Tokens, dim]`.
    pub(crate) k: Operand,
    pub(crate) out: Operand,
}

impl IndexerPhase {
    /// Width of a key.
    pub(crate) fn dim(&self) -> usize {
        self.k.cols
    }

    /// Heads of a query.
    pub(crate) fn n_heads(&self) -> usize {
        self.q.cols / self.k.cols
    }

    /// Choices of a row.
    pub(crate) fn n_choices(&self) -> usize {
        self.out.cols / self.at.selection().n_units as usize
    }
}

/// What attention reads of what an indexer chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) select: Selection,
    /// `[Tokens, choices * n_units]`.
    pub(crate) units: Operand,
}

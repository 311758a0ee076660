//! Phases of latent attention.

use program::{CacheId, LatentUp, Mask, Norm, Score};

use super::{Chosen, Operand};
use crate::mla::MlaDims;

/// Columns of an operand, for each head or for one: those of head `h` start at `start + h * step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadColumns {
    pub(crate) operand: Operand,
    pub(crate) start: usize,
    pub(crate) step: usize,
}

/// What latent attention reads, whatever its form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatentInputs {
    pub(crate) cache: CacheId,
    /// Index in [`Plan::ropes`](super::Plan::ropes).
    pub(crate) rope: Option<usize>,
    pub(crate) up: LatentUp,
    pub(crate) dims: MlaDims,
    pub(crate) q_nope: HeadColumns,
    pub(crate) q_pe: HeadColumns,
    pub(crate) c: HeadColumns,
    /// Applied to `c`.
    pub(crate) norm: Option<Norm>,
    pub(crate) k_pe: HeadColumns,
}

/// Norm and rotation, cache write and attention over cached latents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LatentPhase {
    pub(crate) inputs: LatentInputs,
    pub(crate) score: Score,
    /// What of the positions is read, if not all.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) out: Operand,
}

impl LatentPhase {
    /// Whether query rows of all heads can go over the cached rows as they are.
    pub(crate) fn elides(&self) -> bool {
        let Score { scale: _, mask, softcap, sinks: _, temperature: _, alibi } = &self.score;
        *mask == Mask::Causal && softcap.is_none() && alibi.is_none()
    }
}

/// Rotated queries, keys and values of every head, for an attention phase that follows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpandPhase {
    pub(crate) inputs: LatentInputs,
    /// `[Tokens, rank + rope_dim]`: `c` and rotated `k_pe`.
    pub(crate) rows: Operand,
    /// `[Tokens, n_heads * (nope_dim + rope_dim)]`.
    pub(crate) q: Operand,
    /// As `q`.
    pub(crate) k: Operand,
    /// `[Tokens, n_heads * value_dim]`.
    pub(crate) v: Operand,
}

//! The lowered program: phases over buffers. Workers meet at a barrier after each phase.

use program::{Act, CacheId, Rope, Rows, WeightId};

/// Index of a buffer in [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufferId(pub(crate) usize);

/// Memory for `[rows, cols]` f32. Values whose lives do not overlap share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferSpec {
    pub(crate) rows: Rows,
    pub(crate) cols: usize,
}

/// `[rows, cols]` in a buffer, `cols` dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) buffer: BufferId,
    pub(crate) rows: Rows,
    pub(crate) cols: usize,
}

/// RMS norm parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norm {
    pub(crate) weight: WeightId,
    pub(crate) eps: f32,
}

/// An op whose output row depends on the same row of its inputs only.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowOp {
    /// Each run of `dim` elements is normed.
    Norm {
        x: Operand,
        norm: Norm,
        dim: usize,
        out: Operand,
    },
    GatedAct {
        act: Act,
        gate: Operand,
        up: Operand,
        out: Operand,
    },
    Add {
        a: Operand,
        b: Operand,
        out: Operand,
    },
    Scale {
        x: Operand,
        factor: f32,
        out: Operand,
    },
}

impl RowOp {
    /// Where the result goes.
    pub(crate) fn out(&self) -> Operand {
        match self {
            RowOp::Norm { out, .. }
            | RowOp::GatedAct { out, .. }
            | RowOp::Add { out, .. }
            | RowOp::Scale { out, .. } => *out,
        }
    }
}

/// What happens to a tile of a linear layer's outputs before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Epilogue {
    Store,
    /// Added to this operand, which no op of the phase writes.
    Add(Operand),
}

/// One matrix of a linear phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
}

/// The outputs of one matrix, or of a gate and an up matrix joined by an activation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    One { matrix: Matrix, epilogue: Epilogue, out: Operand },
    Gated { gate: Matrix, up: Matrix, act: Act, out: Operand },
}

impl Job {
    /// The matrices read, in the order of the weight stream.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = Matrix> {
        let (first, second) = match self {
            Job::One { matrix, .. } => (*matrix, None),
            Job::Gated { gate, up, .. } => (*gate, Some(*up)),
        };
        std::iter::once(first).chain(second)
    }
}

/// All linear layers that read the same input, the norm before them and the sums or activations after them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinearPhase {
    pub(crate) x: Operand,
    pub(crate) norm: Option<Norm>,
    pub(crate) jobs: Vec<Job>,
}

/// Rotation, cache write and attention of one layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionPhase {
    pub(crate) cache: CacheId,
    /// Index in [`Plan::ropes`].
    pub(crate) rope: Option<usize>,
    pub(crate) scale: f32,
    pub(crate) q: Operand,
    pub(crate) k: Operand,
    pub(crate) v: Operand,
    pub(crate) out: Operand,
}

/// Work between two barriers (some phases meet inside as well).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Embed { table: WeightId, out: Operand },
    Rows(Vec<RowOp>),
    Linear(LinearPhase),
    Attention(AttentionPhase),
    SelectRows { x: Operand, out: Operand },
}

impl Phase {
    /// Kind of work, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Phase::Embed { .. } => "embed",
            Phase::Rows(_) | Phase::SelectRows { .. } => "rows",
            Phase::Linear(_) => "linear",
            Phase::Attention(_) => "attention",
        }
    }
}

/// A lowered program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) phases: Vec<Phase>,
    pub(crate) buffers: Vec<BufferSpec>,
    /// Distinct rotations.
    pub(crate) ropes: Vec<Rope>,
    pub(crate) logits: Option<Operand>,
}

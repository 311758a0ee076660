//! [`GpuPlan`]: a lowered program. Works in order, over buffers that have a row for each token or each selected row.

use program::{Lookup, OutputKind, Rope, Rows, Score, Temperature, WeightId};
use quant::GgmlType;

use crate::formats::CHUNK;
use crate::kernels::Finish;

/// Index of a buffer in [`GpuPlan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueBuffer(pub(crate) usize);

/// Rows of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowsSpec {
    /// How many rows.
    pub(crate) rows: Rows,
    /// Numbers in a row. Those up to the stride are zeros.
    pub(crate) cols: usize,
}

impl RowsSpec {
    /// Numbers from a row to the next one.
    pub(crate) fn stride(&self) -> usize {
        self.cols.next_multiple_of(CHUNK)
    }
}

/// Where a value lies: in a buffer, from a column on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: ValueBuffer,
    pub(crate) offset: usize,
}

/// A matrix as it is packed: of one weight or several with the same inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatrixSpec {
    pub(crate) weights: Vec<WeightId>,
    /// Rows of two weights in turn, a gate's and what it lets through; else one weight's after another's.
    pub(crate) in_turn: bool,
    pub(crate) ty: GgmlType,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// Numbers that kernels read as they are, in f32.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VectorSpec {
    /// A weight.
    Weight(WeightId),
    /// Biases of the weights of a matrix, in the order of its rows; zeros for those that have none.
    Biases {
        /// A bias, if there is one, and how many rows it is for.
        parts: Vec<(Option<WeightId>, usize)>,
        /// As in [`MatrixSpec`].
        in_turn: bool,
    },
    /// Made by the plan.
    Numbers(Vec<f32>),
}

/// Index of a matrix in [`GpuPlan::matrices`].
pub(crate) type MatrixId = usize;
/// Index of a vector in [`GpuPlan::vectors`].
pub(crate) type VectorId = usize;

/// A norm of heads within attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadNorm {
    pub(crate) weight: Option<VectorId>,
    pub(crate) eps: f32,
}

/// Attention with what comes before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionWork {
    pub(crate) cache: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    pub(crate) q: Place,
    /// Keys and values that are appended.
    pub(crate) kv: Option<[Place; 2]>,
    /// Index in [`GpuPlan::rotations`].
    pub(crate) rotation: Option<usize>,
    pub(crate) interleaved: bool,
    pub(crate) rotated: usize,
    /// Index in [`GpuPlan::temperatures`].
    pub(crate) temperature: Option<usize>,
    /// Norms before the rotation of q and of k, then those behind it.
    pub(crate) norms: [Option<HeadNorm>; 4],
    pub(crate) score: Score,
    /// By head: what ALiBi takes by position.
    pub(crate) slopes: Option<VectorId>,
    pub(crate) sinks: Option<VectorId>,
    pub(crate) out: Place,
}

/// One step of the plan, which becomes a dispatch or a few.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GpuWork {
    /// Rows of a table.
    Embed { table: MatrixId, by: Lookup, out: Place },
    /// A product, finished, and a residual added.
    Linear {
        matrix: MatrixId,
        bias: Option<VectorId>,
        finish: Finish,
        x: Place,
        residual: Option<Place>,
        out: Place,
    },
    /// Each element by itself: what it is as an expression of `kernels/rows.wgsl`.
    Elements(ElementWork),
    /// Each group by itself.
    Groups(GroupWork),
    /// Attention.
    Attention(Box<AttentionWork>),
}

/// See [`GpuWork::Elements`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ElementWork {
    pub(crate) value: &'static str,
    pub(crate) finish: Finish,
    pub(crate) a: Place,
    pub(crate) b: Option<Place>,
    pub(crate) out: Place,
    pub(crate) cols: usize,
    /// What `p`, `q` and `r` are.
    pub(crate) sizes: [usize; 3],
    /// A vector whose first number is `p`.
    pub(crate) vector: Option<VectorId>,
    pub(crate) factor: f32,
}

/// See [`GpuWork::Groups`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupWork {
    pub(crate) body: &'static str,
    pub(crate) a: Place,
    pub(crate) b: Option<Place>,
    pub(crate) out: Place,
    pub(crate) groups: usize,
    pub(crate) dim: usize,
    /// Factors, and from one group's to the next one's.
    pub(crate) weight: Option<(VectorId, usize)>,
    /// What is added, likewise.
    pub(crate) bias: Option<(VectorId, usize)>,
    pub(crate) number: f32,
}

/// A lowered program.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuPlan {
    pub(crate) works: Vec<GpuWork>,
    pub(crate) buffers: Vec<RowsSpec>,
    pub(crate) matrices: Vec<MatrixSpec>,
    pub(crate) vectors: Vec<VectorSpec>,
    pub(crate) rotations: Vec<Rope>,
    pub(crate) temperatures: Vec<Temperature>,
    /// Rows that the caller gives.
    pub(crate) inputs: Vec<(Place, RowsSpec)>,
    /// What the caller receives: the kind, where it lies, its rows.
    pub(crate) outputs: Vec<(OutputKind, Place, RowsSpec)>,
}

impl GpuWork {
    /// Where it writes.
    pub(crate) fn out(&self) -> Place {
        match self {
            GpuWork::Embed { out, .. } | GpuWork::Linear { out, .. } => *out,
            GpuWork::Elements(work) => work.out,
            GpuWork::Groups(work) => work.out,
            GpuWork::Attention(work) => work.out,
        }
    }

    /// What it reads.
    pub(crate) fn inputs(&self) -> Vec<Place> {
        match self {
            GpuWork::Embed { .. } => Vec::new(),
            GpuWork::Linear { x, residual, .. } => {
                [Some(*x), *residual].into_iter().flatten().collect()
            }
            GpuWork::Elements(ElementWork { a, b, .. })
            | GpuWork::Groups(GroupWork { a, b, .. }) => {
                [Some(*a), *b].into_iter().flatten().collect()
            }
            GpuWork::Attention(work) => {
                std::iter::once(work.q).chain(work.kv.into_iter().flatten()).collect()
            }
        }
    }
}

impl GpuPlan {
    /// A buffer's rows.
    pub(crate) fn buffer(&self, id: ValueBuffer) -> &RowsSpec {
        &self.buffers[id.0]
    }

    /// Where an output of a kind lies.
    pub(crate) fn output(&self, kind: OutputKind) -> Option<&(OutputKind, Place, RowsSpec)> {
        self.outputs.iter().find(|(its, ..)| *its == kind)
    }
}

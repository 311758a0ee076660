//! The lowered program: phases over buffers. Workers meet at a barrier after each phase.

mod buffers;
mod indexer;
mod latent;
mod recurrence;
mod uses;

use kernels::rows::{Gated, Unary};
use program::{
    CacheId, ExpertBiases, Grams, Lookup, Norm, Rope, RotatedNorm, Router, Rows, Score, ValueId,
    WeightId,
};

use crate::geometry::TILE_ROWS;

pub(crate) use buffers::{BufferId, BufferSpec, Buffers};
pub(crate) use indexer::{Chosen, IndexerPhase};
pub(crate) use latent::{ExpandPhase, HeadColumns, LatentInputs, LatentPhase};
pub(crate) use recurrence::{Columns, ConvPhase, ScanPhase};

/// `[rows, cols]` of a value, `cols` dense. Which buffer it lies in, [`Buffers`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// Of the program, or beyond its last what lowering itself introduced.
    pub(crate) value: ValueId,
    pub(crate) rows: Rows,
    pub(crate) cols: usize,
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
    Act {
        act: Unary,
        x: Operand,
        out: Operand,
    },
    GatedAct {
        act: Gated,
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
    Shift {
        x: Operand,
        number: f32,
        out: Operand,
    },
    /// Times a vector, over and over along the row, each number of which goes with `each` of the row's.
    Multiply {
        x: Operand,
        weight: WeightId,
        each: usize,
        out: Operand,
    },
    /// `len` elements from `start` on of each run of `dim`.
    Slice {
        x: Operand,
        dim: usize,
        start: usize,
        out: Operand,
        len: usize,
    },
    Route {
        scores: Operand,
        router: Router,
        out: Operand,
    },
    /// One after another.
    Concat {
        values: Vec<Operand>,
        out: Operand,
    },
    /// Weighted sums of the `groups` of `x`.
    Mix {
        weights: Operand,
        x: Operand,
        groups: usize,
        out: Operand,
    },
    /// Each run of `dim` as long as that of `y`.
    Resize {
        x: Operand,
        y: Operand,
        dim: usize,
        out: Operand,
    },
    /// The sum of each run of `dim`.
    Sums {
        x: Operand,
        dim: usize,
        out: Operand,
    },
    /// Shares of each run of `dim`.
    Softmax {
        x: Operand,
        dim: usize,
        out: Operand,
    },
    /// Ids of tokens, counted from 1.
    Ids {
        out: Operand,
    },
    /// Roots of sizes, at least of `least`, with their signs.
    SignedRoot {
        x: Operand,
        least: f32,
        out: Operand,
    },
    /// The first numbers of all runs of `dim`, then the second ones.
    Turn {
        x: Operand,
        dim: usize,
        out: Operand,
    },
    /// Matrices of `n` rows, balanced and turned.
    Sinkhorn {
        x: Operand,
        n: usize,
        rounds: u32,
        eps: f32,
        out: Operand,
    },
    /// What exceeds the mean of each run of `dim` by so many deviations.
    Excess {
        x: Operand,
        dim: usize,
        deviations: f32,
        out: Operand,
    },
}

impl RowOp {
    /// Where the result goes.
    pub(crate) fn out(&self) -> Operand {
        match self {
            RowOp::Norm { out, .. }
            | RowOp::Act { out, .. }
            | RowOp::GatedAct { out, .. }
            | RowOp::Add { out, .. }
            | RowOp::Scale { out, .. }
            | RowOp::Shift { out, .. }
            | RowOp::Softmax { out, .. }
            | RowOp::Turn { out, .. }
            | RowOp::Ids { out }
            | RowOp::SignedRoot { out, .. }
            | RowOp::Sinkhorn { out, .. }
            | RowOp::Multiply { out, .. }
            | RowOp::Slice { out, .. }
            | RowOp::Concat { out, .. }
            | RowOp::Mix { out, .. }
            | RowOp::Resize { out, .. }
            | RowOp::Excess { out, .. }
            | RowOp::Sums { out, .. }
            | RowOp::Route { out, .. } => *out,
        }
    }
}

/// What happens to a tile of outputs before it is stored, with an operand that no op of the phase writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Link {
    /// `other + x`.
    Add(Operand),
    /// `act(gate) * x`, with a gate of one column.
    Gated { act: Unary, gate: Operand },
    /// `act(x) * up`, element by element.
    Gate { act: Unary, up: Operand },
    /// `act(x)`.
    Act(Unary),
}

impl Link {
    /// What it reads.
    pub(crate) fn operand(&self) -> Option<Operand> {
        match self {
            Link::Add(operand)
            | Link::Gated { gate: operand, .. }
            | Link::Gate { up: operand, .. } => Some(*operand),
            Link::Act(_) => None,
        }
    }
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
    One { matrix: Matrix, links: Vec<Link>, out: Operand },
    Gated { gate: Matrix, up: Matrix, act: Gated, out: Operand },
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
    pub(crate) norm: Option<RotatedNorm>,
    pub(crate) score: Score,
    /// Query heads per key-value head.
    pub(crate) group: usize,
    pub(crate) q: Operand,
    /// What goes into the cache; `None` where an earlier phase has put it there.
    pub(crate) new: Option<NewRows>,
    /// What of the positions is read, if not all.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) out: Operand,
}

/// Which rows of a table a row takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableRows {
    By(Lookup),
    /// One for each head, by hashes of these ids.
    Grams {
        grams: Grams,
        ids: Operand,
    },
}

/// A rotation, by the positions of rows or those before them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turning {
    pub(crate) rope: Rope,
    /// How many positions before.
    pub(crate) back: u32,
}

/// Keys and values of a step's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NewRows {
    pub(crate) k: Operand,
    pub(crate) v: Operand,
}

impl AttentionPhase {
    /// Tokens whose query heads attend together.
    pub(crate) fn tile_tokens(&self) -> usize {
        (TILE_ROWS / self.group).max(1)
    }

    /// Most query rows that attend together; [`TILE_ROWS`] at most, which `lower` ensures by its limit on groups.
    pub(crate) fn tile_rows(&self) -> usize {
        self.tile_tokens() * self.group
    }
}

/// What chooses the experts of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Routes {
    /// Ids and weights that an op before wrote.
    Given(Operand),
    /// Scores, from which the phase itself makes the routes.
    Scores { scores: Operand, router: Router, routes: Operand },
}

/// The experts of a layer, the norm before them and the sums after them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpertsPhase {
    pub(crate) x: Operand,
    pub(crate) norm: Option<Norm>,
    pub(crate) routes: Routes,
    /// `[n_experts * width, hidden]`.
    pub(crate) gate: WeightId,
    /// `[n_experts * width, hidden]`, or `gate`, which then holds both.
    pub(crate) up: WeightId,
    /// `[n_experts * hidden, width]`.
    pub(crate) down: WeightId,
    pub(crate) biases: Option<ExpertBiases>,
    pub(crate) act: Gated,
    /// There is no up: the activation is of one product alone.
    pub(crate) alone: Option<Unary>,
    /// Routes weigh inner products, not results.
    pub(crate) weighs_inputs: bool,
    pub(crate) n_experts: usize,
    pub(crate) n_used: usize,
    pub(crate) links: Vec<Link>,
    pub(crate) out: Operand,
}

/// Work between two barriers (some phases meet inside as well).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Embed { table: WeightId, by: TableRows, out: Operand },
    Rows(Vec<RowOp>),
    Linear(LinearPhase),
    Attention(AttentionPhase),
    Indexer(IndexerPhase),
    Latent(LatentPhase),
    Expand(ExpandPhase),
    Conv(ConvPhase),
    Scan(ScanPhase),
    Experts(ExpertsPhase),
    SelectRows { x: Operand, out: Operand },
    MeanRows { x: Operand, out: Operand },
}

/// What a cache keeps, as the phases that write and read it want it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cached {
    /// Keys and values by head.
    Heads {
        n_kv_heads: usize,
        key_dim: usize,
        value_dim: usize,
        /// Most positions that a query sees; `None`: all.
        window: Option<usize>,
        /// Most query rows of a tile, over the layers that read it.
        tile_rows: usize,
        /// Query heads of the layer that appends.
        n_heads: usize,
    },
    /// Latents, a row per position.
    Latent { rank: usize, rope_dim: usize },
    /// Keys of an indexer.
    Keys { dim: usize },
    /// Numbers that every position changes.
    State {
        /// Floats of the state.
        state: usize,
        /// Floats that a row gives.
        row: usize,
        /// Floats that a worker needs to change it.
        scratch: usize,
    },
}

/// A lowered program: phases as they are lowered or, with their weights, as they are loaded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan<P = Phase> {
    pub(crate) phases: Vec<P>,
    /// The phase that only hidden rows need, where the head norms on its own.
    pub(crate) hidden_phase: Option<usize>,
    pub(crate) buffers: Buffers,
    /// Distinct rotations.
    pub(crate) ropes: Vec<Turning>,
    /// What each cache of the program keeps; `None` for one that no phase uses.
    pub(crate) caches: Vec<Option<Cached>>,
    pub(crate) logits: Option<Operand>,
    /// What the head reads, if the program yields it.
    pub(crate) hidden: Option<Operand>,
    /// What the caller gives, in the order of the program's inputs.
    pub(crate) inputs: Vec<Operand>,
    /// What the caller receives whole: the outputs of kind `Rows`, in their order.
    pub(crate) handed: Vec<Operand>,
}

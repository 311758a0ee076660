//! [`GpuPlan`]: a lowered program. Works in order, over buffers that have a row for each token or each selected row.

mod indexer;
mod recurrence;
mod streams;

use program::{Lookup, OutputKind, Rope, Router, Rows, Score, Temperature, WeightId};
use quant::GgmlType;

use crate::formats::CHUNK;
use crate::kernels::{Finish, MATMAT_TILE};
pub(crate) use indexer::{ChosenUnits, IndexWork, index_words};
pub(crate) use recurrence::{ConvWork, ScanWork};
pub(crate) use streams::{BalanceWork, GramsWork};

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
    pub(crate) order: RowOrder,
    pub(crate) ty: GgmlType,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// Which rows of its weights a matrix has one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// All of a weight's, then the next one's.
    AsTheyAre,
    /// Of two weights in turn: a gate's and what it lets through.
    InTurn,
    /// The same of one weight, which has them in stretches: so many of a gate, then as many of what it lets through.
    Halves(usize),
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
        /// Of two weights in turn.
        in_turn: bool,
    },
    /// Made by the plan.
    Numbers(Vec<f32>),
}

/// Index of a matrix in [`GpuPlan::matrices`].
pub(crate) type MatrixId = usize;
/// Index of a vector in [`GpuPlan::vectors`].
pub(crate) type VectorId = usize;

/// An RMS norm within another work: of heads by attention, of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InnerNorm {
    pub(crate) weight: Option<VectorId>,
    pub(crate) eps: f32,
}

/// See [`AttentionWork::latents`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatentParts {
    /// Rotated parts of queries, and from a head's to the next one's.
    pub(crate) q_pe: Place,
    pub(crate) pe_pitch: usize,
    /// Numbers of a latent.
    pub(crate) rank: usize,
}

/// Attention with what comes before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionWork {
    pub(crate) cache: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// Of attention over latents: brought to these, so many numbers for each head as values have.
    pub(crate) q: Place,
    /// What attention over latents has beside. It has one key-value head, whose values are the first numbers of its keys,
    /// with zeros behind them up to whole chunks.
    pub(crate) latents: Option<LatentParts>,
    /// Keys and values that are appended; of latents these and the rotated parts of keys.
    pub(crate) kv: Option<[Place; 2]>,
    /// Index in [`GpuPlan::rotations`].
    pub(crate) rotation: Option<usize>,
    pub(crate) interleaved: bool,
    pub(crate) rotated: usize,
    /// Index in [`GpuPlan::temperatures`].
    pub(crate) temperature: Option<usize>,
    /// Norms before the rotation of q and of k, then those behind it.
    pub(crate) norms: [Option<InnerNorm>; 4],
    pub(crate) score: Score,
    /// By head: what ALiBi takes by position.
    pub(crate) slopes: Option<VectorId>,
    pub(crate) sinks: Option<VectorId>,
    /// `None`: it reads all that its mask lets it see.
    pub(crate) chosen: Option<ChosenUnits>,
    pub(crate) out: Place,
}

/// RMS norms of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormedRows {
    pub(crate) norm: InnerNorm,
    pub(crate) out: Place,
}

/// A rotation of rows that stand so many positions before their own, or at the first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    pub(crate) rope: Rope,
    pub(crate) back: u32,
}

/// One step of the plan, which becomes a dispatch or a few.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GpuWork {
    /// Rows of a table, and their norms beside.
    Embed { table: MatrixId, by: Lookup, out: Place, normed: Option<NormedRows> },
    /// A product, finished, and a residual added. Where `out` has the selected rows and `x` or the residual has all, kernels
    /// find these among them.
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
    /// Sums over each row and those before it.
    Conv(ConvWork),
    /// A recurrence over rows.
    Scan(Box<ScanWork>),
    /// The choice of experts.
    Route(RouteWork),
    /// Products with the pieces of a matrix, each in a slot of its own.
    Pieces(PiecesWork),
    /// The same with pieces turned.
    Turned(TurnedWork),
    /// The weighted sum of what experts make of their slots.
    Mixed(MixedWork),
    /// Which rows each expert has, of many.
    Sorted(SortedWork),
    /// Elements, of many rows alone.
    OfMany(ElementWork, Crowd),
    /// Ids of tokens, counted from 1.
    Ids { out: Place },
    /// Rows of a table by hashes of tokens.
    Grams(GramsWork),
    /// A matrix of each row is balanced.
    Balance(BalanceWork),
    /// The choice of what attention reads.
    Index(Box<IndexWork>),
}

/// Experts, for which rows may be many: enough that each has some. Then experts are gone through, with the rows of each,
/// instead of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) n_experts: usize,
    pub(crate) n_used: usize,
}

impl Crowd {
    /// Rows that each expert has at least, on average, where there are many.
    const EACH: usize = 8;
    /// Pairs of a row and a slot in a tile of the list.
    const PAIRS: usize = MATMAT_TILE;

    /// Whether so many rows are many.
    pub(crate) fn is_many(self, rows: usize) -> bool {
        rows * self.n_used >= Self::EACH * self.n_experts
    }

    /// Tiles of many rows, at most.
    pub(crate) fn most_tiles(self, rows: usize) -> usize {
        let pairs = rows * self.n_used;
        pairs / Self::PAIRS + self.n_experts.min(pairs)
    }

    /// Words of the list, for each of many rows: see `kernels/sorted.wgsl`.
    pub(crate) fn words(self) -> usize {
        // one of all, and of a tile two, and two for each pair
        let of_tile = 2 + 2 * Self::PAIRS;
        1 + (of_tile * self.n_used * (Self::EACH + Self::PAIRS)).div_ceil(Self::EACH * Self::PAIRS)
    }
}

/// See [`GpuWork::Sorted`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortedWork {
    pub(crate) crowd: Crowd,
    pub(crate) routes: ChosenPieces,
    /// The list.
    pub(crate) out: Place,
}

/// How products with pieces are made of many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Many {
    pub(crate) crowd: Crowd,
    /// Which rows each expert has.
    pub(crate) list: Place,
    /// Whether they are made of many rows alone.
    pub(crate) only: bool,
}

/// See [`GpuWork::Route`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteWork {
    pub(crate) router: Router,
    pub(crate) n_experts: usize,
    pub(crate) bias: Option<VectorId>,
    pub(crate) factors: Option<VectorId>,
    pub(crate) scores: Place,
    pub(crate) out: Place,
}

/// What a router wrote of a row: the numbers of experts, then their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChosenPieces {
    pub(crate) place: Place,
    pub(crate) n_used: usize,
    /// Whether the weights are factors here.
    pub(crate) weigh: bool,
}

/// See [`GpuWork::Pieces`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PiecesWork {
    pub(crate) matrix: MatrixId,
    /// Rows of a piece; those of them that are not multiplied, before the others; and how many are.
    pub(crate) each: usize,
    pub(crate) skipped: usize,
    pub(crate) taken: usize,
    /// Slots of a row.
    pub(crate) slots: usize,
    /// Which pieces are multiplied; `None`: the slot's own.
    pub(crate) routes: Option<ChosenPieces>,
    pub(crate) bias: Option<VectorId>,
    pub(crate) finish: Finish,
    pub(crate) x: Place,
    /// From what a slot is multiplied with to the next one's.
    pub(crate) x_pitch: usize,
    pub(crate) out: Place,
    /// From a slot to the next one.
    pub(crate) out_pitch: usize,
    /// `None`: as of few.
    pub(crate) many: Option<Many>,
}

/// See [`GpuWork::Turned`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TurnedWork {
    pub(crate) matrix: MatrixId,
    /// Rows of a piece, and how many of them are summed up, the first ones.
    pub(crate) each: usize,
    pub(crate) taken: usize,
    /// Slots of a row, which have a piece each.
    pub(crate) slots: usize,
    pub(crate) x: Place,
    /// From a slot's numbers to the next one's.
    pub(crate) x_pitch: usize,
    pub(crate) out: Place,
    /// From a slot to the next one: whole chunks.
    pub(crate) out_pitch: usize,
}

/// See [`GpuWork::Mixed`]. Of few rows alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MixedWork {
    pub(crate) crowd: Crowd,
    pub(crate) matrix: MatrixId,
    /// Rows of an expert.
    pub(crate) each: usize,
    pub(crate) routes: ChosenPieces,
    pub(crate) bias: Option<VectorId>,
    pub(crate) x: Place,
    pub(crate) x_pitch: usize,
    /// Added last; there is none where there are biases.
    pub(crate) residual: Option<Place>,
    pub(crate) out: Place,
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
    pub(crate) rotations: Vec<Rotation>,
    pub(crate) temperatures: Vec<Temperature>,
    /// Rows that the caller gives.
    pub(crate) inputs: Vec<(Place, RowsSpec)>,
    /// What the caller receives: the kind, where it lies, its rows.
    pub(crate) outputs: Vec<(OutputKind, Place, RowsSpec)>,
}

impl GpuWork {
    /// Where it writes: of several places the first.
    pub(crate) fn out(&self) -> Place {
        match self {
            GpuWork::Embed { out, .. } | GpuWork::Linear { out, .. } => *out,
            GpuWork::Elements(work) => work.out,
            GpuWork::Groups(work) => work.out,
            GpuWork::Attention(work) => work.out,
            GpuWork::Conv(work) => work.out,
            GpuWork::Scan(work) => work.out,
            GpuWork::Route(work) => work.out,
            GpuWork::Pieces(work) => work.out,
            GpuWork::Turned(work) => work.out,
            GpuWork::Mixed(work) => work.out,
            GpuWork::Sorted(work) => work.out,
            GpuWork::OfMany(work, _) => work.out,
            GpuWork::Ids { out } => *out,
            GpuWork::Grams(work) => work.out,
            GpuWork::Balance(work) => work.out,
            GpuWork::Index(work) => work.out,
        }
    }

    /// All that it writes.
    pub(crate) fn outs(&self) -> impl Iterator<Item = Place> {
        let normed = match self {
            GpuWork::Embed { normed, .. } => normed.map(|normed| normed.out),
            _ => None,
        };
        std::iter::once(self.out()).chain(normed)
    }

    /// What it reads.
    pub(crate) fn inputs(&self) -> Vec<Place> {
        match self {
            GpuWork::Embed { .. } | GpuWork::Ids { .. } => Vec::new(),
            GpuWork::Linear { x, residual, .. } => {
                [Some(*x), *residual].into_iter().flatten().collect()
            }
            GpuWork::Elements(ElementWork { a, b, .. })
            | GpuWork::OfMany(ElementWork { a, b, .. }, _)
            | GpuWork::Groups(GroupWork { a, b, .. }) => {
                [Some(*a), *b].into_iter().flatten().collect()
            }
            GpuWork::Attention(work) => {
                let q_pe = work.latents.map(|latents| latents.q_pe);
                let kv = work.kv.into_iter().flatten();
                let list = work.chosen.map(|chosen| chosen.list);
                std::iter::once(work.q).chain(q_pe).chain(kv).chain(list).collect()
            }
            GpuWork::Conv(work) => vec![work.x],
            GpuWork::Scan(work) => work.inputs.iter().map(|(place, _)| *place).collect(),
            GpuWork::Route(work) => vec![work.scores],
            GpuWork::Turned(work) => vec![work.x],
            GpuWork::Pieces(work) => {
                let routes = work.routes.map(|routes| routes.place);
                let list = work.many.map(|many| many.list);
                std::iter::once(work.x).chain(routes).chain(list).collect()
            }
            GpuWork::Sorted(work) => vec![work.routes.place],
            GpuWork::Grams(work) => vec![work.ids],
            GpuWork::Balance(work) => vec![work.a],
            GpuWork::Index(work) => [work.q, work.k].into_iter().chain(work.weights).collect(),
            GpuWork::Mixed(work) => {
                [work.x, work.routes.place].into_iter().chain(work.residual).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of which rows each expert has fits in what its rows have room for, as soon as it is written.
    #[test]
    fn lists_have_room() {
        for (n_experts, n_used) in [(1, 1), (2, 1), (6, 2), (8, 2), (60, 4), (128, 8), (513, 10)] {
            let crowd = Crowd { n_experts, n_used };
            let first = (1..).find(|rows| crowd.is_many(*rows)).expect("some are many");
            for rows in (first..first + 100).chain([4096]) {
                let most = 1 + (2 + 2 * Crowd::PAIRS) * crowd.most_tiles(rows);
                assert!(most <= rows * crowd.words(), "{n_used} of {n_experts}, {rows} rows");
            }
        }
    }
}

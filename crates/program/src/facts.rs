//! [`Facts`]: the fact sheet of each op. Planners, executors and passes ask here instead of matching ops on their own, so
//! that a new op is described once, and does not compile before.
//!
//! What only one executor needs, how it fuses or packs, is not here.

use crate::{CacheId, LatentUp, Mask, Op, Program, Rope, Score, WeightId, WeightSpec};

/// What is known of an op.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The weights it reads, in the order of its documentation.
    pub weights: Vec<WeightUse>,
    /// What a row of its output depends on.
    pub rows: RowRule,
    /// The cache it works on.
    pub state: Option<StateUse>,
    /// What its work is counted in.
    pub counted: Counted,
}

/// One weight of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightUse {
    /// The weight.
    pub id: WeightId,
    /// How much of it is read.
    pub reading: Reading,
}

/// How an op reads a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A matrix, all of it, for any number of rows.
    Matrix,
    /// A vector, likewise.
    Vector,
    /// One row of a table for each row of the output.
    TableRow,
    /// Matrices of the same shape that stand one after another, of which each row reads some: experts.
    Copies {
        /// How many there are.
        n: usize,
        /// How many one row reads.
        n_used: usize,
    },
    /// A vector of which something else is made when the program is loaded; no step reads it.
    OnLoad,
}

/// What a row of an op's output depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRule {
    /// The row's token.
    Token,
    /// The same row of every input.
    SameRow,
    /// The same row of the inputs that are not appended to the cache, and what the cache holds of its sequence.
    Sequence {
        /// Later rows, too: all rows of a sequence must come in one step.
        whole: bool,
    },
    /// One row of the input: it stands among those that the step selects.
    Selects,
}

/// A cache as an op uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateUse {
    /// The cache it reads.
    pub cache: CacheId,
    /// The first of the inputs that it appends to the cache; all after it are appended, too.
    pub first_appended: usize,
}

/// What an op's work is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Rows of a table that are copied.
    Lookup,
    /// Multiply-adds of each row with each weight of the matrices.
    Matrices,
    /// Multiply-adds of each row with the matrices of the experts it uses.
    Experts {
        /// How many there are.
        n_experts: usize,
        /// How many a row uses.
        n_used: usize,
        /// The last of an expert's matrices: its inputs are activations, its outputs are summed.
        down: WeightId,
    },
    /// Multiply-adds of each query with each position it sees, and bytes of the cache.
    Attention {
        /// What a query sees.
        mask: Mask,
    },
    /// Likewise over latents: see [`MlaDims`](crate::MlaDims).
    LatentAttention,
    /// Elements of its input: a sum over each group comes before them.
    Norm,
    /// Elements of its widest input.
    Elements,
    /// Nothing: numbers keep their values, and may stay where they are.
    Nothing,
}

impl Op {
    /// The op's fact sheet.
    pub fn facts(&self) -> Facts {
        use Reading::{Copies, Matrix, OnLoad, TableRow, Vector};
        let used = |id: WeightId, reading| WeightUse { id, reading };
        let optional = |id: Option<WeightId>, reading| id.map(|id| used(id, reading));
        let factors =
            |rope: &Option<Rope>| optional(rope.as_ref().and_then(|rope| rope.factors), OnLoad);
        let sinks = |score: &Score| optional(score.sinks, Vector);
        let same_row =
            |weights, counted| Facts { weights, rows: RowRule::SameRow, state: None, counted };
        match self {
            Op::Embed { table } => Facts {
                weights: vec![used(*table, TableRow)],
                rows: RowRule::Token,
                state: None,
                counted: Counted::Lookup,
            },
            Op::RmsNorm { weight, eps: _ } => same_row(vec![used(*weight, Vector)], Counted::Norm),
            Op::Linear { weight, bias } => {
                let weights = [used(*weight, Matrix)].into_iter();
                same_row(weights.chain(optional(*bias, Vector)).collect(), Counted::Matrices)
            }
            Op::Attention(at) => Facts {
                weights: factors(&at.rope).into_iter().chain(sinks(&at.score)).collect(),
                rows: RowRule::Sequence { whole: at.score.mask == Mask::Full },
                state: Some(StateUse { cache: at.cache, first_appended: 1 }),
                counted: Counted::Attention { mask: at.score.mask },
            },
            Op::LatentAttention(at) => {
                let up = match at.up {
                    LatentUp::Split { k_b, v_b } => vec![used(k_b, Matrix), used(v_b, Matrix)],
                    LatentUp::Joint { kv_b } => vec![used(kv_b, Matrix)],
                };
                let vectors = factors(&at.rope).into_iter().chain(sinks(&at.score));
                Facts {
                    weights: up.into_iter().chain(vectors).collect(),
                    rows: RowRule::Sequence { whole: at.score.mask == Mask::Full },
                    state: Some(StateUse { cache: at.cache, first_appended: 2 }),
                    counted: Counted::LatentAttention,
                }
            }
            Op::Route(router) => {
                let bias = optional(router.bias, Vector);
                same_row(bias.into_iter().collect(), Counted::Elements)
            }
            Op::Experts { gate, up, down, act: _, n_experts, n_used } => {
                let (n_experts, n_used) = (*n_experts, *n_used);
                let reading = Copies { n: n_experts, n_used };
                let weights = [gate, up, down].map(|id| used(*id, reading));
                let counted = Counted::Experts { n_experts, n_used, down: *down };
                same_row(weights.to_vec(), counted)
            }
            Op::Act(_) | Op::GatedAct(_) | Op::Add | Op::Scale(_) => {
                same_row(Vec::new(), Counted::Elements)
            }
            Op::View | Op::Slice { start: _, len: _ } => same_row(Vec::new(), Counted::Nothing),
            Op::SelectRows => Facts {
                weights: Vec::new(),
                rows: RowRule::Selects,
                state: None,
                counted: Counted::Nothing,
            },
        }
    }
}

impl Reading {
    /// Equal parts of which the weight consists: rows of a table, experts, or the one it is.
    pub fn parts(self, spec: &WeightSpec) -> u64 {
        match self {
            Reading::Matrix | Reading::Vector | Reading::OnLoad => 1,
            Reading::TableRow => spec.rows.max(1) as u64,
            Reading::Copies { n, .. } => n.max(1) as u64,
        }
    }

    /// How many of its parts one row reads.
    pub fn parts_per_row(self) -> u64 {
        match self {
            Reading::Matrix | Reading::Vector | Reading::TableRow => 1,
            Reading::Copies { n_used, .. } => n_used as u64,
            Reading::OnLoad => 0,
        }
    }
}

impl Program {
    /// Bytes of weights one step of one token reads: each weight once per node that multiplies with it, one row of
    /// every embedding table, the experts that one row uses.
    pub fn weight_bytes_per_token(&self) -> u64 {
        let bytes = |used: WeightUse| {
            let spec = self.weight(used.id);
            spec.bytes() / used.reading.parts(spec) * used.reading.parts_per_row()
        };
        let weights = self.nodes.iter().flat_map(|node| node.op.facts().weights);
        weights.map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of all weights, as the file has them.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.iter().map(WeightSpec::bytes).fold(0, u64::saturating_add)
    }

    /// How many tokens its tables know, the least of them; `None` if it has none.
    pub fn n_tokens(&self) -> Option<usize> {
        let weights = self.nodes.iter().flat_map(|node| node.op.facts().weights);
        let tables = weights.filter(|used| used.reading == Reading::TableRow);
        tables.map(|used| self.weight(used.id).rows).min()
    }
}

//! [`Facts`]: the fact sheet of each op. Planners, executors and passes ask here instead of matching ops on their own, so
//! that a new op is described once, and does not compile before.
//!
//! What only one executor needs, how it fuses or packs, is not here.

use crate::{
    Attention, CacheId, ExpertBiases, IndexScore, Indexer, LatentAttention, LatentUp, Lookup, Mask,
    Node, Op, Program, Rope, Score, Selection, WeightId, WeightSpec,
};

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
    /// Vectors of which each row reads some: biases of experts.
    Vectors {
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
    /// The row's token or its position.
    Given,
    /// The same row of every input.
    SameRow,
    /// The rows of its sequence: of the inputs that are not appended to a cache the same one, or, without a cache, all.
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
    /// The first of the inputs that it appends to the cache; those after it are appended, too.
    pub first_appended: usize,
    /// Inputs at the end that are not.
    pub n_after: usize,
}

impl StateUse {
    /// Whether input `i` of `n` is appended to the cache.
    pub fn appends(&self, i: usize, n: usize) -> bool {
        i >= self.first_appended && i + self.n_after < n
    }
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
        /// What of that it reads; `None`: all.
        select: Option<Selection>,
    },
    /// Likewise over latents: see [`MlaDims`](crate::MlaDims).
    LatentAttention {
        /// As for attention.
        select: Option<Selection>,
    },
    /// Multiply-adds of each query of an indexer with each position it sees, where there is a choice.
    Indexer {
        /// What is chosen.
        select: Selection,
    },
    /// Multiply-adds of each row, and bytes of a state of fixed size.
    State {
        /// Multiply-adds of a row.
        products: usize,
    },
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
        use Reading::{Copies, Matrix, TableRow, Vector, Vectors};
        let same_row =
            |weights, counted| Facts { weights, rows: RowRule::SameRow, state: None, counted };
        match self {
            Op::Embed { table, by: _ } => Facts {
                weights: vec![used(*table, TableRow)],
                rows: RowRule::Given,
                state: None,
                counted: Counted::Lookup,
            },
            Op::Ids => Facts {
                weights: Vec::new(),
                rows: RowRule::Given,
                state: None,
                counted: Counted::Lookup,
            },
            Op::Grams { table, grams: _ } => {
                same_row(vec![used(*table, TableRow)], Counted::Lookup)
            }
            Op::Norm(norm) => {
                let vectors = norm.vectors().map(|id| used(id, Vector));
                same_row(vectors.collect(), Counted::Norm)
            }
            Op::Linear { weight, bias } => {
                let weights = [used(*weight, Matrix)].into_iter();
                same_row(weights.chain(optional(*bias, Vector)).collect(), Counted::Matrices)
            }
            Op::Attention(at) => attention(at),
            Op::LatentAttention(at) => latent_attention(at),
            Op::Indexer(at) => indexer(at),
            Op::CausalConv(conv) => {
                recurrent(conv.taps.into_iter().chain(conv.bias), conv.cache, 0, 0)
            }
            Op::Scan(scan) => {
                let products = scan.kind.rule().products() * scan.dims.elements();
                recurrent(scan.kind.weights(), scan.cache, 1, products)
            }
            Op::Route(router) => {
                let vectors = [router.bias, router.factors].into_iter().flatten();
                same_row(vectors.map(|id| used(id, Vector)).collect(), Counted::Elements)
            }
            Op::Experts { gate, up, down, biases, n_experts, n_used, .. } => {
                let (n_experts, n_used) = (*n_experts, *n_used);
                let (matrix, vector) =
                    (Copies { n: n_experts, n_used }, Vectors { n: n_experts, n_used });
                let apart = Some(*up).filter(|up| up != gate);
                let matrices = [Some(*gate), apart, Some(*down)].into_iter().flatten();
                let matrices = matrices.map(|id| used(id, matrix));
                let vectors = biases.iter().flat_map(ExpertBiases::all).map(|id| used(id, vector));
                let counted = Counted::Experts { n_experts, n_used, down: *down };
                same_row(matrices.chain(vectors).collect(), counted)
            }
            Op::Act(_)
            | Op::GatedAct(_)
            | Op::Add
            | Op::Scale(_)
            | Op::Shift(_)
            | Op::SignedRoot { least: _ } => same_row(Vec::new(), Counted::Elements),
            Op::Multiply { weight, by_group: _ } => {
                same_row(vec![used(*weight, Vector)], Counted::Elements)
            }
            Op::Mix | Op::Resize => same_row(Vec::new(), Counted::Elements),
            Op::Excess { deviations: _ }
            | Op::SumGroups
            | Op::Softmax
            | Op::Sinkhorn { rounds: _, eps: _ } => same_row(Vec::new(), Counted::Norm),
            Op::View | Op::Concat | Op::Turn | Op::Slice { start: _, len: _ } => {
                same_row(Vec::new(), Counted::Nothing)
            }
            Op::SelectRows => Facts {
                weights: Vec::new(),
                rows: RowRule::Selects,
                state: None,
                counted: Counted::Nothing,
            },
            Op::MeanRows => Facts {
                weights: Vec::new(),
                rows: RowRule::Sequence { whole: true },
                state: None,
                counted: Counted::Elements,
            },
        }
    }
}

fn used(id: WeightId, reading: Reading) -> WeightUse {
    WeightUse { id, reading }
}

fn optional(id: Option<WeightId>, reading: Reading) -> Option<WeightUse> {
    id.map(|id| used(id, reading))
}

fn factors(rope: Option<&Rope>) -> Option<WeightUse> {
    optional(rope.and_then(|rope| rope.factors), Reading::OnLoad)
}

fn sinks(score: &Score) -> Option<WeightUse> {
    optional(score.sinks, Reading::Vector)
}

fn attention(at: &Attention) -> Facts {
    let norms = at.norm.iter().flat_map(|norm| [norm.q, norm.k]).flatten();
    let norms = norms.map(|id| used(id, Reading::Vector));
    Facts {
        weights: (factors(at.rope.as_ref()).into_iter())
            .chain(norms)
            .chain(sinks(&at.score))
            .collect(),
        rows: RowRule::Sequence { whole: at.score.mask.looks_ahead() },
        state: Some(StateUse {
            cache: at.cache,
            first_appended: 1,
            n_after: usize::from(at.select.is_some()),
        }),
        counted: Counted::Attention { mask: at.score.mask, select: at.select },
    }
}

fn latent_attention(at: &LatentAttention) -> Facts {
    let matrix = |id| used(id, Reading::Matrix);
    let up = match at.up {
        LatentUp::Split { k_b, v_b } => vec![matrix(k_b), matrix(v_b)],
        LatentUp::Joint { kv_b } => vec![matrix(kv_b)],
    };
    let vectors = factors(at.rope.as_ref()).into_iter().chain(sinks(&at.score));
    Facts {
        weights: up.into_iter().chain(vectors).collect(),
        rows: RowRule::Sequence { whole: at.score.mask.looks_ahead() },
        state: Some(StateUse {
            cache: at.cache,
            first_appended: 2,
            n_after: usize::from(at.select.is_some()),
        }),
        counted: Counted::LatentAttention { select: at.select },
    }
}

fn indexer(at: &Indexer) -> Facts {
    let first_appended = match at.score {
        IndexScore::Weighted => 2,
        IndexScore::PerHead => 1,
    };
    Facts {
        weights: factors(at.rope.as_ref()).into_iter().collect(),
        rows: RowRule::Sequence { whole: false },
        state: Some(StateUse { cache: at.cache, first_appended, n_after: 0 }),
        counted: Counted::Indexer { select: at.selection() },
    }
}

/// Of an op that recurs.
fn recurrent(
    weights: impl Iterator<Item = WeightId>,
    cache: CacheId,
    first_appended: usize,
    products: usize,
) -> Facts {
    Facts {
        weights: weights.map(|id| WeightUse { id, reading: Reading::Vector }).collect(),
        rows: RowRule::Sequence { whole: false },
        state: Some(StateUse { cache, first_appended, n_after: 0 }),
        counted: Counted::State { products },
    }
}

impl Op {
    /// Give every weight and cache of the op another id.
    pub(crate) fn relabel(
        &mut self,
        weight: &mut dyn FnMut(WeightId) -> WeightId,
        cache: &mut dyn FnMut(CacheId) -> CacheId,
    ) {
        let mut set = |id: &mut WeightId| *id = weight(*id);
        match self {
            Op::Embed { table, by: _ } | Op::Grams { table, grams: _ } => set(table),
            Op::Norm(norm) => {
                [&mut norm.weight, &mut norm.bias].into_iter().flatten().for_each(set);
            }
            Op::Linear { weight, bias } => {
                set(weight);
                bias.iter_mut().for_each(set);
            }
            Op::Attention(at) => {
                at.cache = cache(at.cache);
                at.rope.iter_mut().flat_map(|rope| &mut rope.factors).for_each(&mut set);
                let norms = at.norm.iter_mut().flat_map(|norm| [&mut norm.q, &mut norm.k]);
                norms.flatten().for_each(&mut set);
                at.score.sinks.iter_mut().for_each(set);
            }
            Op::LatentAttention(at) => {
                at.cache = cache(at.cache);
                match &mut at.up {
                    LatentUp::Split { k_b, v_b } => [k_b, v_b].into_iter().for_each(&mut set),
                    LatentUp::Joint { kv_b } => set(kv_b),
                }
                at.rope.iter_mut().flat_map(|rope| &mut rope.factors).for_each(&mut set);
                at.score.sinks.iter_mut().for_each(set);
            }
            Op::Indexer(at) => {
                at.cache = cache(at.cache);
                at.rope.iter_mut().flat_map(|rope| &mut rope.factors).for_each(set);
            }
            Op::CausalConv(conv) => {
                conv.cache = cache(conv.cache);
                [&mut conv.taps, &mut conv.bias].into_iter().flatten().for_each(set);
            }
            Op::Scan(scan) => {
                scan.cache = cache(scan.cache);
                scan.kind.weights_mut().for_each(set);
            }
            Op::Route(router) => {
                [&mut router.bias, &mut router.factors].into_iter().flatten().for_each(set);
            }
            Op::Experts { gate, up, down, biases, .. } => {
                [gate, up, down].into_iter().for_each(&mut set);
                let vectors = biases.iter_mut().flat_map(|b| [&mut b.gate, &mut b.up, &mut b.down]);
                vectors.for_each(set);
            }
            Op::Multiply { weight, by_group: _ } => set(weight),
            Op::Act(_)
            | Op::GatedAct(_)
            | Op::Add
            | Op::Scale(_)
            | Op::Shift(_)
            | Op::SignedRoot { least: _ }
            | Op::Ids
            | Op::View
            | Op::Slice { start: _, len: _ }
            | Op::Concat
            | Op::Mix
            | Op::Resize
            | Op::Excess { deviations: _ }
            | Op::SumGroups
            | Op::Softmax
            | Op::Turn
            | Op::Sinkhorn { rounds: _, eps: _ }
            | Op::SelectRows
            | Op::MeanRows => {}
        }
    }
}

impl Node {
    /// The cache that it appends to, if it does.
    pub fn appends_to(&self) -> Option<CacheId> {
        let state = self.op.facts().state?;
        let n = self.inputs.len();
        (0..n).any(|i| state.appends(i, n)).then_some(state.cache)
    }
}

impl Reading {
    /// Equal parts of which the weight consists: rows of a table, experts, or the one it is.
    pub fn parts(self, spec: &WeightSpec) -> u64 {
        match self {
            Reading::Matrix | Reading::Vector | Reading::OnLoad => 1,
            Reading::TableRow => spec.rows.max(1) as u64,
            Reading::Copies { n, .. } | Reading::Vectors { n, .. } => n.max(1) as u64,
        }
    }

    /// How many of its parts one row reads.
    pub fn parts_per_row(self) -> u64 {
        match self {
            Reading::Matrix | Reading::Vector | Reading::TableRow => 1,
            Reading::Copies { n_used, .. } | Reading::Vectors { n_used, .. } => n_used as u64,
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
        self.least_rows(Lookup::Token)
    }

    /// How many positions its tables know, the least of them; `None` if it has none.
    pub fn n_positions(&self) -> Option<usize> {
        self.least_rows(Lookup::Position)
    }

    fn least_rows(&self, wanted: Lookup) -> Option<usize> {
        let rows = |node: &Node| match node.op {
            Op::Embed { table, by } if by == wanted => Some(self.weight(table).rows),
            _ => None,
        };
        self.nodes.iter().filter_map(rows).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Attention, CacheKind, CacheSpec, ExpertWeights, Gating, LatentAttention, Program, Recorder,
        RopePairs, RopeScaling, Router,
    };

    /// One op of each kind with all the weights it can have, each weight its own.
    fn program() -> Program {
        let r = Recorder::new();
        let n = std::cell::Cell::new(0);
        let weight = |rows, cols| {
            n.set(n.get() + 1);
            let name = format!("w{}", n.get());
            r.weight(WeightSpec { name, ty: quant::GgmlType::F32, rows, cols, start: 0 })
        };
        let vector = |cols| weight(1, cols);
        let rope = |dims| {
            let (pairs, scaling) = (RopePairs::HalfSplit, RopeScaling::None);
            Some(Rope { pairs, dims, theta: 1e4, scaling, factors: Some(vector(dims / 2)) })
        };
        let kind = CacheKind::Heads { n_kv_heads: 1, key_dim: 4, value_dim: 4, window: None };
        let x = r.embed(weight(8, 4)).unwrap();
        let at = r.lookup("positions", weight(6, 4), Lookup::Position).unwrap();
        let x = r.add("placed", x, at).unwrap();
        let heads = vec![crate::GramHead { start: 0, n_rows: 3 }];
        let grams = crate::Grams { multipliers: vec![1, 2], heads, end: 0 };
        let ids = r.ids("ids").unwrap();
        let pair = r.concat("pair", &[ids, ids]).unwrap();
        r.grams("grams", pair, weight(3, 2), grams).unwrap();
        let x = r.rms_norm("norm", x, vector(4), 1e-6).unwrap();
        let biased = crate::LinearWeight { weight: weight(4, 4), bias: Some(vector(4)) };
        let q = r.linear("q", x, biased).unwrap();
        let mut at = Attention::causal(r.cache(CacheSpec { layer: 0, kind }), rope(4), 1.0);
        at.norm = Some(crate::RotatedNorm { q: Some(vector(4)), k: Some(vector(4)), eps: 1e-6 });
        at.score.sinks = Some(vector(1));
        r.attention("attn", at, &[q, x, x]).unwrap();
        let [nope, pe] = [(0, 2), (2, 2)].map(|(start, len)| r.slice("s", x, start, len).unwrap());
        for up in [
            LatentUp::Split { k_b: weight(2, 2), v_b: weight(3, 2) },
            LatentUp::Joint { kv_b: weight(5, 2) },
        ] {
            let kind = CacheKind::Latent { rank: 2, rope_dim: 2 };
            let cache = r.cache(CacheSpec { layer: 1, kind });
            let mut at = LatentAttention::causal(cache, rope(2), up, 1.0);
            at.score.sinks = Some(vector(1));
            r.latent_attention("latent", at, [nope, pe, nope, pe]).unwrap();
        }
        let cache = r.cache(CacheSpec { layer: 2, kind: CacheKind::Keys { dim: 4 } });
        let indexer = crate::Indexer {
            cache,
            rope: rope(4),
            rope_start: 0,
            keys_back: 0,
            score: IndexScore::PerHead,
            unit: 2,
            unit_score: crate::UnitScore::Greatest,
            n_units: 3,
            n_last: 1,
        };
        r.indexer("chosen", indexer, &[x, x]).unwrap();
        let conv = crate::ConvWeights { taps: weight(4, 2), bias: Some(vector(4)) };
        r.causal_conv("conv", x, conv, None).unwrap();
        let (a, d) = (vector(1), vector(1));
        let time = r.slice("time", x, 0, 1).unwrap();
        r.scan("ssd", crate::ScanKind::Ssd { a, d }, false, &[x, x, x, time]).unwrap();
        let first = vector(4);
        r.scan("wkv6", crate::ScanKind::Wkv6 { first }, false, &[x, x, x, x]).unwrap();
        let gating = Gating::Softmax;
        let bias = Some(vector(4));
        let factors = Some(vector(4));
        let router = Router {
            n_used: 2,
            gating,
            bias,
            groups: None,
            normalize: true,
            scale: 1.0,
            factors,
            per_chunk: 1,
        };
        let routes = r.route("routes", x, router).unwrap();
        let [gate, up, down] = [(12, 4), (12, 4), (16, 3)].map(|(rows, cols)| weight(rows, cols));
        let [b_gate, b_up, b_down] = [12, 12, 16].map(|n| weight(4, n / 4));
        let biases = Some(crate::ExpertBiases { gate: b_gate, up: b_up, down: b_down });
        let experts = ExpertWeights { gate, up, down, biases, n_experts: 4, weighs_inputs: false };
        r.experts("experts", experts, crate::Act::Silu, x, routes).unwrap();
        r.multiply("factors", x, vector(4)).unwrap();
        r.finish(&[])
    }

    #[test]
    fn every_weight_and_cache_is_named() {
        let program = program();
        let facts = || program.nodes.iter().map(|node| node.op.facts());
        let mut weights: Vec<u32> = facts().flat_map(|f| f.weights).map(|used| used.id.0).collect();
        weights.sort_unstable();
        assert_eq!(weights, Vec::from_iter(0..program.weights.len() as u32));
        let caches: Vec<u32> = facts().filter_map(|f| f.state).map(|used| used.cache.0).collect();
        assert_eq!(caches, [0, 1, 2, 3, 4, 5, 6]);
        // relabelling meets the same ones
        for node in &program.nodes {
            let (mut op, facts) = (node.op.clone(), node.op.facts());
            let (mut weights, mut caches) = (0, 0);
            op.relabel(
                &mut |id| {
                    weights += 1;
                    WeightId(id.0 + 1000)
                },
                &mut |id| {
                    caches += 1;
                    CacheId(id.0 + 1000)
                },
            );
            assert_eq!(
                (weights, caches),
                (facts.weights.len(), usize::from(facts.state.is_some()))
            );
            let moved = op.facts();
            for (was, is) in facts.weights.iter().zip(&moved.weights) {
                assert_eq!((was.id.0 + 1000, was.reading), (is.id.0, is.reading));
            }
        }
    }

    #[test]
    fn a_token_reads_rows_matrices_and_some_copies() {
        let program = program();
        // two rows and a shorter one, a norm, a matrix and its bias, two norms, three lots of sinks, k_b, v_b, kv_b, taps and their bias, of
        // scans a rate, a factor and what is first, the router's bias and factors, two experts with their biases, factors
        let elements = 8
            + 2
            + 4
            + 16
            + 4
            + 8
            + 3
            + 4
            + 6
            + 10
            + 12
            + 6
            + 8
            + 2 * (12 + 12 + 12 + 3 + 3 + 4)
            + 4;
        assert_eq!(program.weight_bytes_per_token(), 4 * elements);
        assert_eq!((program.n_tokens(), program.n_positions()), (Some(8), Some(6)));
    }
}

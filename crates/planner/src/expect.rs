//! [`Executed`]: a program as an executor runs it, and [`Expected`]: how long that takes with measured [`Rates`].
//!
//! [`crate::cost`] counts what has to be done at least; here stands what is done: the last layer's attention works for
//! every token although one output is wanted, matrices of one input share a phase, norms before matrices cost nothing
//! of their own.

use std::ops::Range;

use program::{
    CacheKind, CacheType, Counted, KvPolicy, Mask, MlaDims, MlaForm, Program, Reading, Rows,
    Selection, Uses, ValueId, WeightUse,
};
use quant::GgmlType;

use crate::cost::{Load, few_chunks};
use crate::formula::positions_seen;
use crate::latent;
use crate::moe::distinct_experts;
use crate::rates::{AttentionShape, LinearRate, MlaShape, Rates, WantedRates, smallest_chunk};
use crate::reads::{Reads, choosing};
use crate::scans::ScanShape;

/// Seconds to be expected, by what they go into.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Matrices of the layers.
    pub linear: f64,
    /// Attention.
    pub attention: f64,
    /// What recurs.
    pub states: f64,
    /// The output head.
    pub head: f64,
    /// Norms and the like that stand alone.
    pub rest: f64,
    /// What phases cost beside their work.
    pub phases: f64,
    /// What a step costs outside its phases.
    pub step: f64,
}

impl Expected {
    /// All of it, in seconds.
    pub fn total(&self) -> f64 {
        self.linear + self.attention + self.states + self.head + self.rest + self.phases + self.step
    }

    /// One after the other.
    #[must_use]
    pub fn plus(&self, other: &Expected) -> Expected {
        Expected {
            linear: self.linear + other.linear,
            attention: self.attention + other.attention,
            states: self.states + other.states,
            head: self.head + other.head,
            rest: self.rest + other.rest,
            phases: self.phases + other.phases,
            step: self.step + other.step,
        }
    }

    /// The same `n` times.
    #[must_use]
    pub fn times(&self, n: u64) -> Expected {
        let n = n as f64;
        Expected {
            linear: self.linear * n,
            attention: self.attention * n,
            states: self.states * n,
            head: self.head * n,
            rest: self.rest * n,
            phases: self.phases * n,
            step: self.step * n,
        }
    }
}

/// A part of a pass between two barriers.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Matrices with the same input.
    Linear {
        input: ValueId,
        rows: Rows,
        head: bool,
        weights: Vec<(GgmlType, u64)>,
    },
    Attention {
        shape: AttentionShape,
        reads: Reads,
    },
    Experts {
        rows: Rows,
        n_experts: u64,
        n_used: u64,
        /// Of one expert.
        weights: Vec<(GgmlType, u64)>,
    },
    Latent {
        shape: MlaShape,
        select: Option<Selection>,
    },
    Indexer {
        /// Multiply-adds per query and position.
        macs: u64,
        select: Selection,
    },
    Scan {
        shape: ScanShape,
        /// Multiply-adds per row.
        products: u64,
    },
    /// Element-wise ops that nothing takes in; embedding has no elements to count.
    Elements {
        rows: Rows,
        elements: u64,
    },
}

impl Part {
    /// Seconds that its matrices take for `n` rows, and what its phases cost beside; `None` if a type was not measured.
    fn matrices(&self, n: u64, rates: &Rates) -> Option<(f64, f64)> {
        let sum = |weights: &[(GgmlType, u64)], seconds: &dyn Fn(&LinearRate) -> f64| {
            let each = weights.iter().map(|(ty, n)| Some(seconds(rates.linear(*ty)?) * *n as f64));
            each.sum::<Option<f64>>()
        };
        match self {
            Part::Linear { weights, .. } => {
                let seconds =
                    |rate: &LinearRate| if n == 0 { 0.0 } else { rate.seconds_per_weight(n) };
                let phases = weights.iter().filter_map(|(ty, _)| rates.linear(*ty));
                let phase = phases.map(|rate| rate.phase).fold(0.0, f64::max);
                Some((sum(weights, &seconds)?, phase))
            }
            Part::Experts { n_experts, n_used, weights, .. } => {
                let distinct = distinct_experts(*n_experts, *n_used, n);
                let seconds = |rate: &LinearRate| expert_seconds(rate, n * n_used, distinct);
                // both rounds
                Some((sum(weights, &seconds)?, 2.0 * rates.phase()))
            }
            Part::Attention { .. }
            | Part::Latent { .. }
            | Part::Indexer { .. }
            | Part::Scan { .. }
            | Part::Elements { .. } => Some((0.0, 0.0)),
        }
    }
}

/// Multiply-adds of a state or an indexer that take as long as a number of a norm, where nothing was measured.
const PRODUCTS: u64 = 16;

/// Seconds per weight of one expert, for all rows that `distinct` experts share evenly.
fn expert_seconds(rate: &LinearRate, rows: u64, distinct: f64) -> f64 {
    if rows == 0 {
        return 0.0;
    }
    distinct * rate.seconds_per_weight(((rows as f64 / distinct).round() as u64).max(1))
}

/// A program as it is executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    parts: Vec<Part>,
    vocab_size: u64,
}

impl Executed {
    /// Of `program` with these types of cache.
    pub fn of(program: &Program, k: CacheType, v: CacheType) -> Executed {
        Executed::with(program, k, v, &KvPolicy::Full)
    }

    /// Of `program` with these types of cache, of which queries read what a policy says.
    pub fn with(program: &Program, k: CacheType, v: CacheType, policy: &KvPolicy) -> Executed {
        let program = &program::passes::narrow(program);
        let uses = Uses::of(program);
        let counted = |node: usize| program.nodes[node].op.facts().counted;
        let taken_in = |norm: ValueId| {
            program.value(norm).shape.groups == 1
                && uses.feeds_only_unasked(norm, |node| {
                    matches!(counted(node), Counted::Matrices | Counted::Experts { .. })
                })
        };
        let mut parts: Vec<Part> = Vec::new();
        for (index, node) in program.nodes.iter().enumerate() {
            let facts = node.op.facts();
            let rows = program.value(node.output).shape.rows;
            let matrices = |used: &WeightUse| {
                let spec = program.weight(used.id);
                let weights = (spec.rows * spec.cols) as u64 / used.reading.parts(spec);
                match used.reading {
                    Reading::Matrix | Reading::Copies { .. } => Some((spec.ty, weights)),
                    Reading::Vector
                    | Reading::Vectors { .. }
                    | Reading::TableRow
                    | Reading::OnLoad => None,
                }
            };
            let matrices = facts.weights.iter().filter_map(matrices);
            match facts.counted {
                Counted::Matrices => {
                    let source = uses.root(node.inputs[0]);
                    let same = parts.iter_mut().find_map(|part| match part {
                        Part::Linear { input, weights, .. } if *input == source => Some(weights),
                        _ => None,
                    });
                    match same {
                        Some(weights) => weights.extend(matrices),
                        None => parts.push(Part::Linear {
                            input: source,
                            rows,
                            head: node.layer.is_none(),
                            weights: matrices.collect(),
                        }),
                    }
                }
                Counted::Attention { mask, select } => {
                    let Some((cache, CacheKind::Heads { n_kv_heads, key_dim, value_dim, .. })) =
                        facts.state.map(|used| (used.cache, program.cache(used.cache).kind))
                    else {
                        unreachable!("the recorder gave attention a cache of heads")
                    };
                    let n_heads = program.value(node.inputs[0]).shape.groups;
                    let shape = AttentionShape { n_heads, n_kv_heads, key_dim, value_dim, k, v };
                    let seen = Reads::of(program, node, cache, mask, policy);
                    let reads = select.map_or(seen, Reads::Selected);
                    parts.push(Part::Attention { shape, reads });
                }
                Counted::Experts { n_experts, n_used, .. } => parts.push(Part::Experts {
                    rows,
                    n_experts: n_experts as u64,
                    n_used: n_used as u64,
                    weights: matrices.collect(),
                }),
                Counted::LatentAttention { select } => {
                    let shape = MlaShape { dims: MlaDims::of(program, node), k };
                    parts.push(Part::Latent { shape, select });
                }
                Counted::Indexer { select } => {
                    let macs = program.value(node.inputs[0]).shape.cols() as u64;
                    parts.push(Part::Indexer { macs, select });
                }
                Counted::State { products } => {
                    let products = products as u64;
                    parts.push(match ScanShape::of(program, index) {
                        Some(shape) => Part::Scan { shape, products },
                        None => Part::Elements { rows, elements: products / PRODUCTS },
                    });
                }
                Counted::Lookup => parts.push(Part::Elements { rows, elements: 0 }),
                Counted::Norm if !taken_in(node.output) => {
                    let new = program.value(node.output).shape.cols() as u64;
                    match parts.last_mut() {
                        Some(Part::Elements { elements, .. }) if *elements > 0 => *elements += new,
                        _ => parts.push(Part::Elements { rows, elements: new }),
                    }
                }
                // sums and activations ride on the matrices before them
                Counted::Norm | Counted::Elements | Counted::Nothing => {}
            }
        }
        Executed { parts, vocab_size: program.vocab_size() as u64 }
    }

    /// What must be measured to expect its times.
    pub fn wanted(&self) -> WantedRates {
        let mut wanted = WantedRates::default();
        for part in &self.parts {
            match part {
                Part::Linear { weights, .. } | Part::Experts { weights, .. } => {
                    for (ty, _) in weights {
                        if !wanted.types.contains(ty) {
                            wanted.types.push(*ty);
                        }
                    }
                }
                Part::Attention { shape, .. } if !wanted.attention.contains(shape) => {
                    wanted.attention.push(*shape);
                }
                Part::Latent { shape, .. } if !wanted.latent.contains(shape) => {
                    wanted.latent.push(*shape);
                }
                Part::Scan { shape, .. } if !wanted.scans.contains(shape) => {
                    wanted.scans.push(*shape);
                }
                Part::Attention { .. }
                | Part::Latent { .. }
                | Part::Scan { .. }
                | Part::Indexer { .. }
                | Part::Elements { .. } => {}
            }
        }
        wanted
    }

    /// One pass; `None` if a type, a kind of cache or a shape of latent attention was not measured.
    pub fn pass(&self, load: &Load, rates: &Rates) -> Option<Expected> {
        self.part_of(&(load.past..load.past.saturating_add(load.tokens)), load, rates)
    }

    /// A pass of the prompt at these positions.
    fn part_of(&self, prompt: &Range<u64>, load: &Load, rates: &Rates) -> Option<Expected> {
        let outputs = load.outputs.min(load.tokens);
        let count = |rows: Rows| match rows {
            Rows::Tokens => load.tokens,
            Rows::Selected => outputs,
        };
        let mut expected = Expected::default();
        for part in &self.parts {
            let (n, phase) = match part {
                Part::Linear { rows, .. } | Part::Experts { rows, .. } => {
                    let n = count(*rows);
                    let (seconds, phase) = part.matrices(n, rates)?;
                    let head = matches!(part, Part::Linear { head: true, .. });
                    *(if head { &mut expected.head } else { &mut expected.linear }) += seconds;
                    (n, phase)
                }
                Part::Attention { shape, reads } => {
                    let rate = rates.attention(shape)?;
                    expected.attention += rate.seconds(*reads, load.past, load.tokens);
                    // what the phase costs is in the rate
                    (0, 0.0)
                }
                Part::Latent { shape, select } => {
                    let form = latent::form(&shape.dims, prompt.clone());
                    let rate = rates.latent(shape)?;
                    let (limit, [all, few]) = match select {
                        None => (0, [load.tokens, 0]),
                        Some(select) => {
                            (select.limit() as u64, choosing(select, load.past, load.tokens))
                        }
                    };
                    let each = rate.seconds(MlaForm::Elided, limit.saturating_sub(1), 1);
                    expected.attention += rate.seconds(form, load.past, all) + each * few as f64;
                    (0, 0.0)
                }
                Part::Scan { shape, products } => match rates.scan(shape) {
                    Some(rate) => {
                        expected.states += rate.seconds(load.tokens);
                        (0, 0.0)
                    }
                    None => {
                        let elements = load.tokens.saturating_mul(products / PRODUCTS);
                        expected.states += rates.overheads.element * elements as f64;
                        (load.tokens, rates.phase())
                    }
                },
                Part::Indexer { macs, select } => {
                    let [all, few] = choosing(select, load.past, load.tokens);
                    let before = load.past.saturating_add(all);
                    let pairs = positions_seen(Mask::Causal, before, few, 1) as f64;
                    expected.attention +=
                        rates.overheads.element * pairs * *macs as f64 / PRODUCTS as f64;
                    (load.tokens, rates.phase())
                }
                Part::Elements { rows, elements } => {
                    let elements = count(*rows) * elements;
                    expected.rest += rates.overheads.element * elements as f64;
                    (count(*rows), rates.phase())
                }
            };
            expected.phases += if n > 0 { phase } else { 0.0 };
        }
        let logits = outputs.saturating_mul(self.vocab_size);
        expected.step = rates.overheads.step + rates.overheads.logit * logits as f64;
        Some(expected)
    }

    /// The step of one token on a cache of `depth` positions.
    pub fn step(&self, depth: u64, rates: &Rates) -> Option<Expected> {
        self.pass(&Load::step(depth), rates)
    }

    /// The tokens of a prompt at these positions, those before them being cached, in passes of `chunk` tokens, to the
    /// logits of the last one.
    pub fn prefill(&self, positions: Range<u64>, chunk: u64, rates: &Rates) -> Option<Expected> {
        few_chunks(positions.clone(), chunk).try_fold(Expected::default(), |all, (load, n)| {
            Some(all.plus(&self.part_of(&positions, &load, rates)?.times(n)))
        })
    }

    /// The chunk in which prompts are best cut: the smallest of 64, 128, 256 and 512 rows of which a row takes at most
    /// 1 % longer in the layers' matrices than one of 512. `None` if a type was not measured.
    pub fn chunk(&self, rates: &Rates) -> Option<u64> {
        let of_tokens = |part: &&Part| {
            matches!(
                part,
                Part::Linear { rows: Rows::Tokens, .. } | Part::Experts { rows: Rows::Tokens, .. }
            )
        };
        let parts: Vec<&Part> = self.parts.iter().filter(of_tokens).collect();
        let seconds = |rows| {
            let parts = parts.iter().map(|part| part.matrices(rows, rates));
            parts.map(|part| part.map(|(seconds, phase)| seconds + phase)).sum::<Option<f64>>()
        };
        // what is known for one row is for any number
        seconds(1)?;
        Some(smallest_chunk(|rows| seconds(rows).unwrap_or(0.0)))
    }
}

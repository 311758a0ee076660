//! [`Cost`]: what each op of a program reads and computes, counted from the program itself.
//!
//! A count is exact for weights, cache and multiply-adds. Activations that the processor's caches cannot hold are counted
//! apart and enter no limit, for an executor may fuse them away; nor does element-wise work, which is counted in
//! elements. Closed forms of the same totals: [`crate::formula`].

use program::{
    CacheId, CacheSpec, CacheType, ContextMemory, Counted, KvPolicy, Node, Program, Rows,
    StateCopies, WeightSpec,
};
use quant::GgmlType;
use std::ops::Range;

use crate::formula::{Head, Parameters, product, sum};
use crate::op::OpCost;
use crate::reads::CacheCost;

/// How a program is run, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostOptions {
    /// Type of cached keys.
    pub k: CacheType,
    /// Type of cached values.
    pub v: CacheType,
    /// What of the past queries read.
    pub policy: KvPolicy,
    /// Queries of a pass that share one read of the cache, at least 1; `usize::MAX`: all of them, which is the least that
    /// has to be read, 1 is attention without tiles.
    pub query_tile: usize,
    /// Rows that no output needs are not counted: of the last layer, all but its keys and values. That is the least that
    /// has to be done, which executors come near to; without it the program is counted as recorded.
    pub narrow: bool,
    /// The largest value, in bytes of f32, that ops pass on within the processor's caches; `u64::MAX`: all of them.
    pub processor_cache: u64,
}

impl Default for CostOptions {
    fn default() -> Self {
        let kv = CacheType::default();
        CostOptions {
            k: kv,
            v: kv,
            policy: KvPolicy::Full,
            query_tile: usize::MAX,
            narrow: true,
            processor_cache: u64::MAX,
        }
    }
}

/// What part of a model an op belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CostKind {
    /// Rows of the embedding table.
    Embed,
    /// Matrices of the layers, with their biases; experts.
    Linear,
    /// Scores and sums over the cache, and the write to it; with latent attention, the matrices within it.
    Attention,
    /// What recurs: states read and changed, convolutions.
    States,
    /// The output head.
    Head,
    /// Norms, activations, residuals.
    Rest,
}

impl CostKind {
    /// Every kind, in the order a token meets them.
    pub const ALL: [CostKind; 6] = [
        CostKind::Embed,
        CostKind::Linear,
        CostKind::Attention,
        CostKind::States,
        CostKind::Head,
        CostKind::Rest,
    ];

    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            CostKind::Embed => "embed",
            CostKind::Linear => "linear",
            CostKind::Attention => "attention",
            CostKind::States => "states",
            CostKind::Head => "head",
            CostKind::Rest => "rest",
        }
    }
}

/// One pass over the weights for rows of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Positions the cache holds before it.
    pub past: u64,
    /// New tokens.
    pub tokens: u64,
    /// How many of them, the last ones, yield logits.
    pub outputs: u64,
}

impl Load {
    /// One token on a cache of `depth` positions.
    pub fn step(depth: u64) -> Load {
        Load { past: depth, tokens: 1, outputs: 1 }
    }

    /// A prompt of `n` tokens on an empty cache.
    pub fn prompt(n: u64, head: Head) -> Load {
        let outputs = match head {
            Head::LastToken => n.min(1),
            Head::EveryToken => n,
        };
        Load { past: 0, tokens: n, outputs }
    }
}

/// What has to be done: a sum over ops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Weights read, in elements, if all rows use the same experts.
    pub weights: u64,
    /// Weights read, in bytes, if all rows use the same experts.
    pub weight_bytes: u64,
    /// The same if every row uses other experts, until there are no more.
    pub most_weight_bytes: u64,
    /// Keys and values read, in bytes.
    pub cache_read_bytes: u64,
    /// Keys and values written, in bytes.
    pub cache_write_bytes: u64,
    /// Inputs and outputs of ops that the processor's caches cannot hold, read and written, in bytes.
    pub activation_bytes: u64,
    /// Multiply-adds with weights and caches in blocks, which can be done in 8-bit integers.
    pub int8_macs: u64,
    /// Multiply-adds with weights and caches in half precision.
    pub f16_macs: u64,
    /// Multiply-adds with weights in bfloat16.
    pub bf16_macs: u64,
    /// Multiply-adds with weights and caches in single precision.
    pub f32_macs: u64,
    /// Elements that norms, activations, sums and biases yield.
    pub elements: u64,
    /// Times that all threads meet: once after attention, after the embedding, and after all matrices of one input.
    pub barriers: u64,
}

impl Work {
    /// Bytes of weights and cache that move at least.
    pub fn bytes(&self) -> u64 {
        sum(&[self.weight_bytes, self.cache_read_bytes, self.cache_write_bytes])
    }

    /// Bytes of weights and cache that move at most, all rows using other experts.
    pub fn most_bytes(&self) -> u64 {
        sum(&[self.most_weight_bytes, self.cache_read_bytes, self.cache_write_bytes])
    }

    /// Multiply-adds of all kinds.
    pub fn macs(&self) -> u64 {
        sum(&[self.int8_macs, self.f16_macs, self.bf16_macs, self.f32_macs])
    }

    /// So many multiply-adds with numbers of this kind.
    pub(crate) fn of_macs(numbers: Numbers, macs: u64) -> Work {
        let mut work = Work::default();
        *match numbers {
            Numbers::Blocks => &mut work.int8_macs,
            Numbers::F16 => &mut work.f16_macs,
            Numbers::Bf16 => &mut work.bf16_macs,
            Numbers::F32 => &mut work.f32_macs,
        } = macs;
        work
    }

    /// FLOP: 2 per multiply-add.
    pub fn flop(&self) -> u64 {
        self.macs().saturating_mul(2)
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Work) -> Work {
        Work {
            weights: self.weights.saturating_add(other.weights),
            weight_bytes: self.weight_bytes.saturating_add(other.weight_bytes),
            most_weight_bytes: self.most_weight_bytes.saturating_add(other.most_weight_bytes),
            cache_read_bytes: self.cache_read_bytes.saturating_add(other.cache_read_bytes),
            cache_write_bytes: self.cache_write_bytes.saturating_add(other.cache_write_bytes),
            activation_bytes: self.activation_bytes.saturating_add(other.activation_bytes),
            int8_macs: self.int8_macs.saturating_add(other.int8_macs),
            f16_macs: self.f16_macs.saturating_add(other.f16_macs),
            bf16_macs: self.bf16_macs.saturating_add(other.bf16_macs),
            f32_macs: self.f32_macs.saturating_add(other.f32_macs),
            elements: self.elements.saturating_add(other.elements),
            barriers: self.barriers.saturating_add(other.barriers),
        }
    }

    /// The same `n` times.
    #[must_use]
    pub fn times(&self, n: u64) -> Work {
        Work {
            weights: self.weights.saturating_mul(n),
            weight_bytes: self.weight_bytes.saturating_mul(n),
            most_weight_bytes: self.most_weight_bytes.saturating_mul(n),
            cache_read_bytes: self.cache_read_bytes.saturating_mul(n),
            cache_write_bytes: self.cache_write_bytes.saturating_mul(n),
            activation_bytes: self.activation_bytes.saturating_mul(n),
            int8_macs: self.int8_macs.saturating_mul(n),
            f16_macs: self.f16_macs.saturating_mul(n),
            bf16_macs: self.bf16_macs.saturating_mul(n),
            f32_macs: self.f32_macs.saturating_mul(n),
            elements: self.elements.saturating_mul(n),
            barriers: self.barriers.saturating_mul(n),
        }
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), |all, work| all.plus(&work))
    }
}

/// What kind of number weights and caches hold, which says what arithmetic they allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Small integers with a scale for each block.
    Blocks,
    F16,
    Bf16,
    F32,
}

impl Numbers {
    /// Of weights.
    pub(crate) fn of_weights(ty: GgmlType) -> Numbers {
        match ty {
            _ if ty.block_len() > 1 => Numbers::Blocks,
            GgmlType::F16 => Numbers::F16,
            GgmlType::Bf16 => Numbers::Bf16,
            _ => Numbers::F32,
        }
    }

    /// Of a cache.
    pub(crate) fn of_cache(ty: CacheType) -> Numbers {
        match ty {
            CacheType::F32 => Numbers::F32,
            CacheType::F16 => Numbers::F16,
            CacheType::Q8_0 => Numbers::Blocks,
        }
    }
}

/// Weights of one type in a model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeBytes {
    /// Name as GGUF tools print it, e.g. `Q4_K`.
    pub name: &'static str,
    /// Tensors.
    pub tensors: usize,
    /// Weights.
    pub weights: u64,
    /// Bytes, block scales included.
    pub bytes: u64,
}

/// The cost of a program, for any pass over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    ops: Vec<OpCost>,
    /// Ops that cost the same, as those of layers alike do: the first of them, and how many they are.
    alike: Vec<(usize, u64)>,
    types: Vec<TypeBytes>,
    caches: Vec<CacheCost>,
    state_bytes: [u64; 2],
}

impl Cost {
    /// Count the ops of `program`.
    pub fn of(program: &Program, options: &CostOptions) -> Cost {
        let rows = if options.narrow { needed(program) } else { recorded(program) };
        let mut input = None;
        let op = |node: &Node| {
            let matrices = node.op.facts().counted == Counted::Matrices;
            let shares_input = matrices && input == Some(node.inputs[0]);
            if matrices {
                input = Some(node.inputs[0]);
            }
            OpCost::of(program, node, &rows, options, shares_input)
        };
        let ops: Vec<OpCost> = program.nodes.iter().map(op).collect();
        let cache = |(id, cache): (usize, &CacheSpec)| {
            let bytes = cache.kind.position_bytes(options.k, options.v);
            CacheCost::of(program, CacheId(id as u32), cache, bytes, &options.policy)
        };
        let caches = program.caches.iter().enumerate().map(cache).collect();
        let state_bytes = [program.state_bytes(), program.recurrent_bytes(StateCopies::Most)];
        let alike = alike(&ops);
        Cost { ops, alike, types: types(program), caches, state_bytes }
    }

    /// The ops, in order.
    pub fn ops(&self) -> &[OpCost] {
        &self.ops
    }

    /// Weights by type, in the order in which the program first names them; tied tables once.
    pub fn weight_types(&self) -> &[TypeBytes] {
        &self.types
    }

    /// Bytes of all weights in memory, as the file has them.
    pub fn resident_bytes(&self) -> u64 {
        self.types.iter().fold(0, |all, ty| all.saturating_add(ty.bytes))
    }

    /// Bytes one position adds to the cache, over all layers, while all windows have room.
    pub fn cache_bytes_per_token(&self) -> u64 {
        self.caches.iter().fold(0, |all, cache| all.saturating_add(cache.position_bytes))
    }

    /// Bytes that one more position adds at last to what a step reads: of the layers that read all there are.
    pub fn lasting_bytes_per_token(&self) -> u64 {
        // as many as the largest super-blocks have: what one adds may be less than a byte of a layer
        const MANY: u64 = 128 * ContextMemory::SUPER as u64;
        let bytes = self.caches.iter().map(|cache| cache.lasting_bytes(MANY));
        bytes.fold(0, u64::saturating_add).div_ceil(MANY)
    }

    /// Bytes of a session's states, once and with those that it can go back to.
    pub fn state_bytes(&self) -> [u64; 2] {
        self.state_bytes
    }

    /// Bytes that a step reads at most of the layers that keep a window or a state, or choose what they read.
    pub fn bounded_bytes(&self) -> u64 {
        self.caches.iter().map(CacheCost::bounded_bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of a cache of so many positions; what has left a window takes none.
    pub fn cache_bytes(&self, positions: u64) -> u64 {
        self.caches.iter().map(|cache| cache.bytes(positions)).fold(0, u64::saturating_add)
    }

    /// Weights by part of the model: of the embedding all rows, which a step reads only one of; of experts those that a
    /// token uses and the others apart.
    pub fn parameters(&self) -> Parameters {
        let embedding = self.ops.iter().map(OpCost::table_weights).fold(0, u64::saturating_add);
        let step = self.step(0);
        let head = step.of_kind(CostKind::Head).weights;
        let in_layers = [CostKind::Linear, CostKind::Attention, CostKind::States, CostKind::Rest];
        let layers = sum(&in_layers.map(|kind| step.of_kind(kind).weights));
        let idle = self.ops.iter().map(OpCost::idle_weights).fold(0, u64::saturating_add);
        let held = self.types.iter().fold(0, |all: u64, ty| all.saturating_add(ty.weights));
        let shared = sum(&[layers, idle, head, embedding]).saturating_sub(held);
        Parameters { layers, idle, head, embedding, shared }
    }

    /// The same where every query of a prompt reads the cache for itself: attention without tiles.
    #[must_use]
    pub fn untiled(&self) -> Cost {
        let mut cost = self.clone();
        cost.ops.iter_mut().for_each(OpCost::untile);
        cost
    }

    /// A pass over the program.
    pub fn pass(&self, load: &Load) -> Pass<'_> {
        Pass { ops: &self.ops, work: self.ops.iter().map(|op| op.work(load)).collect() }
    }

    /// All of such a pass, without looking at each op.
    pub fn total(&self, load: &Load) -> Work {
        self.alike.iter().map(|(first, n)| self.ops[*first].work(load).times(*n)).sum()
    }

    /// The step of one token on a cache of `depth` positions.
    pub fn step(&self, depth: u64) -> Pass<'_> {
        self.pass(&Load::step(depth))
    }

    /// A prompt of `n` tokens in one pass on an empty cache.
    pub fn prefill(&self, n: u64, head: Head) -> Pass<'_> {
        self.pass(&Load::prompt(n, head))
    }

    /// The tokens of a prompt at these positions in [`chunks`].
    pub fn prefill_in_chunks(&self, positions: Range<u64>, chunk: u64) -> Work {
        let passes = few_chunks(positions, chunk);
        passes.map(|(load, n)| self.total(&load).times(n)).sum()
    }
}

/// The tokens of a prompt at these positions, those before them being cached, in passes of `chunk` tokens (at least 1),
/// of which the last yields logits.
pub fn chunks(positions: Range<u64>, chunk: u64) -> impl Iterator<Item = Load> {
    let chunk = chunk.max(1);
    let Range { start, end } = positions;
    (0..end.saturating_sub(start).div_ceil(chunk)).map(move |i| {
        let past = start + i * chunk;
        let tokens = chunk.min(end - past);
        Load { past, tokens, outputs: u64::from(past + tokens == end) }
    })
}

/// Stretches in which [`few_chunks`] takes the chunks of a long prompt together.
const STRETCHES: u64 = 64;

/// The passes of [`chunks`], those of a stretch of a long prompt taken together: the one in its middle, and how many
/// it stands for. Sums are exact of what grows in proportion to the past, as all work does; no prompt makes more than
/// 128.
pub(crate) fn few_chunks(positions: Range<u64>, chunk: u64) -> impl Iterator<Item = (Load, u64)> {
    let chunk = chunk.max(1);
    let Range { start, end } = positions;
    // the last one yields logits, and may be shorter
    let n = end.saturating_sub(start).div_ceil(chunk).saturating_sub(1);
    let last = start + n * chunk;
    // of an odd number one is in the middle
    let length = (n / STRETCHES) | 1;
    let mut at = 0;
    let stretches = std::iter::from_fn(move || {
        let left = n - at;
        let count = if left >= length { length } else { left.checked_sub(1)? | 1 };
        let past = start + (at + count / 2) * chunk;
        at += count;
        Some((Load { past, tokens: chunk, outputs: 0 }, count))
    });
    stretches.chain(chunks(last..end, chunk).map(|load| (load, 1)))
}

/// The work of one pass, op by op.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass<'a> {
    ops: &'a [OpCost],
    work: Vec<Work>,
}

impl Pass<'_> {
    /// Each op with its work, in order.
    pub fn ops(&self) -> impl ExactSizeIterator<Item = (&OpCost, &Work)> {
        self.ops.iter().zip(&self.work)
    }

    /// All of it.
    pub fn total(&self) -> Work {
        self.work.iter().copied().sum()
    }

    /// The ops of one kind.
    pub fn of_kind(&self, kind: CostKind) -> Work {
        self.ops().filter(|(op, _)| op.kind == kind).map(|(_, work)| *work).sum()
    }

    /// The ops of one layer; `None` for those outside all layers.
    pub fn of_layer(&self, layer: Option<usize>) -> Work {
        self.ops().filter(|(op, _)| op.layer == layer).map(|(_, work)| *work).sum()
    }
}

/// Kinds of ops that are looked at for one that costs the same: more than a few layers have.
const KINDS: usize = 64;

/// Ops that cost the same.
fn alike(ops: &[OpCost]) -> Vec<(usize, u64)> {
    let mut alike: Vec<(usize, u64)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let mut latest = alike.iter_mut().rev().take(KINDS);
        match latest.find(|(first, _)| ops[*first].costs_as(op)) {
            Some((_, n)) => *n += 1,
            None => alike.push((i, 1)),
        }
    }
    alike
}

pub(crate) fn n_weights(spec: &WeightSpec) -> u64 {
    product(&[spec.rows as u64, spec.cols as u64])
}

fn types(program: &Program) -> Vec<TypeBytes> {
    let mut types: Vec<TypeBytes> = Vec::new();
    for spec in &program.weights {
        let name = spec.ty.name();
        let at = types.iter().position(|ty| ty.name == name).unwrap_or_else(|| {
            types.push(TypeBytes { name, tensors: 0, weights: 0, bytes: 0 });
            types.len() - 1
        });
        let ty = &mut types[at];
        ty.tensors += 1;
        ty.weights = ty.weights.saturating_add(n_weights(spec));
        ty.bytes = ty.bytes.saturating_add(spec.bytes());
    }
    types
}

/// Rows of each value as recorded.
fn recorded(program: &Program) -> Vec<Option<Rows>> {
    program.values.iter().map(|value| Some(value.shape.rows)).collect()
}

/// Rows of each value that an output of the program or the cache depends on; `None` for none.
fn needed(program: &Program) -> Vec<Option<Rows>> {
    let mut values: Vec<Option<Rows>> = vec![None; program.values.len()];
    for (_, output) in &program.outputs {
        values[output.0 as usize] = Some(program.value(*output).shape.rows);
    }
    for node in program.nodes.iter().rev() {
        let rows = values[node.output.0 as usize];
        let state = node.op.facts().state;
        for (i, input) in node.inputs.iter().enumerate() {
            let cached = state.is_some_and(|used| used.appends(i, node.inputs.len()));
            let need = if cached { Some(Rows::Tokens) } else { rows };
            let value = &mut values[input.0 as usize];
            if *value != Some(Rows::Tokens) {
                *value = need.or(*value);
            }
        }
    }
    values
}

//! What the dispatches of a step move, beside what they must: from shapes alone, so that no device is needed.

use program::{Mask, Program, Result};

use super::{name, row_bytes, weight_bytes};
use crate::batch::{splits, tiles_of_head};
use crate::caches::BLOCK;
use crate::declare::supports_all;
use crate::dispatch::{joins_found, logits, query_stride, stretches};
use crate::kernels::{Stored, TeamShape};
use crate::lower::lower;
use crate::plan::{
    AttentionWork, GpuPlan, GpuWork, IndexWork, MatrixId, MixedWork, PiecesWork, Place, VectorId,
};

/// Bytes that a dispatch moves in a step of one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchBytes {
    /// What it computes, by the weight or the cache that it reads first; empty if it reads none.
    pub name: String,
    /// Its kernel.
    pub kernel: &'static str,
    /// What it cannot do without: weights as the file has them, each number that it reads or writes once, of a cache the
    /// positions that are seen.
    pub must: u64,
    /// What it moves: weights as they are packed, whole blocks of keys, rows and what fills them up.
    pub moved: u64,
    /// What it reads again meanwhile, so that a cache of the device has it: a row of activations by every team of lanes, a
    /// key-value head by every eight heads.
    pub again: u64,
}

/// The dispatches of a step of one token after `depth` others, with a cache in f16 and the likeliest token found on the
/// device.
///
/// # Errors
/// [`program::Error::Unsupported`] for what no kernel computes.
pub fn step_bytes(program: &Program, depth: usize) -> Result<Vec<DispatchBytes>> {
    supports_all(program)?;
    let plan = lower(&program::passes::narrow(program))?;
    let n_splits = splits(&plan, 1, false, (depth + 1).div_ceil(BLOCK));
    let mut step = StepOfOne { program, plan: &plan, depth, n_splits, made: Vec::new() };
    plan.works.iter().for_each(|work| step.work(work));
    step.best();
    Ok(step.made)
}

struct StepOfOne<'a> {
    program: &'a Program,
    plan: &'a GpuPlan,
    depth: usize,
    n_splits: usize,
    made: Vec<DispatchBytes>,
}

/// Bytes of so many numbers.
fn f32s(n: usize) -> u64 {
    4 * n as u64
}

impl StepOfOne<'_> {
    fn push(&mut self, work: Option<&GpuWork>, kernel: &'static str, bytes: [u64; 3]) {
        let name = work.map_or(String::new(), |work| name(self.program, self.plan, work));
        let [must, moved, again] = bytes;
        self.made.push(DispatchBytes { name, kernel, must, moved, again });
    }

    fn vector(&self, id: Option<VectorId>, n: usize) -> u64 {
        id.map_or(0, |_| f32s(n))
    }

    /// Weights of so many of a matrix's rows, as the file has them.
    fn filed(&self, id: MatrixId, rows: usize) -> u64 {
        let spec = &self.plan.matrices[id];
        let row = self.program.weight(spec.weights[0]);
        rows as u64 * row.bytes() / row.rows as u64
    }

    fn stride(&self, place: Place) -> usize {
        self.plan.buffer(place.buffer).stride()
    }

    /// A product of `rows` rows of a matrix in all, `slots` inputs and as many outputs of `out` numbers: what is read of a
    /// matrix, and how often `teams` read a whole input.
    fn product(&self, work: &GpuWork, id: MatrixId, sizes: [usize; 4], beside: u64) -> [u64; 3] {
        let [rows, inputs, outputs, passes] = sizes;
        let cols = self.plan.matrices[id].cols;
        let chunks = f32s(cols.next_multiple_of(crate::formats::CHUNK));
        let weights = weight_bytes(self.plan, work, &|_| 1);
        let rest = f32s(outputs) + beside;
        let teams = passes.div_ceil(TeamShape::USUAL.rows) as u64;
        let once = inputs as u64 * chunks;
        [
            self.filed(id, rows) + f32s(inputs * cols) + rest,
            weights + once + rest,
            (teams * chunks).saturating_sub(once),
        ]
    }

    fn work(&mut self, work: &GpuWork) {
        let (kernel, bytes) = match work {
            GpuWork::Embed { table, out, normed, .. } => {
                let (cols, row) = (self.plan.matrices[*table].cols, row_bytes(self.plan, *table));
                let beside = normed.map(|its| f32s(cols) + self.vector(its.norm.weight, cols));
                let kernel = if normed.is_some() { "embed_normed" } else { "embed" };
                let beside = beside.unwrap_or(0);
                let moved = row + f32s(self.stride(*out)) + beside;
                (kernel, [self.filed(*table, 1) + f32s(cols) + beside, moved, 0])
            }
            GpuWork::Linear { matrix, bias, residual, finish, .. } => {
                let rows = self.plan.matrices[*matrix].rows;
                let by = if finish.words()[1] > 0 { 2 } else { 1 };
                let residual = residual.map_or(0, |_| f32s(rows / by));
                let beside = self.vector(*bias, rows) + residual;
                ("matvec", self.product(work, *matrix, [rows, 1, rows / by, rows], beside))
            }
            GpuWork::Pieces(PiecesWork { many: Some(many), .. }) if many.only => return,
            GpuWork::Pieces(at) => {
                let PiecesWork { matrix, taken, slots, x_pitch, finish, bias, .. } = at;
                let by = if finish.words()[1] > 0 { 2 } else { 1 };
                let inputs = if *x_pitch > 0 { *slots } else { 1 };
                let rows = slots * taken;
                let beside = self.vector(*bias, rows);
                ("pieces", self.product(work, *matrix, [rows, inputs, rows / by, rows], beside))
            }
            GpuWork::Turned(at) => {
                let rows = at.slots * at.taken;
                let rest = f32s(rows) + f32s(at.slots * self.plan.matrices[at.matrix].cols);
                let moved = weight_bytes(self.plan, work, &|_| 1) + rest;
                ("turned", [self.filed(at.matrix, rows) + rest, moved, 0])
            }
            GpuWork::Mixed(MixedWork { matrix, each, routes, residual, bias, .. }) => {
                let rows = routes.n_used * each;
                let residual = residual.map_or(0, |_| f32s(*each));
                let beside = residual + self.vector(*bias, rows);
                ("mixed", self.product(work, *matrix, [rows, routes.n_used, *each, rows], beside))
            }
            GpuWork::Attention(at) => return self.attention(work, at),
            GpuWork::Route(at) => {
                let bytes = f32s(at.n_experts + 2 * at.router.n_used);
                ("route", [bytes + self.vector(at.bias, at.n_experts), bytes, 0])
            }
            GpuWork::Elements(at) => {
                let rows = f32s(at.cols * (2 + usize::from(at.b.is_some())));
                ("rows", [rows, rows, 0])
            }
            GpuWork::Groups(at) => {
                let row = f32s(at.groups * at.dim);
                let numbers = [at.weight, at.bias].into_iter().flatten();
                let numbers = numbers.map(|(_, step)| f32s(at.groups.min(step.max(1)) * at.dim));
                let rows = row * (2 + u64::from(at.b.is_some())) + numbers.sum::<u64>();
                ("groups", [rows, rows, row])
            }
            GpuWork::Conv(at) => {
                // rows before it come from the ring, and its own goes there
                let rows = f32s(at.channels * (at.width + 2));
                let taps = self.vector(at.taps, at.channels * at.width);
                let bytes = rows + taps + self.vector(at.bias, at.channels);
                ("conv", [bytes, bytes, 0])
            }
            GpuWork::Scan(at) => {
                let dims = at.dims;
                let state = f32s(dims.n_heads * dims.key_dim * dims.value_dim);
                let row = f32s(at.inputs.iter().map(|(_, cols)| cols).sum());
                let must = state + row + f32s(dims.n_heads * dims.value_dim);
                // its row goes to the ring; rows that are there already are few, and not counted
                ("scan", [must, must + row, 0])
            }
            GpuWork::Ids { .. } => ("rows", [f32s(2), f32s(2), 0]),
            GpuWork::Grams(at) => {
                let rows = f32s(at.n_heads * at.cols);
                let moved = at.n_heads as u64 * row_bytes(self.plan, at.table) + rows;
                ("grams", [self.filed(at.table, at.n_heads) + rows, moved, 0])
            }
            GpuWork::Balance(at) => {
                let rows = f32s(2 * at.n * at.n);
                ("balance", [rows, rows, 0])
            }
            GpuWork::Index(at) => return self.index(work, at),
            // many rows alone
            GpuWork::Sorted(_) | GpuWork::OfMany(..) => return,
        };
        self.push(Some(work), kernel, bytes);
    }

    fn attention(&mut self, work: &GpuWork, at: &AttentionWork) {
        let AttentionWork { n_heads, n_kv_heads, key_dim, value_dim, .. } = *at;
        let queries = f32s(n_heads * key_dim);
        let rotated = f32s(query_stride(at));
        let words = Stored::F16.words();
        let quads = |dim: usize| 4 * (dim.div_ceil(4) * words) as u64;
        // latents lie in the cache once, as keys
        let values = if at.latents.is_some() { 0 } else { quads(value_dim) };
        let heads = n_kv_heads as u64;
        let kept = 2 * heads * (key_dim + if values > 0 { value_dim } else { 0 }) as u64;
        let (given, put) = match at.kv {
            Some(_) => (2 * kept, heads * (quads(key_dim) + values)),
            None => (0, 0),
        };
        let angles = f32s(at.rotated);
        if let Some(chosen) = at.chosen {
            let list = f32s(chosen.n_choices * chosen.select.n_units as usize);
            let marks =
                f32s(chosen.n_choices * (self.depth / chosen.select.unit as usize) / 32 + 1);
            self.push(Some(work), "marks", [list + marks, list + marks, 0]);
        }
        let kernel = if at.latents.is_some() { "latents" } else { "keys" };
        let must = 2 * queries + given + kept * u64::from(given > 0) + angles;
        self.push(Some(work), kernel, [must, queries + rotated + given + put + angles, 0]);

        let end = self.depth + 1;
        let (seen, blocks) = match at.score.mask {
            Mask::Window(n) | Mask::Around(n) => {
                let n = n as usize;
                let first = end.saturating_sub(n);
                (end - first, end.div_ceil(BLOCK) - first / BLOCK)
            }
            Mask::Chunk(n) => {
                let n = n as usize;
                let first = self.depth / n * n;
                (end - first, end.div_ceil(BLOCK) - first / BLOCK)
            }
            Mask::Causal | Mask::Full => (end, end.div_ceil(BLOCK)),
        };
        let out = f32s(n_heads * value_dim);
        let position = heads * (quads(key_dim) + values);
        // keys by lanes, of a whole block; values one after another
        let read = heads * ((blocks * BLOCK) as u64 * quads(key_dim) + seen as u64 * values);
        let tiles = tiles_of_head(n_heads / n_kv_heads, false) as u64;
        let of_latents = if values == 0 { heads * seen as u64 * quads(value_dim) } else { 0 };
        let partials = match self.n_splits {
            1 => 0,
            n => 16 * (n_heads * n * (value_dim.div_ceil(4) + 1)) as u64,
        };
        let written = if partials > 0 { partials } else { out };
        let again = (tiles - 1) * read + tiles * of_latents;
        let must = queries + seen as u64 * position + written;
        self.push(Some(work), "attend", [must, rotated + read + written, again]);
        if partials > 0 {
            self.push(Some(work), "combine", [partials + out, partials + out, 0]);
        }
    }

    /// Keys of all positions, where scores decide.
    fn index(&mut self, work: &GpuWork, at: &IndexWork) {
        let quads = |dim: usize| 4 * (dim.div_ceil(4) * Stored::F16.words()) as u64;
        let queries = f32s(at.n_heads * at.dim);
        let rotated = f32s(at.query_stride());
        let key = f32s(at.dim);
        let given = queries + key + f32s(2 * at.rotated);
        let put = [2 * at.dim as u64, quads(at.dim)].map(|key| given + key);
        self.push(Some(work), "index_keys", [put[0] + queries, put[1] + rotated, 0]);
        let n_choices = at.n_choices();
        let (mut end, list) =
            (self.depth + 1, f32s(n_choices * at.at.selection().n_units as usize));
        if at.at.chooses(self.depth) {
            let blocks = end.div_ceil(BLOCK) * BLOCK;
            let scores = f32s(n_choices * end);
            let read = [(end * 2 * at.dim) as u64, blocks as u64 * quads(at.dim)];
            let again = (at.n_heads as u64 - 1) * read[1];
            let [must, moved] = [queries + read[0] + scores, rotated + read[1] + scores];
            self.push(Some(work), "index_scores", [must, moved, again]);
        } else {
            end = 0;
        }
        let scores = f32s(n_choices * end);
        // each bit of the last score that counts is found by itself
        self.push(Some(work), "index_choose", [scores + list, 2 * scores + list, 32 * scores]);
    }

    /// The likeliest token.
    fn best(&mut self) {
        let Some((_, cols)) = logits(self.plan) else { return };
        let found = 8 * stretches(cols) as u64;
        let joined = joins_found(self.plan, 1, 1).then_some(found + 8);
        for bytes in [f32s(cols) + found].into_iter().chain(joined) {
            self.push(None, "best", [bytes, bytes, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use conformance::{tiny_config, tiny_model};
    use quant::GgmlType;

    use super::*;

    /// Nothing is moved that need not be but what packing adds and what fills rows up, and no weight is forgotten.
    #[test]
    fn what_is_moved_is_what_must_be_and_a_little() {
        for (architecture, types) in [
            ("qwen2", &[GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4K][..]),
            ("qwen3moe", &[GgmlType::Q8_0]),
            ("deepseek2", &[GgmlType::Q8_0]),
        ] {
            for ty in types {
                let program = tiny_model(&tiny_config(architecture, 256, false), *ty);
                let all = step_bytes(&program, 100).expect("it is supported");
                let must: u64 = all.iter().map(|one| one.must).sum();
                let moved: u64 = all.iter().map(|one| one.moved).sum();
                for one in &all {
                    let part = one.moved as f64 / one.must as f64;
                    assert!((0.97..1.35).contains(&part), "{architecture} {ty}: {one:?}");
                }
                let matrices = program.weights.iter().filter(|w| w.rows > 1);
                let weights: u64 = matrices.map(|w| w.bytes()).sum();
                if architecture == "qwen2" {
                    let table = program.weights.iter().find(|w| w.name == "token_embd.weight");
                    let table = table.expect("it embeds").bytes();
                    let products = all.iter().filter(|one| one.kernel == "matvec");
                    let products: u64 = products.map(|one| one.must).sum();
                    let part = products as f64 / (weights - table) as f64;
                    assert!((1.0..1.1).contains(&part), "{ty}: {products}, {weights}");
                }
                assert!(moved >= must, "{architecture} {ty}: {moved} of {must}");
            }
        }
    }

    /// What recurs reads its state, as long as the past may be.
    #[test]
    fn a_state_is_as_much_to_read_at_any_depth() {
        for (name, kernel) in [("lfm2", "conv"), ("mamba2", "scan"), ("rwkv7", "scan")] {
            let gguf = gguf::Gguf::from_bytes(conformance::golden::model(name));
            let gguf = gguf.expect("a model that was made");
            let program = models::load(&gguf).expect("a model that is supported").program;
            let of = |depth: usize| {
                let all = step_bytes(&program, depth).expect("it is supported");
                let of: Vec<_> = all.into_iter().filter(|one| one.kernel == kernel).collect();
                assert!(of.iter().all(|one| one.name.ends_with(kernel)), "{of:?}");
                of
            };
            let states: u64 = program.caches.iter().map(|cache| cache.kind.state_bytes()).sum();
            let must: u64 = of(1).iter().map(|one| one.must).sum();
            assert!(must >= states / 2 && must > 0, "{name}: {must} of {states}");
            assert_eq!(of(1), of(4000), "{name}");
        }
    }

    /// A past is read whole, in blocks; beyond a few of these it is split and joined.
    #[test]
    fn a_longer_past_is_more_to_read() {
        let program = tiny_model(&tiny_config("qwen2", 256, false), GgmlType::Q8_0);
        let attend = |depth: usize| {
            let all = step_bytes(&program, depth).expect("it is supported");
            let of = |kernel: &str| all.iter().filter(|one| one.kernel == kernel).count();
            assert_eq!((of("keys"), of("attend")), (2, 2));
            assert_eq!(of("combine"), if depth < 3 * BLOCK { 0 } else { 2 }, "{depth}");
            all.iter().find(|one| one.kernel == "attend").expect("it attends").moved
        };
        assert_eq!(attend(1) - attend(0), attend(2) - attend(1), "a position of values");
        assert!(attend(BLOCK) - attend(BLOCK - 1) > attend(1) - attend(0), "a block of keys");
        assert!(attend(1000) > 5 * attend(100));
    }
}

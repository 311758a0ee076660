//! One layer of latent attention with made-up weights and a made-up context: what each form costs in time and memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cpu::{Cpu, MeasuredModel, MlaChoice, MlaDims, MlaForm};
use executors::ExecutorOptions;
use program::{
    CacheKind, CacheOptions, CacheSpec, CacheType, Error, Executor, LatentAttention, LatentUp,
    MemoryNeeds, MemoryOptions, OutputKind, Outputs, Program, Recorder, Result, Rope, RopePairs,
    RopeScaling, Sequence, Step, WeightSource, WeightSpec, read_memory,
};
use quant::GgmlType;

/// A layer to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MlaLayer {
    /// Widths of its heads.
    pub(super) dims: MlaDims,
    /// Width of what goes in and comes out.
    pub(super) hidden_size: usize,
    /// Rank of the queries, if they go through a narrow layer.
    pub(super) q_rank: Option<usize>,
    /// Type of its matrices.
    pub(super) ty: GgmlType,
    /// Type of what it caches.
    pub(super) cache: CacheType,
}

/// What one step took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MlaMeasure {
    /// Of each repetition: the whole layer, from its norm to its output.
    pub(super) layer: Vec<Duration>,
    /// Of each repetition: rotation, cache, products with the heads' small matrices, attention.
    pub(super) attention: Vec<Duration>,
    /// Memory of the cache.
    pub(super) cache_bytes: u64,
    /// Memory of all threads besides.
    pub(super) work_bytes: u64,
}

/// A layer in one form, without weights.
pub(super) struct LayerPlan {
    cpu: Cpu,
    program: Arc<Program>,
    layer: MlaLayer,
}

/// A layer ready to be measured in one form.
pub(super) struct LayerBench {
    model: MeasuredModel,
    plan: LayerPlan,
}

/// Rows of the embedding table that stands for the layers before.
const VOCAB: usize = 64;

impl LayerPlan {
    /// Record the layer.
    ///
    /// # Errors
    /// Widths that are not whole blocks of the type.
    pub(super) fn new(
        options: &ExecutorOptions,
        layer: &MlaLayer,
        form: MlaForm,
    ) -> Result<LayerPlan> {
        let cpu = ExecutorOptions { mla: MlaChoice::Always(form), ..options.clone() }.cpu();
        Ok(LayerPlan { cpu, program: Arc::new(record(layer)?), layer: *layer })
    }

    /// The memory that filling a cache of so many positions takes, `n` at a time.
    ///
    /// # Errors
    /// Those of [`Executor::memory`].
    pub(super) fn needs(&self, positions: usize, n: usize) -> Result<MemoryNeeds> {
        let cache = self.cache(positions);
        self.cpu.memory(&self.program, &MemoryOptions { cache, sessions: 1, chunk: n })
    }

    fn cache(&self, capacity: usize) -> CacheOptions {
        CacheOptions::new(self.layer.cache, self.layer.cache, capacity)
    }
}

impl LayerBench {
    /// Make the layer's weights.
    ///
    /// # Errors
    /// Widths that are not whole blocks of the type; memory.
    pub(super) fn new(
        options: &ExecutorOptions,
        layer: &MlaLayer,
        form: MlaForm,
    ) -> Result<LayerBench> {
        let plan = LayerPlan::new(options, layer, form)?;
        let weights = MadeUp::new(&plan.program)?;
        let model = plan.cpu.load_measured(Arc::clone(&plan.program), &weights)?;
        Ok(LayerBench { model, plan })
    }

    /// See [`LayerPlan::needs`].
    #[cfg(test)]
    pub(super) fn needs(&self, positions: usize, n: usize) -> Result<MemoryNeeds> {
        self.plan.needs(positions, n)
    }

    /// A step of `n` tokens after `context` positions, `repetitions` times after one that does not count.
    ///
    /// # Errors
    /// Memory.
    pub(super) fn measure(
        &self,
        context: usize,
        n: usize,
        repetitions: usize,
    ) -> Result<MlaMeasure> {
        let model = self.model.model();
        let session = model.open(&self.plan.cache(context + n))?;
        let measured = self.model.fill(session, context).and_then(|()| {
            let tokens: Vec<u32> = (0..n).map(|i| (i % VOCAB) as u32).collect();
            let (mut layer, mut attention) = (Vec::new(), Vec::new());
            for repetition in 0..=repetitions {
                model.truncate(session, context)?;
                let outputs = Outputs::LAST;
                let sequence =
                    Sequence { session, tokens: &tokens, outputs, prompt: None, rows: &[] };
                model.step(&Step { sequences: &[sequence] })?.single()?;
                let phases = model.phases();
                if repetition > 0 {
                    let all = |kind: Option<&str>| {
                        let wanted = phases.iter().filter(|p| kind.is_none_or(|k| p.kind == k));
                        wanted.map(|phase| phase.elapsed).sum()
                    };
                    layer.push(all(None));
                    attention.push(all(Some("attention")));
                }
            }
            Ok(MlaMeasure {
                layer,
                attention,
                cache_bytes: model.cache_bytes(session)?,
                work_bytes: self.model.work_bytes(),
            })
        });
        model.close(session);
        measured
    }
}

fn record(layer: &MlaLayer) -> Result<Program> {
    let MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim } = layer.dims;
    let (hidden, width) = (layer.hidden_size, n_heads * (nope_dim + rope_dim));
    let r = Recorder::new();
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: name.to_owned(), ty, rows, cols, start: 0 })
    };
    let matrix = |name: &str, rows, cols| weight(name, layer.ty, rows, cols);
    let norm =
        |name: &str, x, cols| r.rms_norm(name, x, weight(name, GgmlType::F32, 1, cols), 1e-6);
    let x = r.embed(weight("token_embd", GgmlType::F32, VOCAB, hidden))?;
    let h = norm("attn_norm", x, hidden)?;
    let q = match layer.q_rank {
        None => r.linear("q", h, matrix("attn_q", width, hidden))?,
        Some(q_rank) => {
            let a = r.linear("q_a", h, matrix("attn_q_a", q_rank, hidden))?;
            r.linear("q", norm("attn_q_a_norm", a, q_rank)?, matrix("attn_q_b", width, q_rank))?
        }
    };
    let q = r.view("q_heads", q, n_heads)?;
    let kv = r.linear("kv", h, matrix("attn_kv_a_mqa", rank + rope_dim, hidden))?;
    let inputs = [
        r.slice("q_nope", q, 0, nope_dim)?,
        r.slice("q_pe", q, nope_dim, rope_dim)?,
        norm("attn_kv_a_norm", r.slice("c", kv, 0, rank)?, rank)?,
        r.slice("k_pe", kv, rank, rope_dim)?,
    ];
    let up = LatentUp::Split {
        k_b: matrix("attn_k_b", n_heads * rank, nope_dim),
        v_b: matrix("attn_v_b", n_heads * value_dim, rank),
    };
    let rope = Rope {
        pairs: RopePairs::Interleaved,
        dims: rope_dim,
        theta: 1e4,
        scaling: RopeScaling::None,
        factors: None,
    };
    let scale = ((nope_dim + rope_dim) as f32).powf(-0.5);
    let spec = CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim } };
    let at = LatentAttention::causal(r.cache(spec), Some(rope), up, scale);
    let a = r.latent_attention("attn", at, inputs)?;
    let out = r.linear("out", a, matrix("attn_output", hidden, n_heads * value_dim))?;
    // every row is computed, as in a layer that others follow
    let out = r.add("residual", x, out)?;
    Ok(r.finish(&[(OutputKind::Logits, out)]))
}

/// Weights that repeat a few random rows.
struct MadeUp(HashMap<String, Vec<u8>>);

/// Distinct rows of a tensor.
const ROWS: usize = 61;

impl MadeUp {
    fn new(program: &Program) -> Result<MadeUp> {
        let mut random = Noise(1);
        let weights = program.weights.iter().map(|spec| {
            let unusable = |problem: &str| Error::Weight {
                name: spec.name.clone(),
                problem: format!("{problem} as type {}", spec.ty),
            };
            let n = spec.rows.min(ROWS);
            let size = 3f32.sqrt() / (spec.cols as f32).sqrt();
            let values: Vec<f32> = (0..n * spec.cols).map(|_| random.next() * size).collect();
            let row =
                spec.ty.row_bytes(spec.cols).ok_or_else(|| unusable("rows are not blocks"))?;
            let mut some = vec![0; n * row];
            let format = quant::format(spec.ty).ok_or_else(|| unusable("cannot be a weight"))?;
            if !format.quantize(&values, &mut some) {
                return Err(unusable("cannot be made"));
            }
            let bytes = some.iter().copied().cycle().take(spec.rows * row).collect();
            Ok((spec.name.clone(), bytes))
        });
        Ok(MadeUp(weights.collect::<Result<_>>()?))
    }
}

impl WeightSource for MadeUp {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let missing =
            || Error::Weight { name: spec.name.clone(), problem: "was not made".to_owned() };
        read_memory(self.0.get(&spec.name).ok_or_else(missing)?, spec, first, out)
    }
}

/// A small generator: xorshift.
struct Noise(u64);

impl Noise {
    /// From -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn small(form: MlaForm) -> LayerBench {
        let dims = MlaDims { n_heads: 4, rank: 64, nope_dim: 32, rope_dim: 16, value_dim: 32 };
        let layer = MlaLayer {
            dims,
            hidden_size: 64,
            q_rank: Some(32),
            ty: GgmlType::Q8_0,
            cache: CacheType::F16,
        };
        let options = ExecutorOptions { threads: Some(2), ..ExecutorOptions::default() };
        LayerBench::new(&options, &layer, form).expect("it loads")
    }

    #[test]
    fn every_form_is_measured() {
        for form in MlaForm::ALL {
            let name = form.name();
            for (context, n) in [(0, 3), (300, 1), (700, 5)] {
                // of one form and context only, as work memory is what steps took so far
                let bench = small(form);
                let measure = bench.measure(context, n, 2).expect("it steps");
                assert_eq!((measure.layer.len(), measure.attention.len()), (2, 2));
                assert!(measure.layer.iter().zip(&measure.attention).all(|(l, a)| l > a), "{name}");
                let positions = context + n;
                let least = positions as u64 * bench.plan.layer.dims.cache_elements(form) * 2;
                assert!(measure.cache_bytes >= least && measure.work_bytes > 0, "{name}");
                // what is declared is enough, and not much more
                let needs = bench.needs(positions, n).expect("it is told");
                assert!(needs.cache >= measure.cache_bytes, "{name}: {needs:?} {measure:?}");
                assert!(needs.work >= measure.work_bytes, "{name}: {needs:?} {measure:?}");
            }
        }
    }
}

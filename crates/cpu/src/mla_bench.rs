//! One layer of latent attention with made-up weights and a made-up context: what each form costs in time and memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use program::{
    CacheKind, CacheOptions, CacheSpec, CacheType, Error, LatentAttention, LatentUp, Model,
    OutputKind, Outputs, Program, Recorder, Result, Rope, RopePairs, RopeScaling, Sequence, Step,
    WeightBytes, WeightSource, WeightSpec,
};
use quant::GgmlType;

use crate::load::Workshop;
use crate::model::{CpuModel, Noise};
use crate::{Cpu, MlaChoice, MlaDims, MlaForm};

/// A layer to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlaLayer {
    /// Widths of its heads.
    pub dims: MlaDims,
    /// Width of what goes in and comes out.
    pub hidden_size: usize,
    /// Rank of the queries, if they go through a narrow layer.
    pub q_rank: Option<usize>,
    /// Type of its matrices.
    pub ty: GgmlType,
    /// Type of what it caches.
    pub cache: CacheType,
}

/// What one step took.
#[derive(Clone, Debug, PartialEq)]
pub struct MlaMeasure {
    /// Of each repetition: the whole layer, from its norm to its output.
    pub layer: Vec<Duration>,
    /// Of each repetition: rotation, cache, products with the heads' small matrices, attention.
    pub attention: Vec<Duration>,
    /// Operations of the attention; 2 per multiply-add of [`MlaDims::macs`].
    pub flops: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
    /// Memory of all threads besides.
    pub work_bytes: u64,
}

/// A layer ready to be measured in one form.
pub struct MlaBench {
    model: CpuModel,
    layer: MlaLayer,
    form: MlaForm,
}

/// Rows of the embedding table that stands for the layers before.
const VOCAB: usize = 64;

impl MlaBench {
    /// Make the layer's weights.
    ///
    /// # Errors
    /// Widths that are not whole blocks of the type; memory.
    pub fn new(cpu: &Cpu, layer: MlaLayer, form: MlaForm) -> Result<MlaBench> {
        let program = Arc::new(record(&layer)?);
        let weights = MadeUp::new(&program)?;
        let workshop = Workshop { mla: MlaChoice::Always(form), ..cpu.workshop() };
        let model = CpuModel::load(program, &weights, workshop, &mut |_| {})?;
        Ok(MlaBench { model, layer, form })
    }

    /// A step of `n` tokens after `context` positions, `repetitions` times after one that does not count.
    ///
    /// # Errors
    /// Memory.
    pub fn measure(&self, context: usize, n: usize, repetitions: usize) -> Result<MlaMeasure> {
        let MlaLayer { dims, cache, .. } = self.layer;
        let options = CacheOptions { k: cache, v: cache, capacity: context + n };
        let session = self.model.open(&options)?;
        let measured = self.model.fill(session, context).and_then(|()| {
            let tokens: Vec<u32> = (0..n).map(|i| (i % VOCAB) as u32).collect();
            let (mut layer, mut attention) = (Vec::new(), Vec::new());
            for repetition in 0..=repetitions {
                self.model.truncate(session, context)?;
                let outputs = Outputs::LAST;
                let sequence =
                    Sequence { session, tokens: &tokens, outputs, prompt: None, rows: &[] };
                self.model.step(&Step { sequences: &[sequence] })?.single()?;
                let phases = self.model.phases();
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
                flops: 2 * dims.macs(self.form, context as u64, n as u64),
                cache_bytes: self.model.cache_bytes(session)?,
                work_bytes: self.model.work_bytes(),
            })
        });
        self.model.close(session);
        measured
    }
}

fn record(layer: &MlaLayer) -> Result<Program> {
    let MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim } = layer.dims;
    let (hidden, width) = (layer.hidden_size, n_heads * (nope_dim + rope_dim));
    let r = Recorder::new();
    let weight =
        |name: &str, ty, rows, cols| r.weight(WeightSpec { name: name.to_owned(), ty, rows, cols });
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
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>> {
        let missing =
            || Error::Weight { name: spec.name.clone(), problem: "was not made".to_owned() };
        self.0.get(&spec.name).map(Vec::as_slice).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn every_form_is_measured() {
        let dims = MlaDims { n_heads: 4, rank: 64, nope_dim: 32, rope_dim: 16, value_dim: 32 };
        let layer = MlaLayer {
            dims,
            hidden_size: 64,
            q_rank: Some(32),
            ty: GgmlType::Q8_0,
            cache: CacheType::F16,
        };
        let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
        for form in MlaForm::ALL {
            let name = form.name();
            let bench = MlaBench::new(&cpu, layer, form).expect("it loads");
            for (context, n) in [(0, 3), (300, 1), (700, 5)] {
                let measure = bench.measure(context, n, 2).expect("it steps");
                assert_eq!((measure.layer.len(), measure.attention.len()), (2, 2));
                assert!(measure.layer.iter().zip(&measure.attention).all(|(l, a)| l > a), "{name}");
                let least = (context + n) as u64 * dims.cache_elements(form) * 2;
                assert!(measure.cache_bytes >= least && measure.work_bytes > 0, "{name}");
            }
        }
    }
}

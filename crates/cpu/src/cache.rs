//! How each cache of a plan is kept.

use std::sync::Arc;

use kernels::attention::{BLOCK, ElemType, HeadShape};
use kernels::latent::LatentShape;
use kernels::rows::Pairs;
use kv::Layout;
use program::{CacheId, CacheOptions, CacheSpec, CacheType, Error, Program, Result};

use crate::exec::{AttentionShape, LatentCache, pairs};
use crate::mla_bench::Random;
use crate::plan::{AttentionPhase, Phase, Plan};

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheShape {
    /// Keys and values by head.
    Heads(AttentionShape),
    /// Latents, a row per position.
    Latent(LatentCache),
}

impl CacheShape {
    /// Where it lies in a block.
    pub(crate) fn layout(&self) -> Layout {
        match self {
            CacheShape::Heads(shape) => shape.layout,
            CacheShape::Latent(cache) => cache.layout,
        }
    }

    /// A block of made-up content.
    pub(crate) fn made_up(&self) -> Vec<u8> {
        let mut random = Random(7);
        let mut numbers = |n: usize| -> Vec<f32> { (0..n).map(|_| random.next()).collect() };
        let mut block = vec![0; self.layout().block_bytes()];
        match self {
            CacheShape::Latent(LatentCache { shape, .. }) => {
                for row in block.chunks_exact_mut(shape.row_bytes()) {
                    shape.store(row, &numbers(shape.rank), &numbers(shape.rope_dim));
                }
            }
            CacheShape::Heads(AttentionShape { head, layout, .. }) => {
                for number in 0..layout.n_kv_heads() {
                    for position in 0..BLOCK {
                        let (key, value) = (numbers(head.key_dim), numbers(head.value_dim));
                        head.store_key(&mut block[layout.keys(number)], position, &key);
                        head.store_value(&mut block[layout.values(number)], position, &value);
                    }
                }
            }
        }
        block
    }

    /// The shape of keys and values, if it keeps such.
    pub(crate) fn as_heads(&self) -> Option<&AttentionShape> {
        match self {
            CacheShape::Heads(shape) => Some(shape),
            CacheShape::Latent(_) => None,
        }
    }

    /// The shape of latents, if it keeps such.
    pub(crate) fn as_latent(&self) -> Option<&LatentCache> {
        match self {
            CacheShape::Latent(cache) => Some(cache),
            CacheShape::Heads(_) => None,
        }
    }

    /// The shape of keys and values.
    pub(crate) fn heads(&self) -> &AttentionShape {
        self.as_heads().expect("an attention phase reads keys and values")
    }

    /// The shape of latents.
    pub(crate) fn latent(&self) -> LatentCache {
        *self.as_latent().expect("a latent phase reads latents")
    }
}

/// How each cache is kept under `options`.
pub(crate) fn cache_shapes(
    program: &Program,
    plan: &Plan,
    options: &CacheOptions,
) -> Result<Arc<[CacheShape]>> {
    let caches = (0..program.caches.len() as u32).map(CacheId);
    caches
        .map(|cache| shape(program, plan, cache, options))
        .collect::<Result<Vec<_>>>()
        .map(Arc::from)
}

fn shape(
    program: &Program,
    plan: &Plan,
    cache: CacheId,
    options: &CacheOptions,
) -> Result<CacheShape> {
    let mut spec = program.cache(cache).clone();
    for phase in &plan.phases {
        match phase {
            Phase::Latent(latent) if latent.inputs.cache == cache => {
                let (rank, rope_dim) = (latent.inputs.dims.rank, latent.inputs.dims.rope_dim);
                let shape = LatentShape { rank, rope_dim, elem: elem_type(options.k)? };
                let layout = Layout::new(&spec, shape.block_bytes(), 0);
                return Ok(CacheShape::Latent(LatentCache { shape, layout }));
            }
            Phase::Expand(expand) if expand.inputs.cache == cache => {
                let dims = &expand.inputs.dims;
                (spec.n_kv_heads, spec.key_dim, spec.value_dim) =
                    (dims.n_heads, dims.key_dim(), dims.value_dim);
            }
            Phase::Attention(attention) if attention.cache == cache => {
                return heads(plan, attention, &spec, options).map(CacheShape::Heads);
            }
            _ => {}
        }
    }
    Err(Error::Unsupported(format!("cache {} that no op reads", cache.0)))
}

fn heads(
    plan: &Plan,
    phase: &AttentionPhase,
    spec: &CacheSpec,
    options: &CacheOptions,
) -> Result<AttentionShape> {
    let head = HeadShape {
        key_dim: spec.key_dim,
        value_dim: spec.value_dim,
        k: elem_type(options.k)?,
        v: elem_type(options.v)?,
    };
    let pairs = phase.rope.map_or(Pairs::HalfSplit, |rope| pairs(&plan.ropes[rope]));
    let layout = Layout::new(spec, head.key_bytes(), head.value_bytes());
    let group = phase.q.cols / spec.key_dim / spec.n_kv_heads;
    Ok(AttentionShape { head, layout, pairs, group })
}

fn elem_type(ty: CacheType) -> Result<ElemType> {
    match ty {
        CacheType::F32 => Ok(ElemType::F32),
        CacheType::F16 => Ok(ElemType::F16),
        CacheType::Q8_0 => Ok(ElemType::Q8_0),
        other => Err(Error::Unsupported(format!("cache type {}", other.name()))),
    }
}

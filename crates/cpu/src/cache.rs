//! How each cache of a plan is kept.

use std::sync::Arc;

use kernels::attention::{ElemType, HeadShape, Partials};
use kernels::latent::LatentShape;
use kernels::rows::Pairs;
use kv::Layout;
use program::{
    CacheId, CacheKind, CacheOptions, CacheType, Error, Program, Result, Rope, RopePairs,
};

use crate::geometry::TILE_ROWS;
use crate::plan::AttentionPhase;
use crate::schedule::{Loaded, Schedule};

/// How a cache of keys and values lies, and how attention over it is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadsCache {
    pub(crate) head: HeadShape,
    pub(crate) layout: Layout,
    pub(crate) pairs: Pairs,
    /// Query heads per key-value head.
    pub(crate) group: usize,
}

impl HeadsCache {
    /// Tokens in a tile.
    pub(crate) fn tile_tokens(&self) -> usize {
        (TILE_ROWS / self.group).max(1)
    }

    /// Most rows of a tile; [`TILE_ROWS`] at most, which `lower` ensures by its limit on groups.
    pub(crate) fn max_rows(&self) -> usize {
        self.tile_tokens() * self.group
    }

    /// Floats that the partials of one tile and block take.
    pub(crate) fn partial_floats(&self) -> usize {
        Partials::floats(self.max_rows(), &self.head)
    }
}

/// How a cache of latents lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatentCache {
    pub(crate) shape: LatentShape,
    pub(crate) layout: Layout,
}

/// Which elements rotate together.
pub(crate) fn pairs(rope: &Rope) -> Pairs {
    match rope.pairs {
        RopePairs::Interleaved => Pairs::Interleaved,
        RopePairs::HalfSplit => Pairs::HalfSplit,
    }
}

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheShape {
    /// Keys and values by head.
    Heads(HeadsCache),
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

    /// The shape of keys and values, if it keeps such.
    pub(crate) fn as_heads(&self) -> Option<&HeadsCache> {
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
    pub(crate) fn heads(&self) -> &HeadsCache {
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
    schedule: &Schedule,
    options: &CacheOptions,
) -> Result<Arc<[CacheShape]>> {
    let caches = (0..program.caches.len() as u32).map(CacheId);
    caches
        .map(|cache| shape(program, schedule, cache, options))
        .collect::<Result<Vec<_>>>()
        .map(Arc::from)
}

fn shape(
    program: &Program,
    schedule: &Schedule,
    cache: CacheId,
    options: &CacheOptions,
) -> Result<CacheShape> {
    let mut kind = program.cache(cache).kind;
    for phase in &schedule.phases {
        match phase {
            Loaded::Latent(latent) if latent.phase.inputs.cache == cache => {
                let dims = &latent.phase.inputs.dims;
                let (rank, rope_dim) = (dims.rank, dims.rope_dim);
                let shape = LatentShape { rank, rope_dim, elem: elem_type(options.k)? };
                let layout = Layout::new(1, shape.block_bytes(), 0);
                return Ok(CacheShape::Latent(LatentCache { shape, layout }));
            }
            Loaded::Expand(expand) if expand.phase.inputs.cache == cache => {
                let dims = &expand.phase.inputs.dims;
                let (n_kv_heads, key_dim) = (dims.n_heads, dims.key_dim());
                let (value_dim, window) = (dims.value_dim, None);
                kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window };
            }
            Loaded::Attention(attention) if attention.phase.cache == cache => {
                return heads(schedule, &attention.phase, kind, options).map(CacheShape::Heads);
            }
            _ => {}
        }
    }
    Err(Error::Unsupported(format!("cache {} that no op reads", cache.0)))
}

fn heads(
    schedule: &Schedule,
    phase: &AttentionPhase,
    kind: CacheKind,
    options: &CacheOptions,
) -> Result<HeadsCache> {
    let CacheKind::Heads { n_kv_heads, key_dim, value_dim, .. } = kind else {
        return Err(Error::Unsupported("attention to the heads of a cache of latents".into()));
    };
    let (k, v) = (elem_type(options.k)?, elem_type(options.v)?);
    let head = HeadShape { key_dim, value_dim, k, v };
    let pairs = phase.rope.map_or(Pairs::HalfSplit, |rope| pairs(&schedule.ropes[rope]));
    let layout = Layout::new(n_kv_heads, head.key_bytes(), head.value_bytes());
    let group = phase.q.cols / key_dim / n_kv_heads;
    Ok(HeadsCache { head, layout, pairs, group })
}

fn elem_type(ty: CacheType) -> Result<ElemType> {
    match ty {
        CacheType::F32 => Ok(ElemType::F32),
        CacheType::F16 => Ok(ElemType::F16),
        CacheType::Q8_0 => Ok(ElemType::Q8_0),
    }
}

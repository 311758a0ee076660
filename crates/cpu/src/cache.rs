//! How each cache of a plan is kept.

use std::sync::Arc;

use kernels::attention::{BLOCK, ElemType, HeadShape, Partials};
use kernels::latent::LatentShape;
use kernels::rows::Pairs;
use kv::{Layout, TableSpec};
use program::{CacheOptions, CacheType, Error, Result, Rope, RopePairs};

use crate::plan::Cached;
use crate::schedule::Schedule;

/// How a cache of keys and values lies, and how attention over it is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadsCache {
    pub(crate) head: HeadShape,
    pub(crate) layout: Layout,
    /// Most query rows of a tile, over the layers that read it.
    pub(crate) tile_rows: usize,
    /// Most positions that a query sees; `None`: all.
    window: Option<usize>,
}

impl HeadsCache {
    /// Floats that the partials of one tile and block take.
    pub(crate) fn partial_floats(&self) -> usize {
        Partials::floats(self.tile_rows, &self.head)
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

    /// What its tables have to know.
    pub(crate) fn table(&self) -> TableSpec {
        let window = self.as_heads().and_then(|heads| heads.window);
        TableSpec { positions: BLOCK, bytes: self.layout().block_bytes(), window }
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
    schedule: &Schedule,
    options: &CacheOptions,
) -> Result<Arc<[CacheShape]>> {
    let unread = |cache| Error::Unsupported(format!("cache {cache} that no op reads"));
    let shape = |(cache, cached): (usize, &Option<Cached>)| {
        shape(cached.ok_or_else(|| unread(cache))?, options)
    };
    schedule.caches.iter().enumerate().map(shape).collect()
}

fn shape(cached: Cached, options: &CacheOptions) -> Result<CacheShape> {
    let k = elem_type(options.k)?;
    Ok(match cached {
        Cached::Latent { rank, rope_dim } => {
            let shape = LatentShape { rank, rope_dim, elem: k };
            let layout = Layout::new(1, shape.block_bytes(), 0);
            CacheShape::Latent(LatentCache { shape, layout })
        }
        Cached::Heads { n_kv_heads, key_dim, value_dim, window, tile_rows } => {
            let head = HeadShape { key_dim, value_dim, k, v: elem_type(options.v)? };
            let layout = Layout::new(n_kv_heads, head.key_bytes(), head.value_bytes());
            CacheShape::Heads(HeadsCache { head, layout, tile_rows, window })
        }
    })
}

fn elem_type(ty: CacheType) -> Result<ElemType> {
    match ty {
        CacheType::F32 => Ok(ElemType::F32),
        CacheType::F16 => Ok(ElemType::F16),
        CacheType::Q8_0 => Ok(ElemType::Q8_0),
    }
}

//! How each cache of a program lies in blocks on the device.

use std::sync::Arc;

use kv::TableSpec;
use program::{CacheKind, CacheOptions, Error, KvPolicy, MemoryOptions, Program, Result};

use crate::formats::CHUNK;
use crate::kernels::{Stored, StoredTypes};
use crate::slab::SlabStore;

/// Positions in a block: as many as lanes of `kernels/attend.wgsl`.
pub(crate) const BLOCK: usize = 64;

/// The pool of a model.
pub(crate) type Pool = kv::BlockPool<SlabStore>;
/// The tables of a session.
pub(crate) type SlabTables = kv::Tables<SlabStore>;

/// Numbers of a latent with the zeros behind it.
pub(crate) fn latent_room(rank: usize) -> usize {
    rank.next_multiple_of(CHUNK)
}

/// How a session's caches are kept.
pub(crate) fn kept(options: &CacheOptions) -> StoredTypes {
    StoredTypes { keys: Stored::of(options.k), values: Stored::of(options.v) }
}

/// What the tables of a session have to know of each cache.
///
/// # Errors
/// [`Error::Unsupported`] for what indexers and recurrences keep, and for sessions that read few blocks of a long past.
pub(crate) fn table_specs(program: &Program, options: &CacheOptions) -> Result<Arc<[TableSpec]>> {
    if options.policy != KvPolicy::Full {
        return Err(Error::Unsupported(
            "sessions on a GPU that read few blocks of a long past (a context memory)".into(),
        ));
    }
    let kept = kept(options);
    let spec = |(area, cache): (usize, &program::CacheSpec)| match cache.kind {
        CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } => {
            let words = key_dim.div_ceil(4) * kept.keys.words()
                + value_dim.div_ceil(4) * kept.values.words();
            let bytes = 4 * n_kv_heads * BLOCK * words;
            Ok(TableSpec { window, area, ..TableSpec::all(BLOCK, bytes) })
        }
        CacheKind::Latent { rank, rope_dim } => {
            let quads = latent_room(rank) / 4 + rope_dim.div_ceil(4);
            Ok(TableSpec { area, ..TableSpec::all(BLOCK, 4 * BLOCK * quads * kept.keys.words()) })
        }
        CacheKind::Keys { .. } => Err(Error::Unsupported("caches of indexers on a GPU".into())),
        CacheKind::State { .. } => Err(Error::Unsupported("states that recur on a GPU".into())),
    };
    program.caches.iter().enumerate().map(spec).collect()
}

/// Bytes of the caches of all sessions.
pub(crate) fn cache_bytes(program: &Program, options: &MemoryOptions) -> Result<u64> {
    Ok(each_cache(program, options)?.into_iter().fold(0, u64::saturating_add))
}

/// Bytes of the largest of them, for all sessions.
pub(crate) fn largest_cache(program: &Program, options: &MemoryOptions) -> Result<u64> {
    Ok(each_cache(program, options)?.into_iter().max().unwrap_or(0))
}

fn each_cache(program: &Program, options: &MemoryOptions) -> Result<Vec<u64>> {
    let specs = table_specs(program, &options.cache)?;
    let (capacity, chunk) = (options.cache.capacity, options.chunk.max(1));
    let all =
        |spec: &TableSpec| spec.most_bytes(capacity, chunk).saturating_mul(options.sessions as u64);
    Ok(specs.iter().map(all).collect())
}

//! How each cache of a program lies in blocks on the device.

use std::sync::Arc;

use kv::TableSpec;
use program::{CacheKind, CacheOptions, Error, KvPolicy, MemoryOptions, Program, Result};

use crate::kernels::{Stored, StoredTypes};
use crate::slab::SlabStore;

/// Positions in a block: as many as lanes of `kernels/attend.wgsl`.
pub(crate) const BLOCK: usize = 64;

/// The pool of a model.
pub(crate) type Pool = kv::BlockPool<SlabStore>;
/// The tables of a session.
pub(crate) type SlabTables = kv::Tables<SlabStore>;

/// How a session's caches are kept.
pub(crate) fn kept(options: &CacheOptions) -> StoredTypes {
    StoredTypes { keys: Stored::of(options.k), values: Stored::of(options.v) }
}

/// What the tables of a session have to know of each cache.
///
/// # Errors
/// [`Error::Unsupported`] for latents, and for sessions that read few blocks of a long past.
pub(crate) fn table_specs(program: &Program, options: &CacheOptions) -> Result<Arc<[TableSpec]>> {
    if options.policy != KvPolicy::Full {
        return Err(Error::Unsupported(
            "a context memory on a GPU: take --context-memory off, or --executor cpu".into(),
        ));
    }
    let kept = kept(options);
    let spec = |cache: &program::CacheSpec| match cache.kind {
        CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } => {
            let words = key_dim.div_ceil(4) * kept.keys.words()
                + value_dim.div_ceil(4) * kept.values.words();
            let bytes = 4 * n_kv_heads * BLOCK * words;
            Ok(TableSpec { window, ..TableSpec::all(BLOCK, bytes) })
        }
        CacheKind::Latent { .. } => Err(Error::Unsupported("caches of latents on a GPU".into())),
        CacheKind::State { .. } => Err(Error::Unsupported("states that recur on a GPU".into())),
    };
    program.caches.iter().map(spec).collect()
}

/// Bytes of the caches of all sessions.
pub(crate) fn cache_bytes(program: &Program, options: &MemoryOptions) -> Result<u64> {
    let specs = table_specs(program, &options.cache)?;
    let chunk = options.chunk.max(1);
    let one = specs.iter().map(|spec| spec.most_bytes(options.cache.capacity, chunk));
    let one = one.fold(0, u64::saturating_add);
    Ok(one.saturating_mul(options.sessions as u64))
}

//! How each cache of a program lies in blocks on the device: rows by position in blocks of 64, states and the rows since them in
//! blocks of their own.

use std::sync::Arc;

use kv::{StateSpec, TableSpec};
use program::{
    CacheKind, CacheOptions, Error, KvPolicy, MemoryOptions, Program, Result, StateCopies,
};

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

/// What a session has to know of the caches of a program: a cache's number is the area of its blocks.
pub(crate) struct CacheSpecs {
    /// Of those that keep something of each position.
    pub(crate) tables: Arc<[TableSpec]>,
    /// Of those that keep states.
    pub(crate) states: Arc<[StateSpec]>,
}

impl CacheSpecs {
    /// Those of a session of a program.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for sessions that read few blocks of a long past.
    pub(crate) fn of(program: &Program, options: &CacheOptions) -> Result<CacheSpecs> {
        if options.policy != KvPolicy::Full {
            return Err(Error::Unsupported(
                "sessions on a GPU that read few blocks of a long past (a context memory)".into(),
            ));
        }
        let kept = kept(options);
        let (mut tables, mut states) = (Vec::new(), Vec::new());
        for (area, cache) in program.caches.iter().enumerate() {
            match cache.kind {
                CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } => {
                    let words = key_dim.div_ceil(4) * kept.keys.words()
                        + value_dim.div_ceil(4) * kept.values.words();
                    let bytes = 4 * n_kv_heads * BLOCK * words;
                    tables.push(TableSpec { window, area, ..TableSpec::all(BLOCK, bytes) });
                }
                CacheKind::Latent { rank, rope_dim } => {
                    let quads = latent_room(rank) / 4 + rope_dim.div_ceil(4);
                    let bytes = 4 * BLOCK * quads * kept.keys.words();
                    tables.push(TableSpec { area, ..TableSpec::all(BLOCK, bytes) });
                }
                CacheKind::Keys { dim } => {
                    let bytes = 4 * BLOCK * dim.div_ceil(4) * kept.keys.words();
                    tables.push(TableSpec { area, ..TableSpec::all(BLOCK, bytes) });
                }
                CacheKind::State { row, .. } => {
                    let state = usize::try_from(cache.kind.state_bytes()).unwrap_or(usize::MAX);
                    states.push(StateSpec { area, ..StateSpec::of(state, row.saturating_mul(4)) });
                }
            }
        }
        Ok(CacheSpecs { tables: tables.into(), states: states.into() })
    }

    /// By cache: bytes that a session takes of so many positions, of which at most `tentative` are not committed.
    pub(crate) fn bytes(&self, capacity: usize, tentative: usize, copies: StateCopies) -> Vec<u64> {
        let mut bytes = vec![0; self.tables.len() + self.states.len()];
        for spec in &*self.tables {
            bytes[spec.area] = spec.most_bytes(capacity, tentative);
        }
        for spec in &*self.states {
            bytes[spec.area] = copies.bytes(spec.state as u64, spec.row as u64);
        }
        bytes
    }
}

/// Bytes of the caches of all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheNeeds {
    /// Of all caches, with all that they keep for comfort.
    pub(crate) most: u64,
    /// The least that they work with.
    pub(crate) least: u64,
    /// Of the largest of them.
    pub(crate) largest: u64,
}

impl CacheNeeds {
    /// Those of a program.
    ///
    /// # Errors
    /// As [`CacheSpecs::of`].
    pub(crate) fn of(program: &Program, options: &MemoryOptions) -> Result<CacheNeeds> {
        let specs = CacheSpecs::of(program, &options.cache)?;
        let (capacity, chunk) = (options.cache.capacity, options.chunk.max(1));
        let each = |copies| {
            let bytes = specs.bytes(capacity, chunk, copies).into_iter();
            bytes.map(|bytes| bytes.saturating_mul(options.sessions as u64))
        };
        Ok(CacheNeeds {
            most: each(StateCopies::Most).fold(0, u64::saturating_add),
            least: each(StateCopies::Least).fold(0, u64::saturating_add),
            largest: each(StateCopies::Most).max().unwrap_or(0),
        })
    }
}

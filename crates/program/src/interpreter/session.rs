//! The naive cache of one session: keys and values in f32, one after the other.

use crate::{CacheId, Kept, Program};

/// What one session holds.
#[derive(Clone)]
pub(super) struct Session {
    /// Positions all caches hold after the last successful step.
    pub(super) len: usize,
    /// Most positions it may hold.
    pub(super) capacity: usize,
    caches: Vec<Cached>,
}

/// Rotated keys and values of one layer, a row per position.
#[derive(Clone, Default)]
pub(super) struct Cached {
    /// `[positions, n_kv_heads, key_dim]`.
    pub(super) k: Vec<f32>,
    /// `[positions, n_kv_heads, value_dim]`.
    pub(super) v: Vec<f32>,
    /// Length of a row of `k` and of `v`: of latent attention, that of the expanded keys and values.
    pub(super) row: [usize; 2],
}

impl Session {
    pub(super) fn new(program: &Program, capacity: usize) -> Self {
        Session { len: 0, capacity, caches: vec![Cached::default(); program.caches.len()] }
    }

    /// Add one position.
    pub(super) fn append(&mut self, cache: CacheId, k: &[f32], v: &[f32]) {
        let cached = &mut self.caches[cache.0 as usize];
        cached.row = [k.len(), v.len()];
        cached.k.extend_from_slice(k);
        cached.v.extend_from_slice(v);
    }

    pub(super) fn cache(&self, cache: CacheId) -> &Cached {
        &self.caches[cache.0 as usize]
    }

    /// Keep `len` positions and take that as the session's length.
    pub(super) fn truncate(&mut self, len: usize) {
        for cached in &mut self.caches {
            let [k, v] = cached.row;
            cached.k.truncate(len * k);
            cached.v.truncate(len * v);
        }
        self.len = len;
    }
}

impl Kept for Session {
    fn positions(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        self.caches.iter().map(|c| (c.k.len() + c.v.len()) as u64 * 4).sum()
    }
}

//! What layers keep of the positions before: kinds of caches, element types, and the bytes they take.
//!
//! Bytes are counted here and nowhere else: codes and scales, without what an executor adds to fill its blocks.

use std::path::PathBuf;

use crate::{KvPolicy, Program};

/// Element type of cached keys or values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// 4 bytes per element.
    F32,
    /// 2 bytes per element.
    #[default]
    F16,
    /// 1 byte per element, and 2 for each 32 of a row or what is left of them.
    Q8_0,
}

impl CacheType {
    /// Every type, in the order they are listed to users.
    pub const ALL: [CacheType; 3] = [CacheType::F32, CacheType::F16, CacheType::Q8_0];

    /// Name as `-ctk` takes it.
    pub fn name(self) -> &'static str {
        match self {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
        }
    }

    /// Bytes of one row of `elements`: a key, a value, a latent.
    pub fn bytes(self, elements: u64) -> u64 {
        match self {
            CacheType::F32 => elements.saturating_mul(4),
            CacheType::F16 => elements.saturating_mul(2),
            CacheType::Q8_0 => elements.saturating_add(2 * elements.div_ceil(32)),
        }
    }
}

/// How a session's caches are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Type of keys, and of latents.
    pub k: CacheType,
    /// Type of values.
    pub v: CacheType,
    /// Most positions the session may hold. Memory is taken as positions arrive, not at once.
    pub capacity: usize,
    /// What of the past queries read.
    pub policy: KvPolicy,
    /// Sessions share what they computed from equal tokens with those of the same scope alone: whoever must not learn what
    /// another one said, not even by how soon an answer comes, has another number.
    pub scope: u64,
}

impl CacheOptions {
    /// Keys and values of these types, all of which are read.
    pub const fn new(k: CacheType, v: CacheType, capacity: usize) -> CacheOptions {
        CacheOptions { k, v, capacity, policy: KvPolicy::Full, scope: 0 }
    }
}

/// Where the caches of all sessions of a model lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStorage {
    /// Most bytes of memory that they take together; `None`: as many as there are.
    pub memory: Option<u64>,
    /// A folder for what has no room in memory, until the model goes.
    pub disk: Option<PathBuf>,
}

/// The cache of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Layer number, for display.
    pub layer: usize,
    /// What it keeps.
    pub kind: CacheKind,
}

/// How many states of one cache a session has, beside the rows that they have not taken in yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateCopies {
    /// The one that a step starts from, and the one that it makes: without both no step runs.
    Least,
    /// Those to go back to, too.
    Most,
}

impl StateCopies {
    /// Rows that are kept together.
    pub const ROWS: usize = 32;
    /// How many times that: a step that writes others reads those before.
    pub const RINGS: usize = 2;

    /// How many states.
    pub const fn count(self) -> usize {
        match self {
            StateCopies::Least => 2,
            StateCopies::Most => 6,
        }
    }

    /// Bytes of a state of so many numbers: memory comes in cache lines.
    pub const fn state_bytes(elements: u64) -> u64 {
        // the greatest multiple that there is, where it would be more
        elements.saturating_mul(4).saturating_add(63) / 64 * 64
    }

    /// Bytes of the states, `state` each, and of the rows, `row` each, of a session that is not empty: what is bounded,
    /// checked and planned with.
    pub const fn bytes(self, state: u64, row: u64) -> u64 {
        let rows = row.saturating_mul((Self::ROWS * Self::RINGS) as u64);
        state.saturating_mul(self.count() as u64).saturating_add(rows)
    }
}

/// What a cache keeps of each position, or of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// A key and a value for each key-value head.
    Heads {
        /// Key-value heads.
        n_kv_heads: usize,
        /// Width of one key.
        key_dim: usize,
        /// Width of one value vector.
        value_dim: usize,
        /// How many positions, the newest included, a query sees at most; older ones need not be kept. `None`: all.
        window: Option<usize>,
    },
    /// A latent and a rotated key, which all heads share.
    Latent {
        /// Width of the latent.
        rank: usize,
        /// Width of the rotated key.
        rope_dim: usize,
    },
    /// A key, by which an [`Indexer`](crate::Indexer) chooses.
    Keys {
        /// Its width.
        dim: usize,
    },
    /// Numbers that every position changes, in f32 whatever the types of keys and values are. Positions that may be taken
    /// back, and what is kept to go further back, are beside them.
    State {
        /// Numbers of the state, those included that fill up its matrices.
        elements: usize,
        /// Numbers that a row gives it.
        row: usize,
    },
}

impl CacheKind {
    /// Numbers that one position adds.
    pub fn elements(&self) -> u64 {
        match *self {
            CacheKind::Heads { n_kv_heads, key_dim, value_dim, window: _ } => {
                (n_kv_heads as u64).saturating_mul(key_dim as u64 + value_dim as u64)
            }
            CacheKind::Latent { rank, rope_dim } => rank as u64 + rope_dim as u64,
            CacheKind::Keys { dim } => dim as u64,
            CacheKind::State { .. } => 0,
        }
    }

    /// Bytes that one position adds with keys of type `k` and values of type `v`. No block of a type spans two heads; the
    /// rotated key beside quantized latents is kept in f16.
    pub fn position_bytes(&self, k: CacheType, v: CacheType) -> u64 {
        match *self {
            CacheKind::Heads { n_kv_heads, key_dim, value_dim, window: _ } => {
                let head = k.bytes(key_dim as u64).saturating_add(v.bytes(value_dim as u64));
                (n_kv_heads as u64).saturating_mul(head)
            }
            CacheKind::Latent { rank, rope_dim } => {
                let rope = if k == CacheType::Q8_0 { CacheType::F16 } else { k };
                k.bytes(rank as u64).saturating_add(rope.bytes(rope_dim as u64))
            }
            CacheKind::Keys { dim } => k.bytes(dim as u64),
            CacheKind::State { .. } => 0,
        }
    }

    /// The most positions a query sees, itself included; `None`: all there are.
    pub fn window(&self) -> Option<usize> {
        match *self {
            CacheKind::Heads { window, .. } => window,
            CacheKind::Latent { .. } | CacheKind::Keys { .. } | CacheKind::State { .. } => None,
        }
    }

    /// Bytes of the state, where it is one.
    pub fn state_bytes(&self) -> u64 {
        match *self {
            CacheKind::State { elements, .. } => StateCopies::state_bytes(elements as u64),
            CacheKind::Heads { .. } | CacheKind::Latent { .. } | CacheKind::Keys { .. } => 0,
        }
    }

    /// Bytes of the states of a session that is not empty and of what is beside them, where it keeps such.
    pub fn recurrent_bytes(&self, copies: StateCopies) -> u64 {
        match *self {
            CacheKind::State { row, .. } => {
                copies.bytes(self.state_bytes(), (row as u64).saturating_mul(4))
            }
            CacheKind::Heads { .. } | CacheKind::Latent { .. } | CacheKind::Keys { .. } => 0,
        }
    }

    /// Bytes of the first `positions` of a session; those that have left the window take none.
    pub fn bytes(&self, positions: usize, options: &CacheOptions) -> u64 {
        if let CacheKind::State { .. } = self {
            return if positions == 0 { 0 } else { self.recurrent_bytes(StateCopies::Most) };
        }
        let kept = self.window().map_or(positions, |window| window.min(positions));
        self.position_bytes(options.k, options.v).saturating_mul(kept as u64)
    }
}

impl Program {
    /// Numbers that one position adds, over all caches.
    pub fn cache_elements_per_token(&self) -> u64 {
        self.caches.iter().map(|cache| cache.kind.elements()).fold(0, u64::saturating_add)
    }

    /// Bytes of the states of a session, so many copies of each and the rows beside them; 0 where nothing recurs.
    pub fn recurrent_bytes(&self, copies: StateCopies) -> u64 {
        let bytes = |cache: &CacheSpec| cache.kind.recurrent_bytes(copies);
        self.caches.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of the states once: what a step reads of them.
    pub fn state_bytes(&self) -> u64 {
        self.caches.iter().map(|cache| cache.kind.state_bytes()).fold(0, u64::saturating_add)
    }

    /// Whether a cache keeps something of each position, rather than states alone: what a disk may have, and what types of
    /// keys and values are about.
    pub fn keeps_positions(&self) -> bool {
        self.caches.iter().any(|cache| !matches!(cache.kind, CacheKind::State { .. }))
    }

    /// Bytes that all caches take of a session of `positions`.
    pub fn cache_bytes(&self, positions: usize, options: &CacheOptions) -> u64 {
        let bytes = self.caches.iter().map(|cache| cache.kind.bytes(positions, options));
        bytes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_codes_and_scales() {
        let heads = CacheKind::Heads { n_kv_heads: 2, key_dim: 128, value_dim: 80, window: None };
        let latent = CacheKind::Latent { rank: 512, rope_dim: 64 };
        let bytes = |kind: CacheKind| CacheType::ALL.map(|ty| kind.position_bytes(ty, ty));
        assert_eq!(bytes(heads), [2 * 832, 2 * 416, 2 * (128 + 8 + 80 + 6)]);
        assert_eq!(bytes(latent), [2304, 1152, 512 + 32 + 128]);
        let mixed = heads.position_bytes(CacheType::F16, CacheType::F32);
        assert_eq!(mixed, 2 * (256 + 320));
        assert_eq!((heads.elements(), latent.elements()), (416, 576));
        let keys = CacheKind::Keys { dim: 80 };
        assert_eq!((bytes(keys), keys.elements()), ([320, 160, 80 + 6], 80));
    }

    #[test]
    fn states_take_the_same_at_any_length() {
        let options = CacheOptions::new(CacheType::F16, CacheType::F16, 4096);
        let kind = CacheKind::State { elements: 1000, row: 10 };
        // 4000 bytes in cache lines
        assert_eq!(kind.recurrent_bytes(StateCopies::Least), 2 * 4032 + 64 * 40);
        let most = kind.recurrent_bytes(StateCopies::Most);
        assert_eq!(most, 6 * 4032 + 64 * 40);
        assert_eq!([0, 1, 100, 1 << 40].map(|n| kind.bytes(n, &options)), [0, most, most, most]);
        let huge = CacheKind::State { elements: usize::MAX / 8, row: 1 };
        assert_eq!(huge.recurrent_bytes(StateCopies::Most), u64::MAX);
    }

    #[test]
    fn a_window_bounds_what_is_kept() {
        let options = CacheOptions::new(CacheType::F16, CacheType::F16, 4096);
        let kind = |window| CacheKind::Heads { n_kv_heads: 1, key_dim: 4, value_dim: 4, window };
        let spec = |window| CacheSpec { layer: 0, kind: kind(window) };
        let program = Program { caches: vec![spec(None), spec(Some(100))], ..Program::default() };
        assert_eq!(program.cache_bytes(60, &options), 16 * (60 + 60));
        assert_eq!(program.cache_bytes(4000, &options), 16 * (4000 + 100));
        assert_eq!(program.cache_elements_per_token(), 16);
    }
}

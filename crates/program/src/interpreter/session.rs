//! The naive cache of one session: keys and values in f32, one after the other.

use crate::{BlockAnchor, CacheId, CacheOptions, ContextMemory, Kept, Meter, Program, Readings};

/// What one session holds.
#[derive(Clone)]
pub(super) struct Session {
    /// Positions all caches hold after the last successful step.
    pub(super) len: usize,
    /// Most positions it may hold.
    pub(super) capacity: usize,
    caches: Vec<Cached>,
    /// Where its policy is measured, and what came of it.
    pub(super) meter: Option<Meter>,
    pub(super) readings: Readings,
    /// Those of the step at hand, layer by layer.
    pub(super) new_readings: Vec<crate::MeterReading>,
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
    /// What of it queries read, if not all.
    pub(super) memory: Option<ContextMemory>,
    /// Keys as they are met from afar, `[positions, n_kv_heads, key_dim]`, where those differ.
    far: Vec<f32>,
    /// Numbers that recur, as they are after `states` positions; nothing where they are to be made of the rows.
    pub(super) state: Vec<f64>,
    pub(super) states: usize,
    /// By position, where queries decide what stands for blocks: what its queries say of keys.
    heard: Vec<Vec<f64>>,
    /// The cache whose layer chooses for this one, where choices serve several queries.
    pub(super) chooser: Option<CacheId>,
    /// By run of tokens: the blocks that its first query chose, for each key-value head.
    choices: Vec<Vec<Vec<u32>>>,
    /// By position, where choices are smoothed: its query as far keys are met, with its factor.
    asked: Vec<Vec<f32>>,
}

impl Cached {
    /// Keys and values that are all read; of a row of keys and a row of values these lengths.
    #[cfg(test)]
    pub(super) fn of(k: Vec<f32>, v: Vec<f32>, row: [usize; 2]) -> Cached {
        Cached { k, v, row, ..Cached::default() }
    }

    /// Keys as queries meet them from afar.
    pub(super) fn far_keys(&self) -> &[f32] {
        if self.keeps_far_keys() { &self.far } else { &self.k }
    }

    /// Whether queries decide what stands for blocks, in this way.
    pub(super) fn hears(&self, anchor: BlockAnchor) -> bool {
        self.memory.is_some_and(|memory| memory.anchor == anchor && memory.has_blocks())
    }

    /// What the query of a position asked for.
    pub(super) fn asked(&self, position: usize) -> &[f32] {
        &self.asked[position]
    }

    /// What the queries of a position said of keys.
    pub(super) fn heard(&self, position: usize) -> &[f64] {
        &self.heard[position]
    }

    fn keeps_far_keys(&self) -> bool {
        self.memory.is_some_and(|memory| memory.keeps_far_keys())
    }
}

impl Session {
    pub(super) fn new(program: &Program, options: &CacheOptions) -> Self {
        let memory = |cache| options.policy.of_cache(program, CacheId(cache as u32));
        let chooser = |cache| options.policy.chooser(program, CacheId(cache as u32));
        let cached =
            |cache| Cached { memory: memory(cache), chooser: chooser(cache), ..Cached::default() };
        let caches = (0..program.caches.len()).map(cached).collect();
        let meter = Meter::new(&options.policy, program);
        let readings = Readings::default();
        Session {
            len: 0,
            capacity: options.capacity,
            caches,
            meter,
            readings,
            new_readings: Vec::new(),
        }
    }

    /// Add one position.
    pub(super) fn append(&mut self, cache: CacheId, k: &[f32], v: &[f32]) {
        let cached = &mut self.caches[cache.0 as usize];
        cached.row = [k.len(), v.len()];
        cached.k.extend_from_slice(k);
        cached.v.extend_from_slice(v);
    }

    /// Add a position's key as it is met from afar, where those differ.
    pub(super) fn append_far(&mut self, cache: CacheId, key: impl FnOnce() -> Vec<f32>) {
        let cached = &mut self.caches[cache.0 as usize];
        if cached.keeps_far_keys() {
            cached.far.extend(key());
        }
    }

    /// Add what the queries of the next position say of keys.
    pub(super) fn hear(&mut self, cache: CacheId, said: Vec<f64>) {
        self.caches[cache.0 as usize].heard.push(said);
    }

    /// Add what the first query of the next run of tokens chose.
    pub(super) fn choose(&mut self, cache: CacheId, choices: Vec<Vec<u32>>) {
        self.caches[cache.0 as usize].choices.push(choices);
    }

    /// Add what the query of the next position asks for, where those after it want to know.
    pub(super) fn ask(&mut self, cache: CacheId, asked: impl FnOnce() -> Vec<f32>) {
        let cached = &mut self.caches[cache.0 as usize];
        if cached.memory.is_some_and(|memory| memory.smooths().is_some()) {
            cached.asked.push(asked());
        }
    }

    /// What a query reads that another one chose, for each key-value head; `None`: it chooses for itself.
    pub(super) fn shared_choice(&self, cache: CacheId, position: usize) -> Option<Vec<Vec<u32>>> {
        let chosen = self.cache(self.cache(cache).chooser?);
        let run = chosen.memory.map_or(1, |memory| memory.token_step as usize);
        Some(chosen.choices[position / run].clone())
    }

    pub(super) fn cache_mut(&mut self, cache: CacheId) -> &mut Cached {
        &mut self.caches[cache.0 as usize]
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
            cached.far.truncate(len * k);
            cached.heard.truncate(len);
            let runs = cached.memory.map_or(0..0, |memory| memory.choosers(0..len));
            cached.choices.truncate(runs.end);
            cached.asked.truncate(len);
            if cached.states > len {
                (cached.state, cached.states) = (Vec::new(), 0);
            }
        }
        self.readings.add(std::mem::take(&mut self.new_readings));
        self.readings.truncate(len);
        self.len = len;
    }
}

impl Kept for Session {
    fn positions(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        let numbers = |c: &Cached| c.k.len() + c.v.len() + c.far.len() + 2 * c.state.len();
        self.caches.iter().map(|c| 4 * numbers(c) as u64).sum()
    }
}

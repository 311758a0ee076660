//! Reading ahead: blocks on disk that rows will attend to are on their way before anybody waits for them.
//!
//! What a session's last row chose in a layer is read while the layers before that compute, and what this step's last row
//! chooses while what is near is attended to. Nothing that is computed depends on it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Exec;
use super::attention::Cut;
use crate::cache::MemoryTables;
use crate::schedule::LoadedPhase;

/// For each cache, the blocks of 128 positions that the last row of a session chose.
pub(crate) type LastChoice = [Mutex<Vec<u32>>];

fn lock(numbers: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exec<'_> {
    /// Begin to read what sessions chose last in the next layer that has such, from phase `from` on.
    pub(super) fn foresee(&self, from: usize) {
        let attends = |phase: &LoadedPhase| match phase {
            LoadedPhase::Attention(attention) => Some(attention.cache.0 as usize),
            _ => None,
        };
        let Some(cache) = self.schedule.phases[from..].iter().find_map(attends) else { return };
        let Some(memory) = self.attention[cache].as_heads().and_then(|heads| heads.memory) else {
            return;
        };
        let table = memory.far.unwrap_or(cache);
        for (sequence, last) in self.last_choices.iter().enumerate() {
            self.blocks.read_ahead(table, sequence, &lock(&last[cache]));
        }
    }

    /// Begin to read what the last rows of sequences chose, and remember it.
    pub(super) fn read_chosen(&self, cut: &Cut<'_>, memory: &MemoryTables) {
        let cache = cut.phase.cache.0 as usize;
        let rows = cut.sequences.iter().enumerate().filter(|(_, rows)| rows.n > 0);
        for (sequence, rows) in rows {
            let mut numbers = lock(&self.last_choices[sequence][cache]);
            numbers.clear();
            let last = rows.start + rows.n - 1;
            for head in 0..cut.shape.layout.n_kv_heads() {
                self.reads(memory, sequence, last, head).far_numbers(&mut numbers);
            }
            numbers.sort_unstable();
            numbers.dedup();
            self.blocks.read_ahead(cut.table(true), sequence, &numbers);
        }
    }
}

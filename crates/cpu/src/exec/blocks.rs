//! Where a step finds the blocks of its caches.

use std::ops::Range;

use kv::{BlockAccess, HostMemory, Tables};

use super::SequenceRows;
use crate::memory::{CacheMemory, HugePages, Shared};

/// Blocks of one sequence and one table.
#[derive(Clone)]
struct Run {
    /// Number of the first one: those before it no row of the step sees.
    first: usize,
    /// Where they stand in the list of all.
    at: Range<usize>,
}

/// All blocks that a step reads or writes.
pub(crate) struct StepBlocks<'a> {
    /// `[sequence][table]`.
    runs: Vec<Run>,
    n_tables: usize,
    blocks: Vec<Shared<'a, u8>>,
}

impl<'a> StepBlocks<'a> {
    /// Those of these sessions, whose blocks are prepared for these rows.
    pub(crate) fn new(
        sessions: impl Iterator<Item = &'a mut Tables<HugePages>>,
        sequences: &[SequenceRows],
    ) -> StepBlocks<'a> {
        let (mut runs, mut blocks, mut n_tables) = (Vec::new(), Vec::new(), 0);
        for (tables, rows) in sessions.zip(sequences) {
            let specs = tables.specs().clone();
            n_tables = specs.len();
            for (spec, rows) in specs.iter().zip(tables.rows(rows.start + rows.n)) {
                let (start, mut first) = (blocks.len(), None);
                for rows in rows {
                    first.get_or_insert(rows.first / spec.positions);
                    blocks.push(shared(rows.block));
                }
                runs.push(Run { first: first.unwrap_or(0), at: start..blocks.len() });
            }
        }
        StepBlocks { runs, n_tables, blocks }
    }

    /// Block `number` of a sequence's table.
    ///
    /// # Panics
    /// If the step does not need it.
    pub(crate) fn get(&self, table: usize, sequence: usize, number: usize) -> Shared<'a, u8> {
        let Run { first, at } = &self.runs[sequence * self.n_tables + table];
        self.blocks[at.clone()][number - first]
    }
}

fn shared<'a>(block: BlockAccess<'a, CacheMemory>) -> Shared<'a, u8> {
    match block {
        BlockAccess::Read(memory) => Shared::read_only(memory.bytes()),
        BlockAccess::Write(memory) => Shared::new(memory.bytes_mut()),
    }
}

//! Where a step finds the blocks of its caches.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kv::{
    BlockAccess, BlockBytes, BlockMemory, BlockPool, CacheBlock, ChosenBlocks, HostMemory, Limit,
    Looked, StateRows, StateStep, Tables,
};

use super::SequenceRows;
use crate::memory::{CacheMemory, HugePages, Shared};

/// Blocks of one sequence and one table.
struct Run<'a> {
    /// Blocks that are taken as they are chosen.
    chosen: ChosenBlocks<'a, HugePages>,
    /// Number of the first of the others: those before it no row of the step sees, or chooses.
    first: usize,
    /// Where they stand in the list of all.
    at: Range<usize>,
}

/// All blocks that a step reads or writes.
pub(crate) struct StepBlocks<'a> {
    pool: &'a BlockPool<HugePages>,
    /// `[sequence][table]`.
    runs: Vec<Run<'a>>,
    n_tables: usize,
    blocks: Vec<Shared<'a, u8>>,
    /// `[sequence]`: of what recurs, where there is such.
    states: Vec<SequenceStates<'a>>,
    /// Blocks that were chosen and could not be had, and whose: what the step computes is worth nothing.
    missing: Mutex<Vec<(usize, kv::Error)>>,
    is_broken: AtomicBool,
}

/// What recurs of one sequence.
struct SequenceStates<'a> {
    step: StateStep,
    /// By number of the cache of states.
    caches: Vec<StateMemory<'a>>,
}

/// The memory of one cache of states in a step, as floats.
#[derive(Clone, Copy)]
pub(crate) struct StateMemory<'a> {
    /// The state that the step starts from; zeros where there is none.
    pub(crate) base: Option<Shared<'a, f32>>,
    /// Where the step's new state goes.
    pub(crate) fold: Option<Shared<'a, f32>>,
    /// Rows since the state.
    pub(crate) ring: Shared<'a, f32>,
    /// Where rows go.
    pub(crate) stored: Shared<'a, f32>,
}

/// Where a block is that is to be read.
enum Placed<'a> {
    /// In memory for the whole step.
    There(Shared<'a, u8>),
    /// It may be on disk.
    Away(&'a Arc<CacheBlock<HugePages>>),
}

/// A block whose rows are read, which stays as it is meanwhile.
pub(crate) enum StepBlock<'a> {
    /// In memory for the whole step.
    Step(Shared<'a, u8>),
    /// In memory until this is dropped.
    Chosen(Arc<BlockMemory<HugePages>>),
    /// The same, without a place in the pool.
    Read(BlockBytes),
}

impl StepBlock<'_> {
    /// Part of it.
    ///
    /// # Safety
    /// No thread may write any of these bytes until the section ends.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[u8] {
        match self {
            // SAFETY: the caller's promise.
            StepBlock::Step(block) => unsafe { block.slice(range) },
            StepBlock::Chosen(block) => &block.get().bytes()[range],
            StepBlock::Read(block) => &block[range],
        }
    }
}

impl<'a> StepBlocks<'a> {
    /// Those of these sessions of a pool, whose blocks are prepared for these rows.
    pub(crate) fn new(
        pool: &'a BlockPool<HugePages>,
        sessions: impl Iterator<Item = &'a mut Tables<HugePages>>,
        sequences: &[SequenceRows],
    ) -> StepBlocks<'a> {
        let (mut runs, mut blocks, mut n_tables) = (Vec::new(), Vec::new(), 0);
        let mut states = Vec::new();
        for (tables, rows) in sessions.zip(sequences) {
            let specs = tables.specs().clone();
            n_tables = specs.len();
            let (tables, (step, caches)) = tables.step_of_all(rows.start + rows.n);
            if let Some(step) = step {
                let caches = caches.into_iter().map(state_memory).collect();
                states.push(SequenceStates { step, caches });
            }
            for (spec, (chosen, rows)) in specs.iter().zip(tables) {
                let (start, mut first) = (blocks.len(), None);
                for rows in rows {
                    first.get_or_insert(rows.first / spec.positions);
                    blocks.push(shared(rows.block));
                }
                runs.push(Run { chosen, first: first.unwrap_or(0), at: start..blocks.len() });
            }
        }
        let (missing, is_broken) = (Mutex::default(), AtomicBool::new(false));
        StepBlocks { pool, runs, n_tables, blocks, states, missing, is_broken }
    }

    /// Where the rows of a sequence stand among those that recur.
    pub(crate) fn state_step(&self, sequence: usize) -> &StateStep {
        &self.states[sequence].step
    }

    /// The memory of a cache of states of a sequence.
    pub(crate) fn state(&self, number: usize, sequence: usize) -> StateMemory<'a> {
        self.states[sequence].caches[number]
    }

    /// Block `number` of a sequence's table, which is not one to choose.
    ///
    /// # Panics
    /// If the step does not need it.
    pub(crate) fn get(&self, table: usize, sequence: usize, number: usize) -> Shared<'a, u8> {
        let Run { first, at, .. } = &self.runs[sequence * self.n_tables + table];
        self.blocks[at.clone()][number - first]
    }

    /// Where block `number` of a sequence's table is.
    fn place(&self, table: usize, sequence: usize, number: usize) -> Placed<'a> {
        let Some(block) = self.runs[sequence * self.n_tables + table].chosen.get(number) else {
            return Placed::There(self.get(table, sequence, number));
        };
        match block.memory() {
            Some(memory) => Placed::There(shared(BlockAccess::Read(memory))),
            None => Placed::Away(block),
        }
    }

    /// Block `number` of a sequence's table, to read. `None`: it cannot be had, and the step comes to nothing.
    ///
    /// # Panics
    /// If the step does not need it.
    pub(crate) fn take(
        &self,
        table: usize,
        sequence: usize,
        number: usize,
    ) -> Option<StepBlock<'a>> {
        let block = match self.place(table, sequence, number) {
            Placed::There(block) => return Some(StepBlock::Step(block)),
            Placed::Away(block) => block,
        };
        self.had(sequence, CacheBlock::take(block, Limit::Whole).map(StepBlock::Chosen))
    }

    /// The same for a look, which says nothing of what is wanted again.
    ///
    /// # Panics
    /// As [`take`](Self::take).
    pub(crate) fn look(
        &self,
        table: usize,
        sequence: usize,
        number: usize,
    ) -> Option<StepBlock<'a>> {
        let block = match self.place(table, sequence, number) {
            Placed::There(block) => return Some(StepBlock::Step(block)),
            Placed::Away(block) => block,
        };
        let looked = CacheBlock::look(block).map(|looked| match looked {
            Looked::Memory(memory) => StepBlock::Chosen(memory),
            Looked::Disk(bytes) => StepBlock::Read(bytes),
        });
        self.had(sequence, looked)
    }

    /// A block of a sequence; one that cannot be had ends the step.
    fn had(&self, sequence: usize, block: kv::Result<StepBlock<'a>>) -> Option<StepBlock<'a>> {
        match block {
            Ok(block) => Some(block),
            Err(error) => {
                let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
                missing.push((sequence, error));
                self.is_broken.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Begin to read blocks of a sequence's table that will be taken.
    pub(crate) fn read_ahead(&self, table: usize, sequence: usize, numbers: &[u32]) {
        let chosen = &self.runs[sequence * self.n_tables + table].chosen;
        self.pool.read_ahead(numbers.iter().filter_map(|number| chosen.get(*number as usize)));
    }

    /// Whether a block could not be had.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Blocks that could not be had: of which sequence, and why.
    pub(crate) fn into_missing(self) -> Vec<(usize, kv::Error)> {
        self.missing.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn state_memory(rows: StateRows<'_, CacheMemory>) -> StateMemory<'_> {
    let read = |memory| Shared::read_only(bytemuck::cast_slice(CacheMemory::bytes(memory)));
    let write = |memory| Shared::new(bytemuck::cast_slice_mut(CacheMemory::bytes_mut(memory)));
    let ring = match rows.ring {
        BlockAccess::Read(memory) => read(memory),
        BlockAccess::Write(memory) => write(memory),
    };
    let stored = rows.next.map_or(ring, write);
    StateMemory { base: rows.base.map(read), fold: rows.fold.map(write), ring, stored }
}

fn shared<'a>(block: BlockAccess<'a, CacheMemory>) -> Shared<'a, u8> {
    match block {
        BlockAccess::Read(memory) => Shared::read_only(memory.bytes()),
        BlockAccess::Write(memory) => Shared::new(memory.bytes_mut()),
    }
}

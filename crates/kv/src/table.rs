//! [`BlockTable`]: which blocks one session holds of one cache.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::{BlockKind, BlockMemory, BlockPool, CacheBlock, Limit, Result, Store};

/// What a table has to know of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableSpec {
    /// Positions in a block; at least 1.
    pub positions: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Which memory of the store its blocks lie in: see [`BlockKind`].
    pub area: usize,
    /// How many positions, the newest included, a query sees at most; `None`: all.
    pub window: Option<usize>,
    /// Positions from here on are not kept; `None`: all may be.
    pub limit: Option<usize>,
    /// Whether a step finds out as it goes which blocks it reads of those that it does not write: it is not given them all,
    /// but [finds](ChosenBlocks::get) them one by one, and [takes](CacheBlock::take) them in a pool with a disk.
    pub chosen: bool,
}

impl TableSpec {
    /// All positions are kept, in blocks of `positions`, `bytes` each.
    pub fn all(positions: usize, bytes: usize) -> TableSpec {
        TableSpec { positions, bytes, area: 0, window: None, limit: None, chosen: false }
    }

    /// Bytes of the blocks that a table holds at most of `len` positions, of which at most `tentative` are not committed.
    pub fn most_bytes(&self, len: usize, tentative: usize) -> u64 {
        let all = self.end_block(len);
        let window = |window: usize| self.end_block(window.saturating_add(tentative)) + 1;
        let blocks = self.window.map_or(all, |kept| all.min(window(kept)));
        (blocks as u64).saturating_mul(self.bytes as u64)
    }

    /// Bytes of the blocks that must be in memory at once: those that a step of `tentative` rows writes, and if few of the
    /// others are chosen no more, else all.
    pub fn least_bytes(&self, len: usize, tentative: usize) -> u64 {
        let written = tentative.div_ceil(self.positions) + 1;
        let most = self.most_bytes(len, tentative);
        if self.chosen { most.min((written * self.bytes) as u64) } else { most }
    }

    /// The kind of its blocks.
    fn kind(&self) -> BlockKind {
        BlockKind { bytes: self.bytes, area: self.area }
    }

    /// The first block that queries from position `next` on may read.
    pub(crate) fn first_block(&self, next: usize) -> usize {
        self.window.map_or(0, |window| (next + 1).saturating_sub(window) / self.positions)
    }

    /// The block after the last one that the first `len` positions lie in.
    pub(crate) fn end_block(&self, len: usize) -> usize {
        self.kept(len).div_ceil(self.positions)
    }

    /// How many of the first `len` positions are kept, if no window leaves any behind.
    fn kept(&self, len: usize) -> usize {
        self.limit.map_or(len, |limit| len.min(limit))
    }
}

/// A block in a step.
#[derive(Debug)]
pub enum BlockAccess<'a, M> {
    /// Complete before the step; others may read it too.
    Read(&'a M),
    /// Rows of the step go here.
    Write(&'a mut M),
}

/// A run of positions whose rows lie in one block.
#[derive(Debug)]
pub struct CachedRows<'a, M> {
    /// The block.
    pub block: BlockAccess<'a, M>,
    /// Position of the block's first row.
    pub first: usize,
    /// Rows of the block that belong to the run.
    pub rows: Range<usize>,
}

/// The blocks of one session and one cache, in the order of their positions, without gaps. It begins at position 0, or,
/// where a window has left blocks behind, at a later block.
pub struct BlockTable<S: Store> {
    pool: BlockPool<S>,
    spec: TableSpec,
    /// Number of the first block held.
    first: usize,
    blocks: VecDeque<Arc<CacheBlock<S>>>,
    /// Of sealed blocks that the step at hand reads their memory, by number from that of the first one that it sees.
    taken: VecDeque<Option<Arc<BlockMemory<S>>>>,
}

/// Blocks of a table that a step takes as it chooses.
#[derive(Debug)]
pub struct ChosenBlocks<'a, S: Store> {
    first: usize,
    blocks: &'a [Arc<CacheBlock<S>>],
}

impl<'a, S: Store> ChosenBlocks<'a, S> {
    /// Block `number`, if it is among them.
    pub fn get(&self, number: usize) -> Option<&'a Arc<CacheBlock<S>>> {
        self.blocks.get(number.checked_sub(self.first)?)
    }
}

impl<S: Store> Clone for ChosenBlocks<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Store> Copy for ChosenBlocks<'_, S> {}

impl<S: Store> BlockTable<S> {
    /// An empty table.
    pub fn new(pool: BlockPool<S>, spec: TableSpec) -> BlockTable<S> {
        BlockTable { pool, spec, first: 0, blocks: VecDeque::new(), taken: VecDeque::new() }
    }

    /// What it was made for.
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// Bytes of the blocks it holds, in memory or on disk, shared ones included.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() * self.spec.bytes) as u64
    }

    /// The positions that it has blocks for.
    pub fn positions(&self) -> Range<usize> {
        let end = self.first + self.blocks.len();
        self.first * self.spec.positions..end * self.spec.positions
    }

    /// How many positions it can hold in its blocks, those it does not keep included.
    pub(crate) fn room(&self) -> usize {
        let end = self.positions().end;
        if self.spec.kept(end + 1) <= end { usize::MAX } else { end }
    }

    /// Make the blocks that `positions` fall into exist and belong to this table alone. Those before it must exist.
    ///
    /// # Errors
    /// [`Error::Budget`](crate::Error::Budget), [`Error::Memory`](crate::Error::Memory), [`Error::Disk`](crate::Error::Disk),
    /// [`Error::Lost`](crate::Error::Lost); the table then holds what it held.
    pub fn prepare(&mut self, positions: Range<usize>) -> Result<()> {
        let held = self.blocks.len();
        let done = self.make_exclusive(positions.clone()).and_then(|()| self.take(&positions));
        if done.is_err() {
            self.blocks.truncate(held);
            self.taken.clear();
        }
        done
    }

    /// Have sealed blocks in memory that a step reads whatever it chooses.
    fn take(&mut self, new: &Range<usize>) -> Result<()> {
        self.taken.clear();
        if self.pool.disk().is_none() || self.spec.chosen {
            return Ok(());
        }
        let seen = self.seen(new);
        for block in self.blocks.iter().skip(seen.saturating_sub(self.first)) {
            let taken = block.sealed().map(|_| CacheBlock::take(block, Limit::Growth));
            self.taken.push_back(taken.transpose()?);
        }
        Ok(())
    }

    /// Number of the first block that a step with rows at `new` is given.
    fn seen(&self, new: &Range<usize>) -> usize {
        if self.spec.chosen {
            return self.touched(new).start;
        }
        let window = self.spec.window;
        window.map_or(0, |window| (new.start + 1).saturating_sub(window)) / self.spec.positions
    }

    fn make_exclusive(&mut self, positions: Range<usize>) -> Result<()> {
        for number in self.touched(&positions) {
            let at = number - self.first;
            match self.blocks.get_mut(at) {
                None => self.blocks.push_back(self.pool.block(self.spec.kind())?),
                Some(block) => {
                    if Arc::get_mut(block).and_then(CacheBlock::memory_mut).is_none() {
                        *block = self.pool.copy(block)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Blocks that some positions fall into.
    fn touched(&self, positions: &Range<usize>) -> Range<usize> {
        let end = self.spec.end_block(positions.end);
        let left_out = self.spec.limit.is_some_and(|limit| positions.start >= limit);
        if left_out { end..end } else { (positions.start / self.spec.positions).min(end)..end }
    }

    /// What a step reads and writes whose rows are `new`, in ascending order; before that the blocks that it takes as it
    /// chooses.
    ///
    /// # Panics
    /// If the blocks of `new` were not [prepared](Self::prepare).
    pub fn rows(
        &mut self,
        new: Range<usize>,
    ) -> (ChosenBlocks<'_, S>, impl Iterator<Item = CachedRows<'_, S::Memory>>) {
        let TableSpec { positions, window, chosen, .. } = self.spec;
        let (written, kept) = (self.touched(&new), self.spec.kept(new.end));
        let seen = window.map_or(0, |window| (new.start + 1).saturating_sub(window));
        let first = self.seen(&new).max(self.first);
        let split = (first - self.first).min(self.blocks.len());
        let (before, rest) = self.blocks.make_contiguous().split_at_mut(split);
        let blocks = if chosen { &*before } else { &[] };
        let choice = ChosenBlocks { first: self.first, blocks };
        let mut taken = self.taken.iter();
        let rows = rest.iter_mut().zip(first..self.spec.end_block(new.end));
        let rows = rows.map(move |(block, number)| {
            let first = number * positions;
            let taken = taken.next().and_then(Option::as_ref);
            let block = if written.contains(&number) {
                let own = Arc::get_mut(block).and_then(CacheBlock::memory_mut);
                BlockAccess::Write(own.expect("`prepare` made the block this table's own"))
            } else {
                let taken = taken.map(|taken| taken.get());
                BlockAccess::Read(taken.or_else(|| block.memory()).expect("`prepare` took it"))
            };
            let rows = seen.saturating_sub(first)..positions.min(kept - first);
            CachedRows { block, first, rows }
        });
        (choice, rows)
    }

    /// Rows at `new` are there: what is whole does not change any more.
    pub(crate) fn seal(&mut self, new: &Range<usize>) {
        self.taken.clear();
        if self.pool.disk().is_none() {
            return;
        }
        let positions = self.spec.positions;
        for number in self.touched(new).filter(|number| (number + 1) * positions <= new.end) {
            if let Some(block) = self.blocks.get_mut(number - self.first) {
                CacheBlock::seal(block, number * positions);
            }
        }
    }

    /// Whether it can be cut to `len` positions and go on: it has all that a query at `len` sees.
    pub fn reaches(&self, len: usize) -> bool {
        self.first <= self.spec.first_block(len)
    }

    /// Let go of the blocks after the first `len` positions.
    pub fn cut(&mut self, len: usize) {
        self.taken.clear();
        self.blocks.truncate(self.spec.end_block(len).saturating_sub(self.first));
        if len == 0 {
            self.first = 0;
        }
    }

    /// Let go of the blocks that no query from position `next` on sees.
    pub fn leave(&mut self, next: usize) {
        let gone = self.spec.first_block(next).saturating_sub(self.first).min(self.blocks.len());
        self.blocks.drain(..gone);
        self.first += gone;
    }

    /// Another table with the blocks of the first `len` positions, as far as this one has them.
    #[must_use]
    pub fn fork(&self, len: usize) -> BlockTable<S> {
        let mut fork = BlockTable {
            pool: self.pool.clone(),
            spec: self.spec,
            first: self.first,
            blocks: self.blocks.clone(),
            taken: VecDeque::new(),
        };
        fork.cut(len);
        fork
    }

    /// The blocks that `positions` fall into, for others to find as long as someone holds them.
    pub(crate) fn weak(&self, positions: Range<usize>) -> Box<[Weak<CacheBlock<S>>]> {
        let block = |number: usize| self.blocks.get(number.checked_sub(self.first)?);
        let weak = |number| block(number).map_or_else(Weak::new, Arc::downgrade);
        self.touched(&positions).map(weak).collect()
    }

    /// Its blocks, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<CacheBlock<S>>> {
        self.blocks.iter()
    }

    /// Hold these blocks, the first of which has number `first`, instead of its own.
    pub(crate) fn adopt(&mut self, first: usize, blocks: Vec<Arc<CacheBlock<S>>>) {
        self.first = first;
        self.blocks = blocks.into();
    }
}

impl<S: Store> std::fmt::Debug for BlockTable<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("BlockTable");
        out.field("spec", &self.spec).field("positions", &self.positions()).finish_non_exhaustive()
    }
}

//! [`BlockPool`]: the blocks of one model, for all its sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::prefixes::Prefixes;
use crate::spill::{Disk, SpillStats};
use crate::{BlockKind, BlockMemory, BlockStore, CacheBlock, Error, Result, Store};

/// Blocks of any size within a budget, and the prefixes that sessions may share. Clones are the same pool.
///
/// A freed block stays for the next that wants one of its size, for fresh pages cost more than the numbers written to
/// them; [`trim`](Self::trim) and need give freed memory back. Where a budget is given, blocks that were allocated beside
/// others and not written yet count nothing, if the store can say so ([`Store::is_apart`], [`Store::release`]): all counted bytes
/// can be used for any size, and no others are in memory.
pub struct BlockPool<S: Store>(Arc<Shared<S>>);

impl<S: Store> Clone for BlockPool<S> {
    fn clone(&self) -> BlockPool<S> {
        BlockPool(Arc::clone(&self.0))
    }
}

struct Shared<S: Store> {
    store: S,
    /// Bytes of the budget that tables do not grow into.
    reserve: AtomicU64,
    disk: Option<Disk<S>>,
    /// Most bytes of blocks, freed ones included.
    budget: Option<u64>,
    memory: Mutex<Freed<S::Memory>>,
    /// Taken before `memory`, never after: dropping the last hold on a block takes `memory`.
    prefixes: Mutex<Prefixes<S>>,
}

/// Blocks for which memory is given back at once.
const FEW: u64 = 16;

/// Freed memory, by kind of block.
struct Freed<M> {
    kinds: BTreeMap<BlockKind, BTreeMap<u64, Batch<M>>>,
    next_batch: u64,
    in_use: u64,
    free: u64,
}

/// Blocks that were allocated together.
struct Batch<M> {
    n: usize,
    free: Vec<M>,
    /// Free ones that take no memory until they are written.
    bare: Vec<M>,
}

impl<M> Batch<M> {
    fn is_idle(&self) -> bool {
        self.free.len() + self.bare.len() == self.n
    }
}

/// How much of a budget may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All but what is kept free for blocks that are chosen.
    Growth,
    /// All of it: for blocks that are chosen, each for a short time.
    Whole,
}

impl<S: Store> BlockPool<S> {
    /// An empty pool that takes at most `budget` bytes; `None`: as many as the store has.
    pub fn new(store: S, budget: Option<u64>) -> BlockPool<S> {
        BlockPool::made(store, budget, None)
    }

    /// The same with a disk: blocks that do not change any more leave memory where the budget wants that.
    pub fn with_disk(store: S, budget: u64, disk: BlockStore) -> BlockPool<S> {
        BlockPool::made(store, Some(budget), Some(Disk::new(disk)))
    }

    fn made(store: S, budget: Option<u64>, disk: Option<Disk<S>>) -> BlockPool<S> {
        let memory = Freed { kinds: BTreeMap::new(), next_batch: 0, in_use: 0, free: 0 };
        let (memory, prefixes) = (Mutex::new(memory), Mutex::new(Prefixes::default()));
        let reserve = AtomicU64::new(0);
        BlockPool(Arc::new(Shared { store, budget, reserve, disk, memory, prefixes }))
    }

    /// Keep at least so many bytes of the budget for blocks that are chosen, which tables do not grow into.
    pub fn reserve(&self, bytes: u64) {
        self.0.reserve.fetch_max(bytes, Ordering::Relaxed);
    }

    /// What its disk has done; `None` without one.
    pub fn spilled(&self) -> Option<SpillStats> {
        self.0.disk.as_ref().map(Disk::stats)
    }

    /// Begin to read those of these blocks that are not in memory, the first one first.
    pub fn read_ahead<'a>(&self, blocks: impl Iterator<Item = &'a Arc<CacheBlock<S>>>)
    where
        S: 'a,
    {
        if let Some(disk) = &self.0.disk {
            let records: Vec<_> = blocks.filter_map(|block| block.record_to_read()).collect();
            disk.read_ahead(&records);
        }
    }

    pub(crate) fn disk(&self) -> Option<&Disk<S>> {
        self.0.disk.as_ref()
    }

    pub(crate) fn store(&self) -> &S {
        &self.0.store
    }

    /// Bytes of all blocks that some table holds, each once.
    pub fn in_use(&self) -> u64 {
        self.memory().in_use
    }

    /// Bytes of freed blocks that are kept for the next.
    pub fn free(&self) -> u64 {
        self.memory().free
    }

    /// Give freed memory back, but for as much as is in use.
    pub fn trim(&self) {
        let mut memory = self.memory();
        let surplus = memory.free.saturating_sub(memory.in_use);
        memory.give_back(&self.0.store, surplus);
    }

    /// Give all freed memory back: memory has run out where the store did not know it.
    pub fn give_back(&self) {
        self.memory().give_back(&self.0.store, u64::MAX);
    }

    /// A block that nobody shares; what it holds is anything.
    ///
    /// # Errors
    /// [`Error::Budget`], [`Error::Memory`], [`Error::Disk`]; nothing is changed then.
    pub(crate) fn block(&self, kind: BlockKind) -> Result<Arc<CacheBlock<S>>> {
        Ok(Arc::new(CacheBlock::own(self.memory_of(kind, Limit::Growth)?)))
    }

    /// Memory of a block. Where the budget has none, blocks leave memory that can.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub(crate) fn memory_of(&self, kind: BlockKind, limit: Limit) -> Result<BlockMemory<S>> {
        loop {
            let taken = self.take(kind, limit);
            let full = matches!(taken, Err(Error::Budget { .. }));
            if full
                && let Some(disk) = &self.0.disk
                && disk.make_room()?
            {
                continue;
            }
            return Ok(BlockMemory::new(taken?, kind, self.clone()));
        }
    }

    fn take(&self, kind: BlockKind, limit: Limit) -> Result<(S::Memory, u64)> {
        let mut memory = self.memory();
        let reserve = match limit {
            Limit::Growth => self.0.reserve.load(Ordering::Relaxed),
            Limit::Whole => 0,
        };
        if let Some(budget) = self.0.budget.map(|budget| budget.saturating_sub(reserve))
            && memory.in_use + kind.size() > budget
        {
            return Err(Error::Budget { budget, in_use: memory.in_use, bytes: kind.bytes });
        }
        match memory.take(kind) {
            Some(taken) => Ok(taken),
            None => self.make(&mut memory, kind),
        }
    }

    /// Memory that nobody holds any more.
    pub(crate) fn give(&self, freed: S::Memory, kind: BlockKind, batch: u64) {
        let mut memory = self.memory();
        memory.in_use -= kind.size();
        memory.free += kind.size();
        let batch = memory.kinds.get_mut(&kind).and_then(|batches| batches.get_mut(&batch));
        batch.expect("a batch goes when all of it is free").free.push(freed);
    }

    /// A block that takes new memory. Where others must give some back for it, they do for a few: each batch is memory of its own.
    fn make(&self, memory: &mut Freed<S::Memory>, kind: BlockKind) -> Result<(S::Memory, u64)> {
        let (bytes, size) = (kind.bytes, kind.size());
        let most = match self.0.budget {
            None => usize::MAX,
            Some(budget) => {
                let room = |memory: &Freed<_>| budget.saturating_sub(memory.in_use + memory.free);
                if room(memory) < size {
                    let few = size.saturating_mul(FEW).min(budget / 16).max(size);
                    memory.give_back(&self.0.store, few - room(memory));
                }
                let fit = room(memory).checked_div(size).unwrap_or(u64::MAX);
                if fit == 0 {
                    return Err(Error::Budget { budget, in_use: memory.in_use, bytes });
                }
                fit as usize
            }
        };
        if let Some(taken) = memory.take_bare(kind) {
            return Ok(taken);
        }
        let store = &self.0.store;
        let made = store.allocate(kind, most).or_else(|| {
            memory.give_back(store, u64::MAX);
            store.allocate(kind, most)
        });
        let mut free = made.filter(|made| !made.is_empty()).ok_or(Error::Memory { bytes })?;
        let number = memory.next_batch;
        memory.next_batch += 1;
        let n = free.len();
        let has_budget = self.0.budget.is_some();
        let is_bare =
            |block: &mut S::Memory| has_budget && store.is_apart(block) && store.release(block);
        let bare = free.extract_if(.., is_bare).collect();
        memory.free += free.len() as u64 * size;
        memory.kinds.entry(kind).or_default().insert(number, Batch { n, free, bare });
        let taken = memory.take(kind).or_else(|| memory.take_bare(kind));
        Ok(taken.expect("a batch has at least one block"))
    }

    /// A block of its own with what `from` holds.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub(crate) fn copy(&self, from: &Arc<CacheBlock<S>>) -> Result<Arc<CacheBlock<S>>> {
        let taken = match from.memory() {
            Some(_) => None,
            None => Some(CacheBlock::take(from, Limit::Growth)?),
        };
        let mut copy = self.block(from.kind())?;
        let own = Arc::get_mut(&mut copy).and_then(CacheBlock::memory_mut);
        let own = own.expect("nobody shares a new block");
        let memory = taken.as_ref().map(|taken| taken.get()).or_else(|| from.memory());
        self.0.store.copy(memory.expect("one of both"), own);
        Ok(copy)
    }

    pub(crate) fn prefixes(&self) -> MutexGuard<'_, Prefixes<S>> {
        self.0.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Freed<S::Memory>> {
        // every change is whole before anything can panic
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Freed<M> {
    /// A free block of the oldest batch that has one: so that later batches come free as a whole.
    fn take(&mut self, kind: BlockKind) -> Option<(M, u64)> {
        let batches = self.kinds.get_mut(&kind)?;
        let taken = batches.iter_mut().find_map(|(at, batch)| Some((batch.free.pop()?, *at)))?;
        self.in_use += kind.size();
        self.free -= kind.size();
        Some(taken)
    }

    /// The same of those that take no memory yet.
    fn take_bare(&mut self, kind: BlockKind) -> Option<(M, u64)> {
        let batches = self.kinds.get_mut(&kind)?;
        let taken = batches.iter_mut().find_map(|(at, batch)| Some((batch.bare.pop()?, *at)))?;
        self.in_use += kind.size();
        Some(taken)
    }

    /// Give `surplus` bytes of free blocks back, or as many as can be: batches that are all free, the newest first, then
    /// what blocks beside others take.
    fn give_back<S: Store<Memory = M>>(&mut self, store: &S, mut surplus: u64) {
        for (kind, batches) in &mut self.kinds {
            let idle = batches.iter().rev().filter(|(_, batch)| batch.is_idle());
            let idle: Vec<u64> = idle.map(|(at, _)| *at).collect();
            for at in idle {
                if surplus == 0 {
                    return;
                }
                let gone =
                    batches.remove(&at).map_or(0, |batch| batch.free.len() as u64 * kind.size());
                self.free -= gone;
                surplus = surplus.saturating_sub(gone);
            }
        }
        for (kind, batches) in &mut self.kinds {
            for batch in batches.values_mut().rev() {
                while surplus > 0
                    && let Some(mut block) = batch.free.pop()
                {
                    if !store.release(&mut block) {
                        batch.free.push(block);
                        break;
                    }
                    batch.bare.push(block);
                    self.free -= kind.size();
                    surplus = surplus.saturating_sub(kind.size());
                }
            }
        }
    }
}

impl<S: Store> std::fmt::Debug for BlockPool<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (in_use, free) = (self.in_use(), self.free());
        let mut out = f.debug_struct("BlockPool");
        out.field("budget", &self.0.budget).field("in_use", &in_use).field("free", &free);
        out.finish_non_exhaustive()
    }
}

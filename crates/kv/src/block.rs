//! [`CacheBlock`]: one block, its memory, and what becomes of it once it is sealed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::RecordMark;
use crate::pool::Limit;
use crate::{BlockBytes, BlockKind, BlockPool, DiskError, Error, RecordId, Result, Store};

/// One block, which its holders share. Its memory is free again when the last of them lets go.
///
/// While rows are written to it, it is its table's own and in memory. In a pool with a disk it is **sealed** when all its
/// rows are there: from then on it never changes, and leaves memory when others need that; who wants it takes it.
pub struct CacheBlock<S: Store> {
    place: Place<S>,
    /// The record that has the same bytes in a store that stays, as long as nobody writes to the block.
    kept: Mutex<RecordMark>,
}

enum Place<S: Store> {
    /// In memory, for one table to write.
    Own(BlockMemory<S>),
    /// In memory, on disk, or both.
    Sealed(SealedBlock<S>),
}

/// The memory of a block. It goes back to its pool when this is dropped.
pub struct BlockMemory<S: Store> {
    /// There until it is dropped.
    memory: Option<S::Memory>,
    kind: BlockKind,
    batch: u64,
    pool: BlockPool<S>,
}

impl<S: Store> BlockMemory<S> {
    pub(crate) fn new(taken: (S::Memory, u64), kind: BlockKind, pool: BlockPool<S>) -> Self {
        BlockMemory { memory: Some(taken.0), kind, batch: taken.1, pool }
    }

    /// The memory itself.
    pub fn get(&self) -> &S::Memory {
        self.memory.as_ref().expect("there until it is dropped")
    }

    pub(crate) fn get_mut(&mut self) -> &mut S::Memory {
        self.memory.as_mut().expect("there until it is dropped")
    }

    /// The same, out of a place that keeps nothing.
    fn take(&mut self) -> BlockMemory<S> {
        let (memory, pool) = (self.memory.take(), self.pool.clone());
        BlockMemory { memory, kind: self.kind, batch: self.batch, pool }
    }
}

impl<S: Store> Drop for BlockMemory<S> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give(memory, self.kind, self.batch);
        }
    }
}

/// A sealed block's bytes, from wherever they are.
#[derive(Debug)]
pub enum Looked<S: Store> {
    /// Memory of the pool's.
    Memory(Arc<BlockMemory<S>>),
    /// Memory of the disk's, for as long as this is kept.
    Disk(BlockBytes),
}

/// A block that does not change any more.
pub(crate) struct SealedBlock<S: Store> {
    pool: BlockPool<S>,
    kind: BlockKind,
    /// Position of its first row.
    position: usize,
    /// When it was last taken, by the disk's clock.
    pub(crate) used: AtomicU64,
    /// Under which time it stands among those that may leave memory.
    pub(crate) listed: AtomicU64,
    tier: Mutex<Tier<S>>,
}

/// Where it is; at least one of both.
pub(crate) struct Tier<S: Store> {
    pub(crate) memory: Option<Arc<BlockMemory<S>>>,
    pub(crate) record: Option<RecordId>,
}

impl<S: Store> CacheBlock<S> {
    pub(crate) fn own(memory: BlockMemory<S>) -> CacheBlock<S> {
        CacheBlock { place: Place::Own(memory), kept: Mutex::default() }
    }

    /// The record that has its bytes in a store that stays, if one was [marked](Self::set_kept) and is still there.
    pub(crate) fn kept(&self) -> RecordMark {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This record has its bytes as they are now.
    pub(crate) fn set_kept(&self, mark: RecordMark) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = mark;
    }

    /// Hand out its bytes, once, from wherever they are.
    ///
    /// # Errors
    /// [`Error::Lost`] if they are not to be had.
    pub(crate) fn read_out(block: &Arc<CacheBlock<S>>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        match &block.place {
            Place::Own(memory) => memory.pool.store().save(memory.get(), take),
            Place::Sealed(sealed) => match CacheBlock::look(block)? {
                Looked::Memory(memory) => sealed.pool.store().save(memory.get(), take),
                Looked::Disk(bytes) => take(&bytes),
            },
        }
        Ok(())
    }

    /// Its memory, if it is not sealed.
    pub fn memory(&self) -> Option<&S::Memory> {
        match &self.place {
            Place::Own(memory) => Some(memory.get()),
            Place::Sealed(_) => None,
        }
    }

    /// Its memory for writing, if it is not sealed.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut S::Memory> {
        match &mut self.place {
            Place::Own(memory) => {
                *self.kept.get_mut().unwrap_or_else(PoisonError::into_inner) =
                    RecordMark::default();
                Some(memory.get_mut())
            }
            Place::Sealed(_) => None,
        }
    }

    pub(crate) fn sealed(&self) -> Option<&SealedBlock<S>> {
        match &self.place {
            Place::Own(_) => None,
            Place::Sealed(block) => Some(block),
        }
    }

    pub(crate) fn kind(&self) -> BlockKind {
        match &self.place {
            Place::Own(memory) => memory.kind,
            Place::Sealed(block) => block.kind,
        }
    }

    /// From now on it does not change, and may leave memory; without a disk it stays as it is. `position`: of its first row.
    pub(crate) fn seal(block: &mut Arc<CacheBlock<S>>, position: usize) {
        let Some(CacheBlock { place, .. }) = Arc::get_mut(block) else { return };
        let Place::Own(own) = place else { return };
        let Some(disk) = own.pool.disk() else { return };
        let now = disk.now();
        let (pool, kind, memory) = (own.pool.clone(), own.kind, Some(Arc::new(own.take())));
        *place = Place::Sealed(SealedBlock {
            pool: pool.clone(),
            kind,
            position,
            used: now.into(),
            listed: now.into(),
            tier: Mutex::new(Tier { memory, record: None }),
        });
        if let Some(disk) = pool.disk() {
            disk.list(now, block);
        }
    }

    /// Its memory, which stays as it is until this is dropped: read from disk if it is not there. `limit`: how much of the
    /// budget that may take.
    ///
    /// # Panics
    /// If it is not sealed.
    ///
    /// # Errors
    /// [`Error::Lost`] if its bytes are not to be had; the pool's.
    pub fn take(block: &Arc<CacheBlock<S>>, limit: Limit) -> Result<Arc<BlockMemory<S>>> {
        let sealed = block.sealed().expect("blocks that are chosen are sealed");
        let disk = sealed.pool.disk().expect("sealed blocks have a disk");
        let now = disk.now();
        sealed.used.store(now, Ordering::Relaxed);
        let mut tier = sealed.tier();
        if let Some(memory) = &tier.memory {
            disk.counts.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(memory));
        }
        let mut memory = sealed.pool.memory_of(sealed.kind, limit)?;
        let record = tier.record.expect("what is not in memory is on disk");
        let read = disk.read(record, |bytes| sealed.pool.store().load(bytes, memory.get_mut()));
        read.map_err(|reason| Error::Lost { position: sealed.position, reason })?;
        let memory = Arc::new(memory);
        tier.memory = Some(Arc::clone(&memory));
        drop(tier);
        sealed.listed.store(now, Ordering::Relaxed);
        disk.list(now, block);
        Ok(memory)
    }

    /// Its memory for a look that says nothing of what will be wanted: what must be read for it goes when this is dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] if its bytes are not to be had.
    ///
    /// # Panics
    /// If it is not sealed.
    pub fn look(block: &Arc<CacheBlock<S>>) -> Result<Looked<S>> {
        let sealed = block.sealed().expect("blocks that are chosen are sealed");
        let disk = sealed.pool.disk().expect("sealed blocks have a disk");
        let tier = sealed.tier();
        if let Some(memory) = &tier.memory {
            return Ok(Looked::Memory(Arc::clone(memory)));
        }
        let record = tier.record.expect("what is not in memory is on disk");
        drop(tier);
        let read = disk.look(record).map(Looked::Disk);
        read.map_err(|reason| Error::Lost { position: sealed.position, reason })
    }

    /// Whether it must be read before it can be taken.
    pub(crate) fn record_to_read(&self) -> Option<RecordId> {
        let tier = self.sealed()?.tier();
        tier.record.filter(|_| tier.memory.is_none())
    }
}

impl<S: Store> SealedBlock<S> {
    pub(crate) fn tier(&self) -> MutexGuard<'_, Tier<S>> {
        // every change is whole before anything can panic
        self.tier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let its memory go, if nobody has taken it; its bytes are on disk then, where they are written if `may_write`. Whether
    /// memory came free.
    ///
    /// # Errors
    /// Why they cannot be written: all is as it was.
    pub(crate) fn leave_memory(&self, may_write: bool) -> Result<bool, DiskError> {
        let Some(disk) = self.pool.disk() else { return Ok(false) };
        let mut tier = self.tier();
        if tier.record.is_none() && !may_write {
            return Ok(false);
        }
        let Some(memory) = tier.memory.take_if(|memory| Arc::strong_count(memory) == 1) else {
            return Ok(false);
        };
        if tier.record.is_none() {
            match disk.write(self.pool.store(), memory.get()) {
                Ok(record) => tier.record = Some(record),
                Err(error) => {
                    tier.memory = Some(memory);
                    return Err(error);
                }
            }
        }
        drop(memory);
        Ok(true)
    }
}

impl<S: Store> Drop for SealedBlock<S> {
    fn drop(&mut self) {
        let record = self.tier().record.take();
        if let Some(disk) = self.pool.disk() {
            disk.forget(self.listed.load(Ordering::Relaxed), record);
        }
    }
}

impl<S: Store> std::fmt::Debug for CacheBlock<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("CacheBlock");
        let sealed = self.sealed().is_some();
        out.field("kind", &self.kind()).field("sealed", &sealed).finish_non_exhaustive()
    }
}

impl<S: Store> std::fmt::Debug for BlockMemory<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("BlockMemory");
        out.field("kind", &self.kind).field("batch", &self.batch).finish_non_exhaustive()
    }
}

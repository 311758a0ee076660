//! [`Disk`]: sealed blocks leave memory for a [`BlockStore`], the one that was taken longest ago first.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::{BlockBytes, BlockStore, CacheBlock, DiskError, RecordId, Store};

/// What a pool's sealed blocks have to do with its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Blocks that left memory for the first time, which wrote them.
    pub written: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Blocks that were taken and had to be read.
    pub loaded: u64,
    /// Bytes of these.
    pub loaded_bytes: u64,
    /// Blocks that were taken and were in memory.
    pub hits: u64,
    /// Time that takers waited for reading, of all threads.
    pub waited: std::time::Duration,
}

#[derive(Default)]
pub(crate) struct DiskCounts {
    pub(crate) hits: AtomicU64,
    written: AtomicU64,
    written_bytes: AtomicU64,
    loaded: AtomicU64,
    loaded_bytes: AtomicU64,
    waited_ns: AtomicU64,
}

/// Sealed blocks in memory, by the time under which they are listed: that of when they were last taken, or an earlier one.
type Order<S> = BTreeMap<u64, Weak<CacheBlock<S>>>;

/// The disk of a pool.
pub(crate) struct Disk<S: Store> {
    store: BlockStore,
    order: Mutex<Order<S>>,
    clock: AtomicU64,
    pub(crate) counts: DiskCounts,
}

impl<S: Store> Disk<S> {
    pub(crate) fn new(store: BlockStore) -> Disk<S> {
        let (order, counts) = (Mutex::default(), DiskCounts::default());
        Disk { store, order, clock: AtomicU64::new(1), counts }
    }

    /// A time that no other block has.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn order(&self) -> MutexGuard<'_, Order<S>> {
        // every change is whole before anything can panic
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block in memory that may leave it.
    pub(crate) fn list(&self, time: u64, block: &Arc<CacheBlock<S>>) {
        self.order().insert(time, Arc::downgrade(block));
    }

    /// A block is gone.
    pub(crate) fn forget(&self, time: u64, record: Option<RecordId>) {
        self.order().remove(&time);
        if let Some(record) = record {
            // who does not have it any more has nothing to free
            let _ = self.store.free(record);
        }
    }

    /// Have the block leave memory that was taken longest ago, of those that nobody has taken now; whether one did. Where the
    /// disk takes no more, one that it has already.
    ///
    /// # Errors
    /// Why none can be written.
    pub(crate) fn make_room(&self) -> Result<bool, DiskError> {
        // the list stays whole: others look for room, too
        let (mut after, mut refused) = (Bound::Unbounded, None);
        loop {
            let next = {
                let order = self.order();
                let next = order.range((after, Bound::Unbounded)).next();
                next.map(|(time, weak)| (*time, Weak::clone(weak)))
            };
            let Some((time, weak)) = next else { return refused.map_or(Ok(false), Err) };
            after = Bound::Excluded(time);
            let block = weak.upgrade();
            let Some(sealed) = block.as_ref().and_then(|block| block.sealed()) else {
                self.order().remove(&time);
                continue;
            };
            let used = sealed.used.load(Ordering::Relaxed);
            if used > time {
                sealed.listed.store(used, Ordering::Relaxed);
                let mut order = self.order();
                order.remove(&time);
                order.insert(used, weak);
                continue;
            }
            match sealed.leave_memory(refused.is_none()) {
                Ok(true) => {
                    self.order().remove(&time);
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) if error.is_full() => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Keep the bytes of a block.
    pub(crate) fn write(&self, store: &S, memory: &S::Memory) -> Result<RecordId, DiskError> {
        let mut written = Ok(None);
        store.save(memory, &mut |bytes| {
            written = self.store.put(bytes).map(Some);
            self.counts.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        });
        let record = written?.expect("a store hands out the bytes of a block");
        self.counts.written.fetch_add(1, Ordering::Relaxed);
        Ok(record)
    }

    /// Have the bytes of a block.
    pub(crate) fn read(
        &self,
        record: RecordId,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), DiskError> {
        let since = Instant::now();
        let bytes = self.store.take(record)?;
        let waited = since.elapsed().as_nanos() as u64;
        take(&bytes);
        self.counts.waited_ns.fetch_add(waited, Ordering::Relaxed);
        self.counts.loaded.fetch_add(1, Ordering::Relaxed);
        self.counts.loaded_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The bytes of a block, for a short time.
    pub(crate) fn look(&self, record: RecordId) -> Result<BlockBytes, DiskError> {
        self.store.take(record)
    }

    /// Begin to read blocks that will be taken.
    pub(crate) fn read_ahead(&self, records: &[RecordId]) {
        if !records.is_empty() {
            self.store.read_ahead(records);
        }
    }

    pub(crate) fn stats(&self) -> SpillStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        SpillStats {
            written: count(&counts.written),
            written_bytes: count(&counts.written_bytes),
            loaded: count(&counts.loaded),
            loaded_bytes: count(&counts.loaded_bytes),
            hits: count(&counts.hits),
            waited: std::time::Duration::from_nanos(count(&counts.waited_ns)),
        }
    }
}

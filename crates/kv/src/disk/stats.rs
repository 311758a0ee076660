//! [`DiskStats`]: what a store has done, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a [`BlockStore`](super::BlockStore) holds and has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Records held.
    pub records: usize,
    /// Bytes of their pages.
    pub bytes: u64,
    /// Bytes of the file, free ones included.
    pub file_bytes: u64,
    /// Bytes written, headers included.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Records that are to be written.
    pub queued_writes: usize,
    /// Bytes of them, in memory.
    pub queued_bytes: usize,
    /// Records that are asked for ahead and not read yet.
    pub queued_reads: usize,
    /// Bytes of them and of what was read and not taken.
    pub ahead_bytes: usize,
    /// Blocks that were read when they were wanted.
    pub ahead_hits: u64,
    /// Blocks that were asked for ahead and not read yet when they were wanted.
    pub ahead_late: u64,
    /// Blocks that were wanted and not asked for, or that had gone for others.
    pub ahead_misses: u64,
    /// Blocks that were read and not wanted.
    pub ahead_wasted: u64,
    /// Time that those waited who put blocks.
    pub put_wait: Duration,
    /// Time that those waited who wanted blocks, reads of their own included.
    pub get_wait: Duration,
    /// Folders of killed processes that were removed at the start.
    pub swept_folders: usize,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.get())
    }
}

/// What is counted while a store works.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) written: Count,
    pub(super) read: Count,
    pub(super) put_wait: Count,
    pub(super) get_wait: Count,
}

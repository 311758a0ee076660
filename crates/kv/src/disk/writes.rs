//! Writing behind: blocks on their way to the file, in memory until they are there.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::pages::PageBuffer;
use super::record::{Record, RecordSpace};
use super::{DiskError, Result};

/// Records to be written, in the order they came.
pub(super) struct WriteQueue {
    /// Most bytes of them.
    most: usize,
    state: Mutex<Writes>,
    /// The writer waits for work.
    work: Condvar,
    /// Others wait for room, or for the end.
    done: Condvar,
}

#[derive(Default)]
struct Writes {
    /// Records that were let go of meanwhile are not written.
    queue: VecDeque<Weak<Record>>,
    /// Bytes that are pending, with those of who is about to queue.
    bytes: usize,
    is_writing: bool,
    /// Records that ever queued, and those of them that need no writing any more: they go in order.
    pushed: u64,
    finished: u64,
    /// Why the first in the queue could not be written. The writer waits until somebody has been told.
    failure: Option<DiskError>,
    /// Attempts to write, and how many of them began when there was less room than now: these tell nothing.
    begun: u64,
    outdated: u64,
    is_stopped: bool,
}

impl WriteQueue {
    pub(super) fn new(most: usize) -> WriteQueue {
        let (work, done) = (Condvar::new(), Condvar::new());
        WriteQueue { most, state: Mutex::default(), work, done }
    }

    /// Wait for room for `bytes` more; how long that took. One record always has room.
    ///
    /// # Errors
    /// Why an earlier record could not be written; the writer then tries again.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Duration> {
        let since = Instant::now();
        let mut state = self.state();
        while state.failure.is_none() && state.bytes > 0 && state.bytes + bytes > self.most {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(failure) = state.failure.take() {
            self.work.notify_all();
            return Err(failure);
        }
        state.bytes += bytes;
        Ok(since.elapsed())
    }

    /// What was reserved or pending is not any more.
    pub(super) fn release(&self, bytes: usize) {
        self.state().bytes -= bytes;
        self.done.notify_all();
    }

    /// Have a record written.
    pub(super) fn push(&self, record: &Arc<Record>) {
        let mut state = self.state();
        state.queue.push_back(Arc::downgrade(record));
        state.pushed += 1;
        self.work.notify_all();
    }

    /// Wait until all is written that was queued before.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(super) fn flush(&self) -> Result<()> {
        let mut state = self.state();
        state.failure = None;
        self.work.notify_all();
        let all = state.pushed;
        while state.finished < all {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// There may be more room than before: what could not be written is tried again, and nobody is told of an attempt that
    /// began earlier.
    pub(super) fn try_again(&self) {
        let mut state = self.state();
        state.outdated = state.begun;
        if state.failure.take().is_some() {
            self.work.notify_all();
        }
    }

    /// Records and bytes that are pending.
    pub(super) fn depth(&self) -> (usize, usize) {
        let state = self.state();
        let alive = state.queue.iter().filter(|record| record.strong_count() > 0).count();
        (alive + usize::from(state.is_writing), state.bytes)
    }

    /// Make [`run`](Self::run) end; what is pending stays unwritten.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
        self.work.notify_all();
    }

    /// What the writer's thread does; `written` is told of bytes.
    pub(super) fn run(&self, written: impl Fn(u64)) {
        while let Some((record, attempt)) = self.next() {
            match record.write() {
                Ok(bytes) => {
                    written(bytes);
                    // before others are told, nobody here holds it any more
                    drop(record);
                    let mut state = self.state();
                    state.finished += 1;
                    state.is_writing = false;
                    self.done.notify_all();
                }
                Err(failure) => {
                    let mut state = self.state();
                    state.queue.push_front(Arc::downgrade(&record));
                    state.failure = Some(failure).filter(|_| attempt > state.outdated);
                }
            }
        }
    }

    /// What to write next, and the number of this attempt.
    fn next(&self) -> Option<(Arc<Record>, u64)> {
        let mut state = self.state();
        state.is_writing = false;
        loop {
            if state.is_stopped {
                return None;
            }
            while state.failure.is_none() && !state.queue.is_empty() {
                if let Some(record) = state.queue.pop_front().and_then(|record| record.upgrade()) {
                    state.is_writing = true;
                    state.begun += 1;
                    return Some((record, state.begun));
                }
                state.finished += 1;
            }
            self.done.notify_all();
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, Writes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a record until the file has them.
pub(super) struct Pending {
    /// There until it is dropped.
    buffer: Option<PageBuffer>,
    queue: Arc<WriteQueue>,
    space: Arc<RecordSpace>,
}

impl Pending {
    /// Bytes whose room was reserved.
    pub(super) fn new(
        buffer: PageBuffer,
        queue: Arc<WriteQueue>,
        space: Arc<RecordSpace>,
    ) -> Pending {
        Pending { buffer: Some(buffer), queue, space }
    }

    /// All of the record, its header first.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().expect("there until it is dropped").bytes()
    }

    /// It need not be written any more. Whoever still reads it does so at his own cost, or one thread could wait for itself.
    pub(super) fn release(&self) {
        self.queue.release(self.bytes().len());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.space.buffers.give(buffer);
        }
    }
}

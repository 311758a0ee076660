//! [`BlockStore`]: blocks put, got and let go of.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::ahead::ReadAhead;
use super::folder::{ProcessFolder, any_number};
use super::keep::{self, Manifests};
use super::medium::{ManifestFiles, ManifestMedium, RecordFile, RecordMedium};
use super::pages::{PAGE, PageBuffer, PageBuffers};
use super::record::{Entry, Record, RecordMark, RecordSpace, checksum};
use super::stats::Counts;
use super::writes::{Pending, WriteQueue};
use super::{DiskError, DiskStats, Result};

/// How a [`BlockStore`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Most bytes of its file; `None`: as many as the disk has.
    pub max_bytes: Option<u64>,
    /// Most bytes of blocks in memory that are still to be written; one block always may be.
    pub queue_bytes: usize,
    /// Most bytes of blocks in memory that are read ahead and not taken.
    pub ahead_bytes: usize,
    /// Threads that read ahead; with 0 nothing is.
    pub readers: usize,
    /// Bypass the system's cache of pages where the file system can.
    pub direct: bool,
    /// Open the store of the folder that stays, which one process has at a time, instead of one that goes with the process.
    /// Of its blocks those stay that [`BlockStore::keep`] names.
    pub keep: bool,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            max_bytes: None,
            queue_bytes: 32 << 20,
            ahead_bytes: 32 << 20,
            readers: 4,
            direct: true,
            keep: false,
        }
    }
}

/// A block in a [`BlockStore`]; no number means two blocks in the store's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(u64);

/// Blocks in a file, for any number of threads.
///
/// A block that was [put](Self::put) is read back as it was, from memory until it is written. One that cannot be written
/// stays in memory, and who puts the next is told; each one who is told makes the writer try again.
pub struct BlockStore {
    pub(super) shared: Arc<Shared>,
    pub(super) manifests: Mutex<Manifests>,
    pub(super) manifest_files: Box<dyn ManifestMedium>,
    threads: Vec<JoinHandle<()>>,
    /// Dropped last: the file is removed when nothing writes to it.
    pub(super) folder: ProcessFolder,
}

pub(super) struct Shared {
    pub(super) space: Arc<RecordSpace>,
    writes: Arc<WriteQueue>,
    ahead: ReadAhead,
    records: Mutex<Records>,
    counts: Counts,
}

#[derive(Default)]
struct Records {
    held: HashMap<u64, Arc<Record>>,
    next: u64,
    /// Added to a record's number it makes its stamp.
    stamp: u64,
}

impl BlockStore {
    /// A store of this process in `dir`, which is made if need be and may be shared with other processes. What killed ones
    /// left there is removed. With [`DiskOptions::keep`] the one store there that stays.
    ///
    /// # Errors
    /// [`DiskError::Locked`] if another process has the store that stays; what the system says of files and folders. What is
    /// wrong with a manifest is told to who wants what it names.
    pub fn open(dir: &Path, options: DiskOptions) -> Result<BlockStore> {
        BlockStore::open_with(dir, options, |file| file)
    }

    /// The same with something between the file and the store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        dir: &Path,
        options: DiskOptions,
        medium: impl FnOnce(Box<dyn RecordMedium>) -> Box<dyn RecordMedium>,
    ) -> Result<BlockStore> {
        BlockStore::open_over(dir, options, medium, Box::new(ManifestFiles))
    }

    /// The same with manifests written by `manifest_files`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_over(
        dir: &Path,
        options: DiskOptions,
        medium: impl FnOnce(Box<dyn RecordMedium>) -> Box<dyn RecordMedium>,
        manifest_files: Box<dyn ManifestMedium>,
    ) -> Result<BlockStore> {
        let folder = ProcessFolder::new(dir, options.keep)?;
        let path = folder.records();
        let failed = |error: &std::io::Error| DiskError::io(&path, "opening", error);
        let file = RecordFile::open(&path, options.direct).map_err(|error| failed(&error))?;
        let medium = medium(Box::new(file));
        let pages = medium.size().map_err(|error| failed(&error))? / PAGE as u64;
        let kept =
            folder.manifests().map_or_else(|| Ok(BTreeMap::new()), |at| keep::load(at, pages))?;
        let buffers = PageBuffers::new(options.queue_bytes.saturating_add(options.ahead_bytes));
        let (file, runs) = ((path, medium), keep::runs(&kept, pages));
        let space = Arc::new(RecordSpace::new(file, buffers, options.max_bytes, pages, runs));
        let manifests = Mutex::new(keep::hold(kept, &space));
        let records = Records { stamp: any_number(), ..Records::default() };
        let shared = Arc::new(Shared {
            space,
            writes: Arc::new(WriteQueue::new(options.queue_bytes)),
            ahead: ReadAhead::new(if options.readers > 0 { options.ahead_bytes } else { 0 }),
            records: Mutex::new(records),
            counts: Counts::default(),
        });
        let mut store =
            BlockStore { shared, manifests, manifest_files, threads: Vec::new(), folder };
        let write = |shared: &Shared| shared.writes.run(|bytes| shared.counts.written.add(bytes));
        store.start("kv-write", write)?;
        for _ in 0..options.readers {
            let read = |shared: &Shared| {
                let read = |record: &Record| shared.read_file(record).ok();
                shared.ahead.run(read, &shared.space.buffers);
            };
            store.start("kv-read", read)?;
        }
        store.shared.space.trim(true);
        Ok(store)
    }

    /// Run something on a thread of the store's.
    fn start(&mut self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
        let failed = |error| DiskError::io(&self.shared.space.path, "starting a thread", &error);
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }

    /// Bytes that a block of `len` takes in the file.
    pub(crate) fn record_bytes(len: u64) -> u64 {
        Entry::pages_for(len).saturating_mul(PAGE as u64)
    }

    /// Keep a block. It is written behind the caller's back; where too much is still to be written, this waits.
    ///
    /// # Errors
    /// [`DiskError::Full`], or why an earlier block could not be written. Nothing is kept of this one then; all others are
    /// as they were.
    pub fn put(&self, block: &[u8]) -> Result<RecordId> {
        let shared = &*self.shared;
        let pages = Entry::pages_for(block.len() as u64);
        let bytes = pages as usize * PAGE;
        shared.counts.put_wait.add_time(shared.writes.reserve(bytes)?);
        let place = shared.space.buffer(pages).and_then(|buffer| {
            let first = shared.space.take(pages);
            first.map(|first| (buffer, first))
        });
        let (mut buffer, first) = place.inspect_err(|_| shared.writes.release(bytes))?;
        let (head, body) = buffer.bytes_mut().split_at_mut(PAGE);
        body[..block.len()].copy_from_slice(block);
        body[block.len()..].fill(0);
        let (len, checksum) = (block.len() as u64, checksum(block));

        let mut records = shared.records();
        let id = records.next;
        records.next += 1;
        let entry = Entry { first, len, checksum, stamp: records.stamp.wrapping_add(id) };
        entry.write_header(head);
        let (queue, space) = (Arc::clone(&shared.writes), Arc::clone(&shared.space));
        let pending = Pending::new(buffer, queue, Arc::clone(&space));
        let record = Arc::new(Record::new(entry, space, Some(pending)));
        records.held.insert(id, Arc::clone(&record));
        drop(records);
        shared.writes.push(&record);
        Ok(RecordId(id))
    }

    /// Copy a block to `out`, which has its length.
    ///
    /// # Errors
    /// [`DiskError::Unknown`], [`DiskError::Length`], or why the right bytes cannot be had; `out` is as it was.
    pub fn get(&self, id: RecordId, out: &mut [u8]) -> Result<()> {
        let record = self.shared.record(id)?;
        let (expected, found) = (record.entry.len as usize, out.len());
        if expected != found {
            return Err(DiskError::Length { expected, found });
        }
        out.copy_from_slice(&self.shared.take(id, &record)?);
        Ok(())
    }

    /// A block in memory of the store's, without a copy if it was [read ahead](Self::read_ahead).
    ///
    /// # Errors
    /// [`DiskError::Unknown`], or why the right bytes cannot be had.
    pub fn take(&self, id: RecordId) -> Result<BlockBytes> {
        let record = self.shared.record(id)?;
        self.shared.take(id, &record)
    }

    /// Begin to read blocks that will be wanted, the first one first; how many of them are in memory or have room there,
    /// which is given in their order. What earlier requests asked for and nobody took makes room. A block is read once for each taker: who wants it
    /// again asks again. Of what cannot be read [`take`](Self::take) tells why.
    pub fn read_ahead(&self, ids: &[RecordId]) -> usize {
        let shared = &*self.shared;
        let records = shared.records();
        let found = ids.iter().filter_map(|id| Some((id.0, Arc::clone(records.held.get(&id.0)?))));
        let mut found: Vec<_> = found.collect();
        drop(records);
        let all = found.len();
        // what is still to be written needs no reading
        found.retain(|(_, record)| record.pending().is_none());
        let in_memory = all - found.len();
        in_memory + shared.ahead.ask(&found, &shared.space.buffers)
    }

    /// Bytes of a block.
    ///
    /// # Errors
    /// [`DiskError::Unknown`].
    pub fn block_len(&self, id: RecordId) -> Result<usize> {
        Ok(self.shared.record(id)?.entry.len as usize)
    }

    /// Let go of a block. Its pages are used again; if it was not written yet it never is.
    ///
    /// # Errors
    /// [`DiskError::Unknown`].
    pub fn free(&self, id: RecordId) -> Result<()> {
        let gone = self.shared.records().held.remove(&id.0);
        self.shared.ahead.forget(id.0, &self.shared.space.buffers);
        gone.map(drop).ok_or_else(|| self.shared.unknown(id))?;
        self.try_writes_again();
        Ok(())
    }

    /// Know a record without holding it.
    ///
    /// # Errors
    /// [`DiskError::Unknown`].
    pub(crate) fn mark(&self, id: RecordId) -> Result<RecordMark> {
        Ok(RecordMark::of(&self.shared.record(id)?))
    }

    /// Hold a record again that is known, if it is still there.
    pub(crate) fn hold_marked(&self, mark: &RecordMark) -> Option<RecordId> {
        Some(self.shared.hold(&mark.record(&self.shared.space)?))
    }

    /// Let others have what is free within the file.
    pub(crate) fn give_back(&self) {
        self.shared.space.punch();
    }

    /// Records are gone: what had no room may have some.
    pub(super) fn try_writes_again(&self) {
        self.shared.writes.try_again();
    }

    /// Wait until the file has all blocks that were put before.
    ///
    /// # Errors
    /// Why it cannot; what is not written stays in memory.
    pub fn flush(&self) -> Result<()> {
        self.shared.writes.flush()
    }

    /// What it holds and has done.
    pub fn stats(&self) -> DiskStats {
        let shared = &*self.shared;
        let (bytes, file_bytes) = shared.space.bytes();
        let (queued_writes, queued_bytes) = shared.writes.depth();
        let (queued_reads, ahead_bytes) = shared.ahead.depth();
        let (counts, ahead) = (&shared.counts, &shared.ahead.counts);
        DiskStats {
            records: shared.records().held.len(),
            bytes,
            file_bytes,
            bytes_written: counts.written.get(),
            bytes_read: counts.read.get(),
            queued_writes,
            queued_bytes,
            queued_reads,
            ahead_bytes,
            ahead_hits: ahead.hits.get(),
            ahead_late: ahead.late.get(),
            ahead_misses: ahead.misses.get(),
            ahead_wasted: ahead.wasted.get(),
            put_wait: counts.put_wait.time(),
            get_wait: counts.get_wait.time(),
            swept_folders: self.folder.swept(),
        }
    }
}

impl Drop for BlockStore {
    fn drop(&mut self) {
        self.shared.writes.stop();
        self.shared.ahead.stop();
        for thread in self.threads.drain(..) {
            // one that panicked has nothing more to do
            let _ = thread.join();
        }
        // what no manifest names is not kept, and the rest leaves memory only
        let gone = std::mem::take(&mut self.shared.records().held);
        drop(gone);
        self.shared.space.trim(false);
    }
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Records> {
        // every change is whole before anything can panic
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, id: RecordId) -> Result<Arc<Record>> {
        let found = self.records().held.get(&id.0).cloned();
        found.ok_or_else(|| self.unknown(id))
    }

    /// Give a record a number.
    pub(super) fn hold(&self, record: &Arc<Record>) -> RecordId {
        let mut records = self.records();
        let id = records.next;
        records.next += 1;
        records.held.insert(id, Arc::clone(record));
        RecordId(id)
    }

    fn unknown(&self, id: RecordId) -> DiskError {
        DiskError::Unknown { path: self.space.path.clone(), id: id.0 }
    }

    /// A block, from memory if the file does not have it yet or it was read ahead.
    fn take(&self, id: RecordId, record: &Record) -> Result<BlockBytes> {
        let len = record.entry.len as usize;
        let held = match record.pending() {
            Some(pending) => Held::Pending(pending),
            None => {
                let since = Instant::now();
                let ahead = self.ahead.take(id.0);
                let buffer = ahead.map_or_else(|| self.read_file(record), Ok);
                self.counts.get_wait.add_time(since.elapsed());
                Held::Read(Some(buffer?))
            }
        };
        Ok(BlockBytes { held, len, space: Arc::clone(&self.space) })
    }

    fn read_file(&self, record: &Record) -> Result<PageBuffer> {
        let buffer = record.read()?;
        self.counts.read.add(buffer.bytes().len() as u64);
        Ok(buffer)
    }
}

/// The bytes of a block as they were put, in memory of the store's until this is dropped.
pub struct BlockBytes {
    held: Held,
    len: usize,
    space: Arc<RecordSpace>,
}

enum Held {
    /// Still to be written: the header first.
    Pending(Arc<Pending>),
    /// There until it is dropped.
    Read(Option<PageBuffer>),
}

impl Deref for BlockBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Pending(pending) => &pending.bytes()[PAGE..][..self.len],
            Held::Read(buffer) => {
                let buffer = buffer.as_ref().expect("there until it is dropped");
                &buffer.bytes()[..self.len]
            }
        }
    }
}

impl Drop for BlockBytes {
    fn drop(&mut self) {
        if let Held::Read(buffer) = &mut self.held
            && let Some(buffer) = buffer.take()
        {
            self.space.buffers.give(buffer);
        }
    }
}

impl std::fmt::Debug for BlockBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("BlockStore");
        out.field("path", &self.shared.space.path).field("stats", &self.stats());
        out.finish_non_exhaustive()
    }
}

//! A record: a page that says what follows, then the bytes of a block, in whole pages.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use twox_hash::XxHash3_64;

use super::medium::{MAX_PAGES, RecordMedium};
use super::pages::{PAGE, PageBuffer, PageBuffers};
use super::space::Space;
use super::writes::Pending;
use super::{DiskError, Result};

/// What a header begins with; the last byte is the version of what follows.
const MAGIC: [u8; 8] = *b"rooflkv\x01";

/// Free bytes at the end of the file that are kept for the next records.
const SLACK: u64 = 16 << 20;

/// What tells whether bytes are those that were written: XXH3 in 64 bits.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// What a record is, wherever it is named. It is written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its first page, which is the header.
    pub first: u64,
    /// Bytes of the block.
    pub len: u64,
    /// Of these bytes.
    pub checksum: u64,
    /// No two records have the same, at the same place or another.
    pub stamp: u64,
}

impl Entry {
    /// Pages of a record for `len` bytes, its header included.
    pub(super) fn pages_for(len: u64) -> u64 {
        1 + len.div_ceil(PAGE as u64)
    }

    /// Pages it takes.
    pub(super) fn pages(&self) -> u64 {
        Entry::pages_for(self.len)
    }

    /// Where its block begins in the file, in bytes.
    pub(super) fn offset(&self) -> u64 {
        (self.first + 1) * PAGE as u64
    }

    /// Write the header page.
    pub(super) fn write_header(&self, page: &mut [u8]) {
        page.fill(0);
        page[..8].copy_from_slice(&MAGIC);
        page[8..40].copy_from_slice(&self.to_bytes());
        let sum = checksum(&page[..40]);
        page[40..48].copy_from_slice(&sum.to_le_bytes());
    }

    /// First page, length, checksum and stamp, little-endian.
    pub(super) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let numbers = [self.first, self.len, self.checksum, self.stamp];
        for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) wrote.
    pub(super) fn from_bytes(bytes: &[u8; 32]) -> Entry {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at * 8 + i]));
        Entry { first: number(0), len: number(1), checksum: number(2), stamp: number(3) }
    }
}

/// The file of records: its pages, and buffers to read and write them with.
pub(super) struct RecordSpace {
    pub(super) path: PathBuf,
    pub(super) medium: Box<dyn RecordMedium>,
    pub(super) buffers: PageBuffers,
    /// Most bytes of the file.
    most: Option<u64>,
    space: Mutex<Tracked>,
}

/// The file is cut while this is locked, so that nothing is written behind a cut that is still to come.
struct Tracked {
    space: Space,
    /// Pages that the file may have by now.
    size: u64,
    /// Whether pages that are given back may leave the file. Not while a store begins or ends: what its records let go of then
    /// may be kept.
    may_shrink: bool,
}

impl RecordSpace {
    /// A file that has `size` pages, of which `taken` runs are in use.
    pub(super) fn new(
        (path, medium): (PathBuf, Box<dyn RecordMedium>),
        buffers: PageBuffers,
        most: Option<u64>,
        size: u64,
        taken: impl IntoIterator<Item = (u64, u64)>,
    ) -> RecordSpace {
        let pages = most.map_or(MAX_PAGES, |most| most / PAGE as u64);
        let space =
            Mutex::new(Tracked { space: Space::new(pages, taken), size, may_shrink: false });
        RecordSpace { path, medium, buffers, most, space }
    }

    /// Bytes of records, and bytes of the file.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let tracked = self.tracked();
        (tracked.space.taken() * PAGE as u64, tracked.size * PAGE as u64)
    }

    /// Room for a record of `pages` pages.
    pub(super) fn take(&self, pages: u64) -> Result<u64> {
        let mut tracked = self.tracked();
        if let Some(first) = tracked.space.take(pages) {
            tracked.size = tracked.size.max(tracked.space.end());
            return Ok(first);
        }
        let taken = tracked.space.taken() * PAGE as u64;
        let (path, most) = (self.path.clone(), self.most.unwrap_or(MAX_PAGES * PAGE as u64));
        Err(DiskError::Full { path, most, taken, wanted: pages * PAGE as u64 })
    }

    /// Use the pages of a record for others.
    fn give(&self, first: u64, pages: u64) {
        let mut tracked = self.tracked();
        tracked.space.give(first, pages);
        let end = tracked.space.end();
        let surplus = (tracked.size - end) * PAGE as u64;
        if tracked.may_shrink && surplus > SLACK && self.cut(end).is_ok() {
            tracked.size = end;
        }
    }

    /// Let the disk have what is free at the end, now and, if `may_shrink`, from now on.
    pub(super) fn trim(&self, may_shrink: bool) {
        let mut tracked = self.tracked();
        self.shrink(&mut tracked);
        tracked.may_shrink = may_shrink;
    }

    fn shrink(&self, tracked: &mut Tracked) {
        let end = tracked.space.end();
        if tracked.size > end && self.cut(end).is_ok() {
            tracked.size = end;
        }
    }

    /// Let the disk have all that is free: it is full, and pages may be taken where it has none yet.
    pub(super) fn punch(&self) {
        let mut tracked = self.tracked();
        self.shrink(&mut tracked);
        for (first, pages) in tracked.space.free() {
            let page = PAGE as u64;
            if self.medium.punch(first * page..(first + pages) * page).is_err() {
                break;
            }
        }
    }

    /// Let the disk have what is behind the first `end` pages.
    fn cut(&self, end: u64) -> Result<()> {
        let done = self.medium.cut(end * PAGE as u64);
        done.map_err(|error| DiskError::io(&self.path, "cutting", &error))
    }

    /// A buffer of `pages` pages.
    pub(super) fn buffer(&self, pages: u64) -> Result<PageBuffer> {
        self.buffers.take(pages as usize).ok_or_else(|| DiskError::Io {
            path: self.path.clone(),
            doing: "buffering",
            found: format!("no memory for {pages} pages"),
        })
    }

    /// Read whole pages from byte `offset` on.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let done = self.medium.read_exact_at(bytes, offset);
        done.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let expected = offset + bytes.len() as u64;
                let found = self.medium.size().unwrap_or(0);
                DiskError::Truncated { path: self.path.clone(), expected, found }
            }
            _ => DiskError::io(&self.path, "reading", &error),
        })
    }

    fn tracked(&self) -> MutexGuard<'_, Tracked> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record and its pages, which are free again when nobody holds it any more.
pub(super) struct Record {
    pub(super) entry: Entry,
    space: Arc<RecordSpace>,
    /// The bytes, header included, until the file has them.
    pending: Mutex<Option<Arc<Pending>>>,
}

/// A record that is known and not held: it may be gone.
#[derive(Clone, Default)]
pub(crate) struct RecordMark(Weak<Record>);

impl RecordMark {
    /// The record, if it is in this file and somebody holds it.
    pub(super) fn record(&self, space: &Arc<RecordSpace>) -> Option<Arc<Record>> {
        self.0.upgrade().filter(|record| Arc::ptr_eq(&record.space, space))
    }

    pub(super) fn of(record: &Arc<Record>) -> RecordMark {
        RecordMark(Arc::downgrade(record))
    }
}

impl Record {
    /// A record whose pages were taken for it; the file has it, or will have what is `pending`.
    pub(super) fn new(entry: Entry, space: Arc<RecordSpace>, pending: Option<Pending>) -> Record {
        Record { entry, space, pending: Mutex::new(pending.map(Arc::new)) }
    }

    /// What is still to be written of it.
    pub(super) fn pending(&self) -> Option<Arc<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Write what is pending; bytes written.
    pub(super) fn write(&self) -> Result<u64> {
        let Some(pending) = self.pending() else { return Ok(0) };
        let (bytes, offset) = (pending.bytes(), self.entry.first * PAGE as u64);
        let wanted = bytes.len() as u64;
        let write = || {
            let done = self.space.medium.write_all_at(bytes, offset);
            done.map_err(|error| DiskError::write(&self.space.path, offset, wanted, &error))
        };
        match write() {
            Err(DiskError::NoSpace { .. }) => {
                self.space.punch();
                write()?;
            }
            done => done?,
        }
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = None;
        pending.release();
        Ok(wanted)
    }

    /// Whether the file has its header where it should be.
    ///
    /// # Errors
    /// [`DiskError::Checksum`] if something else is there; [`DiskError::Truncated`].
    pub(super) fn check_header(&self) -> Result<()> {
        let offset = self.entry.first * PAGE as u64;
        let mut page = self.space.buffer(1)?;
        let done = self.space.read(page.bytes_mut(), offset).and_then(|()| {
            let (path, bytes) = (self.space.path.clone(), page.bytes());
            let mut wanted = [0; PAGE];
            self.entry.write_header(&mut wanted);
            let (expected, found) = (checksum(&wanted), checksum(bytes));
            let wrong = DiskError::Checksum { path, offset, expected, found };
            if *bytes == wanted { Ok(()) } else { Err(wrong) }
        });
        self.space.buffers.give(page);
        done
    }

    /// Its block, from the file, checked.
    pub(super) fn read(&self) -> Result<PageBuffer> {
        let Entry { len, checksum: expected, .. } = self.entry;
        let offset = self.entry.offset();
        let mut buffer = self.space.buffer(self.entry.pages() - 1)?;
        let checked = self.space.read(buffer.bytes_mut(), offset).and_then(|()| {
            let found = checksum(&buffer.bytes()[..len as usize]);
            let path = || self.space.path.clone();
            let wrong = || DiskError::Checksum { path: path(), offset, expected, found };
            if found == expected { Ok(()) } else { Err(wrong()) }
        });
        match checked {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.space.buffers.give(buffer);
                Err(error)
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(pending) = self.pending() {
            pending.release();
        }
        self.space.give(self.entry.first, self.entry.pages());
    }
}

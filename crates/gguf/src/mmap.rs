//! The bytes of a file: mapped, or in memory. The only file of this crate with `unsafe`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Where the bytes of one GGUF file are.
pub(crate) enum Source {
    /// Mapped read-only from a file.
    Mapped(Mmap),
    /// In memory, from `start` on, so that the first byte lies at a multiple of [`ALIGN`].
    Memory { buffer: Vec<u8>, start: usize },
}

/// Least alignment of the first byte of a file: enough for every element type.
const ALIGN: usize = 16;

impl Source {
    /// Maps a regular file. Opening anything else would block (pipes) or never end (devices).
    pub(crate) fn map(path: &Path) -> io::Result<Source> {
        let kind = std::fs::metadata(path)?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Source::memory(Vec::new()));
        }
        if cfg!(miri) {
            // it maps no files
            return std::fs::read(path).map(Source::memory);
        }
        // SAFETY: the mapping is read-only and kept alive by the `Mmap`. Another process that writes to the file
        // meanwhile can change the bytes we see: nothing here relies on reading the same value twice (strings are
        // checked as UTF-8 at each access, lengths are bounds-checked at each access).
        let map = unsafe { Mmap::map(&file)? };
        Ok(Source::Mapped(map))
    }

    /// Takes bytes in memory; they are moved within their buffer if the allocator did not align them.
    pub(crate) fn memory(bytes: Vec<u8>) -> Source {
        if bytes.as_ptr().align_offset(ALIGN) == 0 {
            return Source::Memory { buffer: bytes, start: 0 };
        }
        let mut buffer = Vec::<u8>::with_capacity(bytes.len() + ALIGN);
        let start = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        buffer.resize(start, 0);
        buffer.extend_from_slice(&bytes);
        Source::Memory { buffer, start }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Source::Mapped(map) => map,
            Source::Memory { buffer, start } => &buffer[*start..],
        }
    }

    /// Lets the system take back the whole pages inside `range`; reading them again reads the file again.
    pub(crate) fn release(&self, range: Range<usize>) {
        let Source::Mapped(map) = self else { return };
        let (first, last) =
            (range.start.next_multiple_of(PAGE), range.end.min(map.len()) / PAGE * PAGE);
        if first < last {
            dont_need(map, first, last - first);
        }
    }
}

/// The page size of nearly every system; where pages are larger, neighbours in the same page are read again.
const PAGE: usize = 4096;

#[cfg(unix)]
fn dont_need(map: &Mmap, offset: usize, len: usize) {
    // SAFETY: the mapping is shared, read-only and backed by its file (see `Source::map`), so dropped pages come back
    // with the file's content: a `&[u8]` into them stays valid.
    let advised =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
    // Advice only: on failure the pages stay.
    drop(advised);
}

#[cfg(not(unix))]
fn dont_need(_map: &Mmap, _offset: usize, _len: usize) {}

//! The bytes of a file: read from it at a position, or held in memory.
//!
//! Nothing is mapped: another program may shorten or change a file while it is open, which ends a process that reads a
//! mapping of it (SIGBUS), and breaks Rust's rules for references. A read is an error then, and what was read stays.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::{Error, Result};

/// Where the bytes of one GGUF file are.
pub(crate) enum Source {
    /// A regular file, which had `len` bytes when it was opened.
    File { file: File, len: u64, modified: Option<SystemTime> },
    /// Memory.
    Memory(Vec<u8>),
}

impl Source {
    /// Opens a regular file. Opening anything else would block (pipes) or never end (devices).
    pub(crate) fn open(path: &Path) -> io::Result<Source> {
        let kind = std::fs::metadata(path)?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let file = File::open(path)?;
        let found = file.metadata()?;
        let (len, modified) = (found.len(), found.modified().ok());
        if cfg!(miri) {
            // it has no reads at a position
            return std::fs::read(path).map(Source::Memory);
        }
        Ok(Source::File { file, len, modified })
    }

    /// Bytes in all; of a file, as many as it had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } => *len,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Whether a file has the length and the time of its last change that it had when it was opened.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        let Source::File { file, len, modified } = self else { return Ok(true) };
        let now = file.metadata()?;
        Ok(now.len() == *len && now.modified().ok() == *modified)
    }

    /// Reads a file on, up to position `end`, behind what `bytes` has of it already.
    ///
    /// # Errors
    /// As [`Source::read`]; [`Error::Io`] as well if there is no memory for that.
    pub(crate) fn extend(&self, bytes: &mut Vec<u8>, end: u64, path: &Path) -> Result<()> {
        let start = bytes.len();
        let no_memory = || Error::io(path, io::ErrorKind::OutOfMemory.into());
        let more = usize::try_from(end).map_err(|_| no_memory())?.saturating_sub(start);
        bytes.try_reserve_exact(more).map_err(|_| no_memory())?;
        bytes.resize(start + more, 0);
        self.read(start as u64, &mut bytes[start..], path, "the header")
    }

    /// Copies the bytes from position `start` on into all of `out`, which belong to `section`.
    ///
    /// # Errors
    /// [`Error::Shortened`] if the file ends before, [`Error::Io`] for `path` if it cannot be read.
    pub(crate) fn read(
        &self,
        start: u64,
        out: &mut [u8],
        path: &Path,
        section: &str,
    ) -> Result<()> {
        let needs = start.saturating_add(out.len() as u64);
        let shortened = |has| Error::Shortened { section: section.to_owned(), needs, has };
        match self {
            Source::File { file, .. } => match read_exact_at(file, out, start) {
                Err(problem) if problem.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(shortened(file.metadata().map_or(0, |now| now.len())))
                }
                result => result.map_err(|problem| Error::io(path, problem)),
            },
            Source::Memory(bytes) => {
                let from = usize::try_from(start).ok().and_then(|start| bytes.get(start..));
                let found = from.and_then(|from| from.get(..out.len()));
                out.copy_from_slice(found.ok_or_else(|| shortened(bytes.len() as u64))?);
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut start: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, start) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                out = &mut out[n..];
                start += n as u64;
            }
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(())
}

//! What can go wrong with blocks on disk.

use std::io;
use std::path::{Path, PathBuf};

/// Why a block cannot be stored or read. What is returned as bytes is always what was stored: anything else is one of these,
/// and the block has to be computed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The file would take more than it may.
    #[error("{}: may take {most} bytes, {taken} are taken, {wanted} more wanted", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// Bytes that it may take.
        most: u64,
        /// Bytes of records in it; what is free between these may be in pieces that are too small.
        taken: u64,
        /// Bytes of the record that would be too many.
        wanted: u64,
    },
    /// The disk, a quota or a limit of the process leaves no room.
    #[error("{}: no space left for {wanted} bytes at byte {offset}: {found}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Where they should go.
        offset: u64,
        /// Bytes to be written.
        wanted: u64,
        /// What the system said.
        found: String,
    },
    /// The system does not allow it.
    #[error("{}: no permission for {doing}", path.display())]
    Permission {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
    },
    /// A file or folder that was there is not.
    #[error("{}: not there for {doing}", path.display())]
    Vanished {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
    },
    /// A file ends before what should be in it.
    #[error("{}: {expected} bytes expected, {found} there", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Bytes are not those that were written.
    #[error("{}: checksum {expected:016x} expected at byte {offset}, {found:016x} found", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Where they begin.
        offset: u64,
        /// That of what was written.
        expected: u64,
        /// That of what was read.
        found: u64,
    },
    /// A buffer of another length than the block.
    #[error("block of {expected} bytes, buffer of {found}")]
    Length {
        /// Bytes of the block.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// The store has no such record, or not any more.
    #[error("{}: record {id} is not held", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The record's number.
        id: u64,
    },
    /// Another process has it.
    #[error("{}: held by {holder}", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Who, as far as it said.
        holder: String,
    },
    /// A manifest does not say what one must.
    #[error("{}: {what}: {expected} expected, {found} found", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        what: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A manifest was made for something else.
    #[error("{}: made for {field} {found:?}, not {expected:?}", path.display())]
    Key {
        /// The manifest.
        path: PathBuf,
        /// Which part of the key differs.
        field: &'static str,
        /// What is wanted.
        expected: String,
        /// What it was made for.
        found: String,
    },
    /// Anything else that the system says.
    #[error("{}: {doing} failed: {found}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// What the system said.
        found: String,
    },
}

impl DiskError {
    /// Whether it is proven that what was written is not to be had any more: other bytes are there, or none. What the system
    /// refuses may go by, and what a later version wrote is of use to that.
    pub fn is_damage(&self) -> bool {
        match self {
            DiskError::Checksum { .. }
            | DiskError::Truncated { .. }
            | DiskError::Length { .. }
            | DiskError::Vanished { .. } => true,
            DiskError::Manifest { what, .. } => !["version", "name", "store"].contains(what),
            // all else in a key says for whom something was made
            DiskError::Key { field, .. } => *field == "tokens",
            _ => false,
        }
    }

    /// Whether there is no room: what is let go of makes some.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, DiskError::Full { .. } | DiskError::NoSpace { .. })
    }

    /// What the system said of a file or folder.
    pub(super) fn io(path: &Path, doing: &'static str, error: &io::Error) -> DiskError {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => DiskError::Vanished { path, doing },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                DiskError::Permission { path, doing }
            }
            _ => DiskError::Io { path, doing, found: error.to_string() },
        }
    }

    /// What the system said of a write.
    pub(super) fn write(path: &Path, offset: u64, wanted: u64, error: &io::Error) -> DiskError {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::WriteZero => {
                let (path, found) = (path.to_owned(), error.to_string());
                DiskError::NoSpace { path, offset, wanted, found }
            }
            _ => DiskError::io(path, "writing", error),
        }
    }
}

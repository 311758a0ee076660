//! [`Error`].

use std::path::PathBuf;

/// Result of an operation on the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure to read or write a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the file system failed.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Error of the file system.
        reason: std::io::Error,
    },
    /// Another process has the conversation open.
    #[error("{} is open in another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than the limit for conversations.
    #[error("{}: expected at most {most} bytes, found {found}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Largest size that is read, in bytes.
        most: u64,
        /// Size of the file in bytes.
        found: u64,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |reason| Error::Io { path, reason }
    }
}

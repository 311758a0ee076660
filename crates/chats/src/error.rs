//! [`Error`].

use std::path::PathBuf;

/// The result of something done to the store.
pub type Result<T> = std::result::Result<T, Error>;

/// A conversation that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        reason: std::io::Error,
    },
    /// Another process has the conversation open.
    #[error("{} is open in another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A file that is larger than any conversation.
    #[error("{}: expected at most {most} bytes, found {found}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes that are read.
        most: u64,
        /// Bytes of the file.
        found: u64,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |reason| Error::Io { path, reason }
    }
}

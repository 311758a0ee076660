//! What can be wrong with a GGUF file.

use std::io;
use std::path::Path;

use crate::escape;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure to read or write a GGUF file. Its message is one line of at most 400 characters without control characters.
///
/// The text fields are already escaped and cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot read or write `{path}`: {reason}")]
    Io {
        /// The file.
        path: String,
        /// Why. Part of the message, hence not a `source`.
        reason: io::Error,
    },
    /// A part of a sharded model is not there.
    #[error("part {number} of {count} is missing: `{path}`")]
    MissingPart {
        /// Which part, counted from 1.
        number: u32,
        /// Parts of the model.
        count: u32,
        /// Where it was looked for.
        path: String,
    },
    /// The file is of another kind.
    #[error("not a GGUF file: {found}")]
    NotGguf {
        /// What it is, as far as its first bytes tell.
        found: String,
    },
    /// A GGUF version this reader does not know.
    #[error("unsupported GGUF version {found} (supported: 2..3)")]
    Version {
        /// The number in the file.
        found: u32,
    },
    /// The file ends too early.
    #[error("truncated: {section} needs at least {needs} bytes, file has {has} ({} %); download again", percent(*.has, *.needs))]
    Truncated {
        /// Where in the file the reader was.
        section: String,
        /// The least length of the whole file.
        needs: u64,
        /// Its length.
        has: u64,
    },
    /// The file has become shorter since it was opened.
    #[error(
        "truncated while it was read: {section} needs at least {needs} bytes, file has {has}; load it again once it is complete"
    )]
    Shortened {
        /// What was read.
        section: String,
        /// The least length of the whole file.
        needs: u64,
        /// Its length now.
        has: u64,
    },
    /// The file was written to since it was opened, so that it may be one file in part and another in part.
    #[error("`{path}` was changed while it was read; load it again once it is complete")]
    Changed {
        /// The file.
        path: String,
    },
    /// A number, length or type in the header, the metadata or the tensor table that cannot be.
    #[error("{place}: {problem}")]
    Malformed {
        /// Where in the file.
        place: String,
        /// Found and expected.
        problem: String,
    },
    /// A tensor's entry is wrong, or of a type that is not known.
    #[error("tensor `{name}`: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// Found and expected.
        problem: String,
    },
    /// A metadata value of another type than the caller needs.
    #[error("key `{key}`: expected {expected}, found {found}")]
    KeyType {
        /// The key.
        key: String,
        /// What the caller needs.
        expected: &'static str,
        /// Type, and for scalars the value, in the file.
        found: String,
    },
    /// A metadata key that must be there.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// Something is wrong with one part of a sharded model.
    #[error("part `{part}`: {problem}")]
    OpenFile {
        /// File name of the part.
        part: String,
        /// What is wrong with it.
        problem: Box<Error>,
    },
}

/// The three ways to fail that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The file, or a part of it, does not exist.
    NotFound,
    /// The operating system failed to read or write it.
    Io,
    /// The file was read and is not a valid GGUF, or not one that the caller can use.
    Malformed,
}

impl Error {
    /// Whether the file is absent, unreadable or malformed.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { reason, .. } if reason.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Error::Io { .. } => ErrorKind::Io,
            Error::MissingPart { .. } => ErrorKind::NotFound,
            Error::OpenFile { problem, .. } => problem.kind(),
            _ => ErrorKind::Malformed,
        }
    }

    pub(crate) fn io(path: &Path, reason: io::Error) -> Error {
        Error::Io { path: show_path(path), reason }
    }

    pub(crate) fn tensor(name: &str, problem: impl Into<String>) -> Error {
        Error::Tensor { name: escape(name, 80), problem: problem.into() }
    }

    pub(crate) fn key_type(key: &str, expected: &'static str, found: impl Into<String>) -> Error {
        Error::KeyType { key: escape(key, 80), expected, found: found.into() }
    }
}

/// A path for a message. The end says more than the beginning, so long ones lose their beginning.
pub(crate) fn show_path(path: &Path) -> String {
    const MAX: usize = 200;
    let text = escape(path.as_os_str().as_encoded_bytes(), usize::MAX);
    match text.chars().count().checked_sub(MAX) {
        None | Some(0) => text,
        Some(extra) => format!("...{}", text.chars().skip(extra + 3).collect::<String>()),
    }
}

/// `has` in percent of `needs`, rounded down, so that a file that is not whole never shows 100.
fn percent(has: u64, needs: u64) -> u64 {
    let share = u128::from(has) * 100 / u128::from(needs.max(1));
    u64::try_from(share.min(99)).expect("at most 99")
}

//! Errors of the library.

use std::path::PathBuf;

use crate::shown;

/// Result of the library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was not found, does not fit or cannot be used as asked.
///
/// Errors of the crates below keep their types: they are in the chain of sources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that contradict each other, or that this model or executor does not support.
    #[error("{0}")]
    Options(String),
    /// No file has this path, and no model this name.
    #[error("{}: no such model file", shown(path))]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// A model that can be downloaded, and is not on this machine.
    #[error("{name} is not on this machine")]
    NotHere {
        /// The name as given, escaped.
        name: String,
    },
    /// Neither a file nor a published model.
    #[error("no file and no published model is called `{name}`")]
    UnknownModel {
        /// The name as given, escaped.
        name: String,
        /// Similar names of published models.
        near: Vec<String>,
    },
    /// A file whose content is invalid.
    #[error("{0}")]
    Malformed(String),
    /// A text that is longer than the context.
    #[error("the text has {wanted} tokens, of which the context holds {capacity}")]
    TooLong {
        /// Tokens of the text.
        wanted: usize,
        /// Tokens of the context.
        capacity: usize,
        /// Tokens that the model was trained for.
        trained: usize,
    },
    /// A planned model that is larger than the memory of the machine it is planned for.
    #[error("{0}")]
    NoRoom(String),
    /// A model that needs more memory than is free.
    #[error("needs {need} of memory, {available} are available")]
    DoesNotFit {
        /// Weights, cache and workspace, as text.
        need: String,
        /// Free memory, as text.
        available: String,
        /// Missing bytes.
        missing: u64,
        /// What to change.
        advice: String,
    },
    /// A session whose caches are larger than the bound of all caches.
    #[error("the cache needs {need} of memory, --kv-memory allows {bound}")]
    Bound {
        /// Bytes and tokens, as text.
        need: String,
        /// Bytes, as text.
        bound: String,
        /// What to change.
        advice: String,
    },
    /// A model that cannot be read or loaded.
    #[error("cannot load the model")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A failure of generation.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    /// Returns the error of this type, or one that has the other as its source.
    pub(crate) fn of_anyhow(error: anyhow::Error) -> Error {
        error.downcast().unwrap_or_else(|error| Error::Load(error.into()))
    }
}

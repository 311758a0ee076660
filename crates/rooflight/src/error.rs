//! Errors of the library.

use std::path::PathBuf;

use crate::shown;

/// Result of the library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of finding, loading or running a model.
///
/// Errors of other crates keep their types: they are in the chain of sources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options contradict each other, or this model or executor does not support them.
    #[error("{0}")]
    Options(String),
    /// There is no file with this path and no model with this name.
    #[error("{}: no such model file", shown(path))]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The model can be downloaded, but is not on this machine.
    #[error("{name} is not on this machine")]
    NotHere {
        /// The name as given, escaped.
        name: String,
    },
    /// The name is neither a file nor a published model.
    #[error("no file and no published model is called `{name}`")]
    UnknownModel {
        /// The name as given, escaped.
        name: String,
        /// Similar names of published models.
        near: Vec<String>,
    },
    /// The content of a file is invalid.
    #[error("{0}")]
    Malformed(String),
    /// A text is longer than the context.
    #[error("the text has {wanted} tokens, of which the context holds {capacity}")]
    TooLong {
        /// Length of the text, in tokens.
        wanted: usize,
        /// Size of the context, in tokens.
        capacity: usize,
        /// Context that the model was trained for, in tokens.
        trained: usize,
    },
    /// A planned model is larger than the memory of the machine in the plan.
    #[error("{0}")]
    NoRoom(String),
    /// A model needs more memory than is free.
    #[error("needs {need} of memory, {available} are available")]
    DoesNotFit {
        /// Size of weights, cache and workspace, formatted.
        need: String,
        /// Free memory, formatted.
        available: String,
        /// Missing memory, in bytes.
        missing: u64,
        /// Advice: which options to change.
        advice: String,
    },
    /// The caches of a session are larger than the limit on all caches.
    #[error("the cache needs {need} of memory, --kv-memory allows {bound}")]
    Bound {
        /// Size of the caches and number of tokens, formatted.
        need: String,
        /// The limit, formatted.
        bound: String,
        /// Advice: which options to change.
        advice: String,
    },
    /// A model cannot be read or loaded.
    #[error("cannot load the model")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Generation failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    /// Returns the [`Error`] inside `error`, or wraps `error` as the source of [`Error::Load`].
    pub(crate) fn of_anyhow(error: anyhow::Error) -> Error {
        error.downcast().unwrap_or_else(|error| Error::Load(error.into()))
    }
}

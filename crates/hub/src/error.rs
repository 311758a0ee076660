//! What can go wrong between a name and a file.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = HubError> = std::result::Result<T, E>;

/// A model that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A text that names no model.
    #[error("`{name}` names no model: {problem}")]
    Name {
        /// The text, escaped.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Nothing says where models are kept.
    #[error("no folder for models: neither HF_HUB_CACHE nor HF_HOME nor HOME is set")]
    NoFolder,
    /// What is asked for is not here, and nothing may be asked for.
    #[error("{name} is not on this machine, and HF_HUB_OFFLINE forbids to ask for it")]
    Offline {
        /// The model.
        name: String,
    },
    /// The hub has no such thing, or none for whoever asks.
    #[error("{what} is not on {endpoint}{hint}")]
    NotFound {
        /// What was asked for.
        what: String,
        /// The hub.
        endpoint: String,
        /// What may be the reason.
        hint: &'static str,
    },
    /// A repository without such a file.
    #[error("{repository} has no GGUF file of type {wanted}: it has {there}")]
    NoFile {
        /// `org/name`.
        repository: String,
        /// The type that was asked for.
        wanted: String,
        /// Types that there are.
        there: String,
    },
    /// Several models are called so.
    #[error("several models are called `{name}`: {names}")]
    Ambiguous {
        /// The name.
        name: String,
        /// Whole names of all.
        names: String,
    },
    /// A server that cannot be reached, or breaks off, as often as it was tried.
    #[error("{url}: {problem}")]
    Transport {
        /// What was asked for, without its query.
        url: String,
        /// What happened last.
        problem: String,
    },
    /// A server that does not keep to what it said.
    #[error("{url}: expected {expected}, found {found}")]
    Protocol {
        /// What was asked for, without its query.
        url: String,
        /// What it should have answered.
        expected: String,
        /// What it did.
        found: String,
    },
    /// Bytes that are not those of the file.
    #[error("{file}: expected the digest {expected}, found {found}: what came was thrown away")]
    Digest {
        /// The file's name.
        file: String,
        /// As the hub has it.
        expected: String,
        /// Of what came.
        found: String,
    },
    /// A disk that is too full.
    #[error("{}: needs {need} bytes, {free} are free", path.display())]
    DiskFull {
        /// A folder on it.
        path: PathBuf,
        /// What is still to come.
        need: u64,
        /// What is free.
        free: u64,
    },
    /// A file that cannot be read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// Somebody asked to stop. What came is kept.
    #[error("stopped: what came is kept, and the next try goes on there")]
    Cancelled,
}

impl HubError {
    /// A server's failure, with more to say of it.
    pub(crate) fn beside(self, more: &str) -> HubError {
        match self {
            HubError::Transport { url, problem } => {
                HubError::Transport { url, problem: problem + more }
            }
            error => error,
        }
    }

    /// Of a file.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> HubError {
        let path = path.into();
        move |reason| HubError::Io { path, reason }
    }
}

//! What can go wrong with a vocabulary, a text or a chat template.

use gguf::escape;

/// Longest piece of a file's or library's text in a message, in characters.
const MAX_QUOTE: usize = 240;

/// An error of this crate. Messages are one line; text from files is escaped and cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A metadata key has a value of the wrong type.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// A metadata key that this vocabulary needs is absent.
    #[error("metadata key `{key}` is missing: expected {expected}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// A metadata key has the right type but an impossible value.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it should hold.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// The vocabulary cannot be turned into a tokenizer.
    #[error("vocabulary: {0}")]
    Vocabulary(String),
    /// A text cannot be encoded with this vocabulary.
    #[error("text cannot be encoded: {0}")]
    Encode(String),
    /// The chat template is malformed, refuses the conversation, or exceeds a limit.
    #[error("chat template{}: {message}", line_of(*line))]
    Template {
        /// Line in the template, from 1, where known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// Somebody asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

fn line_of(line: Option<usize>) -> String {
    line.map(|n| format!(" line {n}")).unwrap_or_default()
}

impl Error {
    pub(crate) fn vocabulary(e: impl std::fmt::Display) -> Error {
        Error::Vocabulary(escape(e.to_string(), MAX_QUOTE))
    }

    pub(crate) fn encode(e: impl std::fmt::Display) -> Error {
        Error::Encode(escape(e.to_string(), MAX_QUOTE))
    }

    pub(crate) fn template(line: Option<usize>, message: impl AsRef<str>) -> Error {
        Error::Template { line, message: escape(message.as_ref(), MAX_QUOTE) }
    }
}

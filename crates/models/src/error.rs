//! What can be wrong with a model.

use gguf::escape;
use quant::GgmlType;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure to understand a model file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file in `arch/` has this name.
    #[error("unsupported architecture \"{name}\" ({why})")]
    Architecture {
        /// The name in the file, escaped and cut.
        name: String,
        /// What it needs that there is not, where that is known; else where to look.
        why: &'static str,
    },
    /// Nothing in the file guesses tokens after the next one, or not in a way that is known.
    #[error(
        "the file has no block that guesses tokens after the next one (multi-token prediction), or one that is not known"
    )]
    NoGuesses,
    /// A key the model needs is absent.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key has a value the model cannot have.
    #[error("key `{key}`: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: String,
        /// What it may be.
        expected: String,
        /// What the file says, escaped and cut.
        found: String,
    },
    /// A tensor the model needs is absent.
    #[error("missing tensor `{name}`")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor's shape contradicts the hyper-parameters. Dimensions as GGUF writes them, row length first.
    #[error("tensor `{name}`: expected {expected:?}, file has {found:?}")]
    Shape {
        /// Its name.
        name: String,
        /// From the hyper-parameters.
        expected: Vec<u64>,
        /// In the file.
        found: Vec<u64>,
    },
    /// A tensor's type cannot be computed with.
    #[error("tensor `{name}`: type {ty} is not supported for a {role}")]
    Type {
        /// Its name.
        name: String,
        /// Its type.
        ty: GgmlType,
        /// matrix or vector.
        role: &'static str,
    },
    /// A row of a matrix is not made of whole blocks.
    #[error("tensor `{name}`: rows of {cols} are not a multiple of the {} weights in a block of {ty}", ty.block_len())]
    Blocks {
        /// Its name.
        name: String,
        /// Row length.
        cols: u64,
        /// Its type.
        ty: GgmlType,
    },
    /// A tensor of a kind that is not read.
    #[error("tensor `{name}` is not supported: {problem}")]
    Unsupported {
        /// Its name.
        name: String,
        /// What is special about it.
        problem: &'static str,
    },
    /// The tokenizer knows tokens that have no embedding.
    #[error("{tokens} tokens in `tokenizer.ggml.tokens`, but `token_embd.weight` has {rows} rows")]
    Vocabulary {
        /// Tokens in the vocabulary.
        tokens: u64,
        /// Rows of the embedding table.
        rows: u64,
    },
    /// The file cannot be read so.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// An op refused its operands.
    #[error(transparent)]
    Program(#[from] program::Error),
}

impl Error {
    /// Of a configuration made by hand that lacks what its architecture needs.
    pub(crate) fn incomplete(c: &crate::ModelConfig) -> Error {
        Error::key(
            "general.architecture",
            "one with the parts that the configuration has",
            &c.architecture,
        )
    }

    pub(crate) fn key(
        key: &str,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::Key {
            key: escape(key, 80),
            expected: expected.into(),
            found: escape(found.to_string(), 80),
        }
    }
}

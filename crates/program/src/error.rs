//! What can go wrong between a program and an executor.

/// Result of this crate and of executors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure to record, load or run a program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operand does not fit its op.
    #[error("{op}: expected {expected}, found {found}")]
    Operand {
        /// The op or node.
        op: String,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// A weight is missing, short or of a type the executor cannot use.
    #[error("tensor `{name}`: {problem}")]
    Weight {
        /// Tensor name.
        name: String,
        /// What is wrong, in words.
        problem: String,
    },
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// The id.
        token: u32,
        /// Rows of the embedding table.
        vocab_size: usize,
    },
    /// More positions than the session's cache may hold.
    #[error("the context is full: {wanted} positions wanted, {capacity} allowed")]
    ContextFull {
        /// Positions after the step.
        wanted: usize,
        /// The cache's capacity, or fewer if the model has learned fewer positions.
        capacity: usize,
    },
    /// No session with this id.
    #[error("unknown session {0}")]
    Session(u64),
    /// A length beyond what a session holds.
    #[error("session has {len} positions, {wanted} asked for")]
    Length {
        /// Positions in the session.
        len: usize,
        /// Positions asked for.
        wanted: usize,
    },
    /// A NaN or infinity among a row's results.
    #[error(
        "non-finite logits at position {position}: the model's weights or scales hold NaN or infinity"
    )]
    NonFinite {
        /// Position of the row within the session.
        position: usize,
    },
    /// Memory for this many bytes could not be had.
    #[error("out of memory: {what} needs {bytes} bytes")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// How much.
        bytes: u64,
    },
    /// The caches of all sessions would take more memory than they may together.
    #[error("caches may take {budget} bytes of memory, and this needs at least {least}")]
    CacheBudget {
        /// Bytes that they may take.
        budget: u64,
        /// Bytes that would do.
        least: u64,
    },
    /// What caches keep on disk cannot be written or read.
    #[error("keeping the cache on disk: {problem}")]
    Disk {
        /// What went wrong, and what is lost.
        problem: String,
        /// Whether it is proven that what was kept is gone, or other than it was written: it never comes back.
        is_damage: bool,
    },
    /// A device that programs run on cannot be had, or has failed.
    #[error("device: {problem}")]
    Device {
        /// Which one, and what is wrong.
        problem: String,
    },
    /// Somebody asked to stop: see [`crate::Model::step_while`].
    #[error("cancelled")]
    Cancelled,
    /// The executor cannot do this.
    #[error("not supported: {0}")]
    Unsupported(String),
}

impl Error {
    /// Something that goes wrong with a disk, and may go by.
    pub fn disk(problem: impl Into<String>) -> Error {
        Error::Disk { problem: problem.into(), is_damage: false }
    }
}

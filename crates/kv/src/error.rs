//! What can go wrong with a cache.

use crate::DiskError;

/// `Result` of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a cache cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More positions than the cache may hold.
    #[error("cache holds at most {capacity} positions, {wanted} wanted")]
    Capacity {
        /// Positions it may hold.
        capacity: usize,
        /// Positions asked for.
        wanted: usize,
    },
    /// A length beyond what the cache holds.
    #[error("cache holds {len} positions, {wanted} named")]
    Length {
        /// Positions it holds.
        len: usize,
        /// Positions asked for.
        wanted: usize,
    },
    /// A block on disk cannot be read as it was, or one in memory not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes of a block are lost: what it held has to be computed again.
    #[error("positions from {position} on are lost: {reason}")]
    Lost {
        /// Position of its first row.
        position: usize,
        /// Why it cannot be read.
        reason: DiskError,
    },
    /// Somebody did not want it any more.
    #[error("stopped")]
    Stopped,
    /// The system has no memory left.
    #[error("no memory for {bytes} bytes of cache")]
    Memory {
        /// Bytes of the block that could not be made.
        bytes: usize,
    },
    /// All sessions together would take more than they may.
    #[error("caches may take {budget} bytes and take {in_use}, a block of {bytes} more wanted")]
    Budget {
        /// Bytes that the pool may take.
        budget: u64,
        /// Bytes of the blocks that are held.
        in_use: u64,
        /// Bytes of the block that would be too many.
        bytes: usize,
    },
}

//! What can go wrong in planning.

/// A plan that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has an op whose cost is not known: a limit without it would be a wrong one.
    #[error("op `{op}` of `{name}`: its cost is not known")]
    Op {
        /// Kind of op.
        op: &'static str,
        /// The node's name.
        name: String,
    },
}

/// Result of planning.
pub type Result<T> = std::result::Result<T, Error>;

//! Passes: programs in, equal programs out. What one executor alone wants is lowering, and its own.

mod narrow;

pub use narrow::narrow;

//! The driver API, as a caller uses it.

#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls of a C API, one after another")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "pointers to variables of the tests")]

mod fixture;
mod graphs;
#[cfg(target_os = "linux")]
mod library;
mod memory;
mod modules;
mod streams;

//! Shared parts of Rooflight's command line programs: parsing and formatting of numbers, messages and progress bars on stderr,
//! and output files that are written completely or not at all.
//!
//! Also exports the ceilings and the memory of this machine from the library.

#![forbid(unsafe_code)]

pub mod args;
pub mod counts;
pub mod curve;
pub mod exit;
pub mod output;
pub mod picture;
mod terminal;
pub mod ui;
pub mod wrap;

pub use rooflight::machine::{ceilings, memory};
pub use rooflight::units;
pub use terminal::runtime;

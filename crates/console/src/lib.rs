//! What the house's command lines share: numbers read and shown, notes and bars on stderr, files that are whole or not
//! there, and what is kept of this machine: its ceilings and the rates of our kernels.

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

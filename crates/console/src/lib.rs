//! What the house's command lines share: numbers read and shown, notes and bars on stderr, files that are whole or not
//! there, and what is kept of this machine: its ceilings and the rates of our kernels.

#![forbid(unsafe_code)]

pub mod args;
pub mod ceilings;
pub mod counts;
pub mod curve;
pub mod exit;
pub mod kept_rates;
mod measuring;
pub mod output;
pub mod picture;
pub mod store;
pub mod ui;
pub mod wrap;

pub use rooflight::machine::memory;
pub use rooflight::units;

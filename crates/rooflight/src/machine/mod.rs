//! The machine that this process runs on: its memory, what it can do at most, and what our kernels reach.

pub mod ceilings;
mod control_groups;
mod kept_rates;
mod measuring;
pub mod memory;

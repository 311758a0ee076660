//! The machine that this process runs on: free memory, measured ceilings, and measured rates of kernels.

pub mod ceilings;
mod control_groups;
mod kept_rates;
mod measuring;
pub mod memory;

//! Facts about the machine that this process runs on.

mod control_groups;
pub mod memory;

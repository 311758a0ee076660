//! Runs large language models on this machine: from a name or a file to a running model.
//!
//! This crate prints nothing and ends no process. It does not know the command line.

#![forbid(unsafe_code)]

pub mod machine;
pub mod naming;
mod paths;
pub mod similar;
pub mod temporary;
pub mod units;

pub use paths::shown;

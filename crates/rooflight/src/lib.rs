//! Runs large language models on this machine: from a name or a file to a running model.
//!
//! This crate prints nothing and ends no process. It does not know the command line.

#![forbid(unsafe_code)]

mod error;
pub mod fit;
pub mod guessing;
pub mod machine;
pub mod naming;
mod paths;
pub mod plan;
pub mod similar;
pub mod temporary;
pub mod units;

pub use error::{Error, Result};
pub use paths::shown;

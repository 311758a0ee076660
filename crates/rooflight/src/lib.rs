//! Runs large language models on this machine: from a name or a file to a running model.
//!
//! This crate prints nothing and ends no process. It does not know the command line.

#![forbid(unsafe_code)]

mod chat;
mod error;
pub mod executor;
pub mod file;
pub mod fit;
pub mod guessing;
pub mod load;
pub mod machine;
mod model;
pub mod naming;
pub mod notices;
mod paths;
pub mod plan;
pub mod policy;
pub mod predictions;
mod runtime;
mod settings;
pub mod share;
pub mod similar;
pub mod storage;
pub mod temporary;
pub mod tuned;
pub mod units;

pub use chat::{Chat, Event, Reply};
pub use error::{Error, Result};
pub use model::{DEFAULT_CONTEXT, Model, ModelBuilder, Source};
pub use notices::Notices;
pub use paths::shown;
pub use runtime::Runtime;
pub use settings::Settings;

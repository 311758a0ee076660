//! Runs large language models on this machine: finds a model by name or path, loads it and generates text.
//!
//! The crate prints nothing, never exits the process and does not depend on the command line.

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

//! NVIDIA's driver library, loaded while the program runs: a machine without it is one where [`Driver::load`] fails, and
//! nothing else. The driver API alone is used: no toolkit has to be installed, neither to build this nor to run it.
//!
//! Everything `unsafe` about CUDA is in this crate. What it hands out keeps what it needs alive: memory, modules, streams
//! and graphs hold their context, the context holds the library.

mod api;
mod context;
mod error;
mod graph;
mod memory;
mod module;
mod stream;

pub use api::{DRIVER_VARIABLE, Driver};
pub use context::{Context, DeviceInfo};
pub use error::Error;
pub use graph::Graph;
pub use memory::{DeviceMemory, HostMemory};
pub use module::{Function, Launch, Module, Shape};
pub use stream::{Event, Stream};

/// What every operation here yields.
pub type Result<T> = std::result::Result<T, Error>;

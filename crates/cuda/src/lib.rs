//! Bindings to the CUDA driver API. The driver library is loaded at run time, so a program
//! that links this crate also starts on machines without it: there, only [`Driver::load`] fails.
//!
//! This crate uses the driver API only. The CUDA toolkit is needed neither to build nor to run it.
//!
//! All `unsafe` code for CUDA is in this crate. Every object keeps its dependencies alive: memory,
//! modules, streams and graphs hold their context, and the context holds the library.
//!
//! The caller answers for what the device accesses: kernels reach the addresses they are given, a
//! graph uses the memory and kernels that were captured, and enqueued copies use their host memory
//! until [`Stream::wait`] returns. All objects of a call belong to the same context.

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

/// Result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

//! Software stand-in for NVIDIA's driver library, `libcuda.so.1`: with it Rooflight's CUDA
//! executor is tested without a card. It interprets PTX and looks for faults that a card would
//! show only sometimes.
//!
//! `ptx` decodes modules, `exec` executes kernels, `device_memory` holds what they work on,
//! `driver` is the driver API. Every exported function has NVIDIA's signature and codes. Variables
//! and limits are in the README.

mod device_memory;
mod driver;
mod exec;
mod ptx;
mod stamps;
#[cfg(test)]
mod tests;

pub use driver::*;

//! The driver API: contexts, memory, streams, graphs, modules and launches.
//!
//! `state` holds the objects and the rules of every call, `queue` executes the work of streams,
//! the other modules are the exported functions by topic.

mod codes;
mod device;
mod events;
mod graphs;
mod host;
mod memory;
mod modules;
mod queue;
mod report;
mod state;
mod streams;

pub use codes::*;
pub use device::*;
pub use events::*;
pub use graphs::*;
pub use host::{cuMemFreeHost, cuMemHostAlloc};
pub use memory::*;
pub use modules::*;
pub use report::{cuda_software_report, cuda_software_reset_counters};
pub use state::CUhostFn;
pub use streams::*;

use std::ffi::c_void;

use state::{Call, Id};

/// Device address.
pub type CUdeviceptr = u64;
/// Device number.
pub type CUdevice = std::ffi::c_int;
/// Handle of a context.
pub type CUcontext = *mut c_void;
/// Handle of a stream; null is the legacy stream.
pub type CUstream = *mut c_void;
/// Handle of an event.
pub type CUevent = *mut c_void;
/// Handle of a module.
pub type CUmodule = *mut c_void;
/// Handle of a kernel.
pub type CUfunction = *mut c_void;
/// Handle of a graph.
pub type CUgraph = *mut c_void;
/// Handle of an executable graph.
pub type CUgraphExec = *mut c_void;
/// Handle of a graph's node.
pub type CUgraphNode = *mut c_void;

/// Handle that is never read through.
fn handle(id: Id) -> *mut c_void {
    std::ptr::without_provenance_mut(id)
}

fn id(handle: *mut c_void) -> Id {
    handle.addr()
}

/// Stream of a handle: `CU_STREAM_LEGACY` is the null handle.
fn stream_id(stream: CUstream) -> Id {
    match id(stream) {
        1 => state::LEGACY,
        other => other,
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null or can be written.
unsafe fn put<T>(to: *mut T, value: T) -> Call<()> {
    if to.is_null() {
        return Err(codes::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

//! Captures of streams and graphs.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use super::codes::*;
use super::state::{Capture, Graph, INTERACTION, LEGACY, Work, call, in_context};
use super::{CUgraph, CUgraphExec, CUgraphNode, CUstream, handle, id, put, stream_id};

/// Begins to capture a stream: what is enqueued becomes nodes of a graph and does not run.
/// `mode`: 0 global, 1 thread-local, 2 relaxed.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> CUresult {
    in_context(|state| {
        let stream = stream_id(stream);
        if mode > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if stream == LEGACY {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let stream = state.stream(stream)?;
        if stream.capture.is_some() {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let thread = std::thread::current().id();
        stream.capture = Some(Capture { mode, thread, nodes: Vec::new(), valid: true });
        Ok(())
    })
}

/// Ends a capture. A capture that failed gives `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` and no
/// graph.
///
/// # Safety
/// `graph` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult {
    in_context(|state| {
        let stream = state.stream(stream_id(stream))?;
        let Some(capture) = stream.capture.take() else { return Err(CUDA_ERROR_ILLEGAL_STATE) };
        if capture.mode != 2 && capture.thread != std::thread::current().id() {
            stream.capture = Some(Capture { valid: false, ..capture });
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let mut made = 0;
        if capture.valid {
            made = state.new_id();
            let nodes = capture.nodes.into_iter().map(|work| (state.new_id(), work)).collect();
            state.graphs.insert(made, Graph { nodes });
        }
        // SAFETY: the caller's promise.
        unsafe { put(graph, handle(made)) }?;
        if made == 0 { Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    })
}

/// Status of a capture: 0 none, 1 active, 2 failed.
///
/// # Safety
/// `status` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: CUstream, status: *mut c_int) -> CUresult {
    in_context(|state| {
        let capture = &state.stream(stream_id(stream))?.capture;
        let value = capture.as_ref().map_or(0, |c| if c.valid { 1 } else { 2 });
        // SAFETY: the caller's promise.
        unsafe { put(status, value) }
    })
}

/// Exchanges the mode in which this thread's calls are checked against captures.
///
/// # Safety
/// `mode` is null or can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> CUresult {
    call(|_| {
        if mode.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's promise.
        let new = unsafe { mode.read() };
        if new > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let old = INTERACTION.replace(new);
        // SAFETY: the caller's promise.
        unsafe { put(mode, old) }
    })
}

/// Makes a graph executable.
///
/// # Safety
/// `executable` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    in_context(|state| {
        // Automatic free, upload, device launch, node priorities.
        if flags & !15 != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let graph = state.graphs.get(&id(graph)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let nodes: Arc<[Work]> = graph.nodes.iter().map(|(_, work)| work.clone()).collect();
        let new = state.new_id();
        // SAFETY: the caller's promise.
        unsafe { put(executable, handle(new)) }?;
        state.executables.insert(new, nodes);
        Ok(())
    })
}

/// Prepares an executable graph for a launch: nothing to do here.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(executable: CUgraphExec, stream: CUstream) -> CUresult {
    in_context(|state| {
        state.stream(stream_id(stream))?;
        let known = state.executables.contains_key(&id(executable));
        if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
    })
}

/// Enqueues all nodes of an executable graph, in the order of their capture.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream) -> CUresult {
    in_context(|state| {
        let stream = stream_id(stream);
        let nodes = state.executables.get(&id(executable)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let nodes = Arc::clone(nodes);
        for work in nodes.iter() {
            state.enqueue(stream, work.clone())?;
        }
        if !state.is_capturing(stream)? {
            state.counters.graph_launches += 1;
            state.counters.graph_nodes += nodes.len() as u64;
        }
        Ok(())
    })
}

/// Destroys an executable graph. Launches of it that were enqueued still run.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: CUgraphExec) -> CUresult {
    in_context(|state| {
        let found = state.executables.remove(&id(executable));
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    })
}

/// Destroys a graph; executable graphs made of it stay.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    in_context(|state| state.graphs.remove(&id(graph)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE))
}

/// Number of nodes of a graph where `nodes` is null, else up to `count` of them, the rest of the
/// array null.
///
/// # Safety
/// `count` can be read and written; `nodes` is null or can be written for `count` nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    in_context(|state| {
        let graph = state.graphs.get(&id(graph)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if nodes.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { put(count, graph.nodes.len()) };
        }
        if count.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's promise.
        let room = unsafe { count.read() };
        for at in 0..room {
            let node = graph.nodes.get(at).map_or(0, |n| n.0);
            // SAFETY: `at < room`, which the caller promised.
            let to = unsafe { nodes.add(at) };
            // SAFETY: as above.
            unsafe { to.write(handle(node)) };
        }
        // SAFETY: the caller's promise.
        unsafe { put(count, graph.nodes.len().min(room)) }
    })
}

//! Streams and host functions.

use std::ffi::{c_int, c_uint, c_void};

use super::codes::*;
use super::queue::wait_for;
use super::state::{CUhostFn, LEGACY, Stream, Work, driver, in_context};
use super::{CUevent, CUstream, handle, id, put, stream_id};

/// Creates a stream; flag 1 (`CU_STREAM_NON_BLOCKING`) frees it from the legacy stream.
///
/// # Safety
/// `stream` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult {
    in_context(|state| {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let new = state.new_id();
        // SAFETY: the caller's promise.
        unsafe { put(stream, handle(new)) }?;
        state.streams.insert(new, Stream { non_blocking: flags == 1, ..Stream::default() });
        Ok(())
    })
}

/// Creates a stream like `cuStreamCreate`; the priority has no effect.
///
/// # Safety
/// `stream` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut CUstream,
    flags: c_uint,
    _priority: c_int,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuStreamCreate(stream, flags) }
}

/// Destroys a stream; its work is executed before.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    let stream = stream_id(stream);
    let code = in_context(|state| {
        state.stream(stream)?;
        if stream == LEGACY { Err(CUDA_ERROR_INVALID_HANDLE) } else { Ok(()) }
    });
    if code != CUDA_SUCCESS {
        return code;
    }
    let code = wait_for(stream).err().unwrap_or(CUDA_SUCCESS);
    driver().lock().streams.remove(&stream);
    code
}

/// Waits for a stream: executes what was enqueued in it.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    let stream = stream_id(stream);
    let code = in_context(|state| state.no_capture_of(stream));
    if code == CUDA_SUCCESS { wait_for(stream).err().unwrap_or(code) } else { code }
}

/// Asks whether a stream is done. Each call executes one piece of its work and tells
/// `CUDA_ERROR_NOT_READY`, until nothing is left.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: CUstream) -> CUresult {
    let stream = stream_id(stream);
    let code = in_context(|state| state.no_capture_of(stream));
    if code != CUDA_SUCCESS {
        return code;
    }
    driver().poll(stream, u64::MAX).err().unwrap_or(CUDA_SUCCESS)
}

/// Makes a stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult {
    in_context(|state| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let stream = stream_id(stream);
        let event = state.events.get(&id(event)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (captured, place) = (event.captured, event.place);
        if captured {
            // Captures of several streams into one graph are not supported.
            return if state.is_capturing(stream)? {
                Ok(())
            } else {
                Err(CUDA_ERROR_CAPTURED_EVENT)
            };
        }
        match place {
            Some((other, number)) if !state.is_capturing(stream)? => {
                state.enqueue(stream, Work::Wait(other, number))
            }
            _ => state.stream(stream).map(|_| ()),
        }
    })
}

/// Calls a function of the host when the stream comes to it. Within it, every call of the driver
/// fails with `CUDA_ERROR_NOT_PERMITTED`.
///
/// # Safety
/// The function may be called with the pointer, from any thread, until the stream came to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: CUstream,
    function: Option<CUhostFn>,
    data: *mut c_void,
) -> CUresult {
    in_context(|state| {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let data = data.expose_provenance();
        state.enqueue(stream_id(stream), Work::Host { function, data })
    })
}

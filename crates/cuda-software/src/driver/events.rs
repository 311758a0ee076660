//! Events.

use std::ffi::c_uint;

use super::codes::*;
use super::state::{Call, Event, State, Work, call, driver, in_context};
use super::{CUevent, CUstream, handle, id, put, stream_id};

/// Flag of an event without a time.
const DISABLE_TIMING: c_uint = 2;

/// Creates an event.
///
/// # Safety
/// `event` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult {
    in_context(|state| {
        if flags > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let new = state.new_id();
        // SAFETY: the caller's promise.
        unsafe { put(event, handle(new)) }?;
        let timed = flags & DISABLE_TIMING == 0;
        state.events.insert(new, Event { timed, ..Event::default() });
        Ok(())
    })
}

/// Destroys an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    call(|state| state.events.remove(&id(event)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE))
}

/// Records an event in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    in_context(|state| {
        let (name, stream) = (id(event), stream_id(stream));
        let capturing = state.is_capturing(stream)?;
        let event = state.events.get_mut(&name).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        event.captured = capturing;
        if capturing {
            // It marks a place in the graph, and is no node.
            return match &state.stream(stream)?.capture {
                Some(capture) if !capture.valid => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                _ => Ok(()),
            };
        }
        event.recorded += 1;
        let recording = event.recorded;
        state.enqueue(stream, Work::Record(name, recording))?;
        let number = state.last_number;
        if let Some(event) = state.events.get_mut(&name) {
            event.place = Some((stream, number));
        }
        Ok(())
    })
}

/// Place of the last recording that is not complete; `None` where all are.
fn pending(state: &mut State, event: CUevent) -> Call<Option<(usize, u64)>> {
    let event = state.events.get(&id(event)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if event.captured {
        for stream in state.streams.values_mut() {
            if let Some(capture) = &mut stream.capture {
                capture.valid = false;
            }
        }
        return Err(CUDA_ERROR_CAPTURED_EVENT);
    }
    Ok(event.place.filter(|_| event.complete < event.recorded))
}

fn with_pending(event: CUevent, wait: impl Fn(usize, u64) -> Call<()>) -> CUresult {
    let mut place = None;
    let code = in_context(|state| {
        place = pending(state, event)?;
        Ok(())
    });
    match place {
        Some((stream, number)) if code == CUDA_SUCCESS => {
            wait(stream, number).err().unwrap_or(CUDA_SUCCESS)
        }
        _ => code,
    }
}

/// Waits for an event's last recording.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: CUevent) -> CUresult {
    with_pending(event, |stream, number| driver().run_until(stream, number))
}

/// Asks whether an event's last recording is complete; `cuStreamQuery` tells how work goes on.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: CUevent) -> CUresult {
    with_pending(event, |stream, number| driver().poll(stream, number))
}

/// Milliseconds between two complete events.
///
/// # Safety
/// `milliseconds` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: CUevent,
    end: CUevent,
) -> CUresult {
    in_context(|state| {
        let mut times = Vec::new();
        for event in [start, end] {
            let waits = pending(state, event)?.is_some();
            let event = state.events.get(&id(event)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            if !event.timed || event.recorded == 0 {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            if waits {
                return Err(CUDA_ERROR_NOT_READY);
            }
            times.push(event.time.ok_or(CUDA_ERROR_NOT_READY)?);
        }
        let elapsed = times[1].saturating_duration_since(times[0]);
        // SAFETY: the caller's promise.
        unsafe { put(milliseconds, elapsed.as_secs_f32() * 1000.0) }
    })
}

//! Device memory: allocations, copies, fills.

use std::ffi::{c_uchar, c_uint, c_void};
use std::sync::{Arc, PoisonError};

use super::codes::*;
use super::queue::{checks_copies, wait_for};
use super::state::{Call, HostSource, State, Work, call, check_context, driver, in_context};
use super::{CUdeviceptr, CUstream, put, stream_id};
use crate::device_memory::{Allocation, DeviceMemory};
use crate::exec::{Fault, FaultKind, Uninitialized};

/// Allocates device memory, aligned to 256 bytes and undefined.
///
/// # Safety
/// `address` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, len: usize) -> CUresult {
    in_context(|state| {
        state.no_unsafe_capture()?;
        if len == 0 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut memory = driver().memory.write().unwrap_or_else(PoisonError::into_inner);
        let base = memory.allocate(len as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the caller's promise.
        unsafe { put(address, base) }
    })
}

/// Frees device memory at once: work that still uses it is a fault.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    in_context(|state| {
        state.no_unsafe_capture()?;
        if address == 0 {
            return Ok(());
        }
        let mut memory = driver().memory.write().unwrap_or_else(PoisonError::into_inner);
        if memory.free(address) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    })
}

/// Bytes of device memory that are free, and all of it.
///
/// # Safety
/// The pointers are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    in_context(|_| {
        let memory = driver().memory.read().unwrap_or_else(PoisonError::into_inner);
        let capacity = memory.capacity();
        // SAFETY: the caller's promise.
        unsafe { put(free, (capacity - memory.used()) as usize) }?;
        // SAFETY: the caller's promise.
        unsafe { put(total, capacity as usize) }
    })
}

/// A range is device memory, at the time of the call.
fn device_range(address: u64, len: usize) -> Call<()> {
    let memory = driver().memory.read().unwrap_or_else(PoisonError::into_inner);
    memory.range(address, len as u64).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// A copy to the host reads memory that was written.
pub(super) fn written_before_copy(
    memory: &DeviceMemory,
    (allocation, at): (&Allocation, u64),
    len: u64,
    uninitialized: Uninitialized,
) -> Result<(), Fault> {
    match allocation.first_unwritten(at, len) {
        Some(first) if checks_copies(uninitialized) => {
            let place = memory.describe(allocation.base() + first);
            let text =
                format!("copy of {len} bytes to the host reads what was never written: {place}");
            Err(Fault { kind: FaultKind::Uninitialized, text })
        }
        _ => Ok(()),
    }
}

/// # Safety
/// `from` can be read for `len` bytes.
unsafe fn to_device(
    state: &mut State,
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
    stream: CUstream,
) -> Call<()> {
    if len == 0 {
        return Ok(());
    }
    if from.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let stream = stream_id(stream);
    let pinned = state.pinned(from.addr(), len as u64);
    if pinned.is_none() && state.is_capturing(stream)? {
        return state.no_capture_of(stream);
    }
    device_range(to, len)?;
    let source = match pinned {
        Some(serial) => HostSource::Pinned(from.addr(), serial),
        None => {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) };
            HostSource::Staged(Arc::from(bytes))
        }
    };
    state.enqueue(stream, Work::HostToDevice { to, from: source, len: len as u64 })
}

/// Copies from the host to the device. Page-locked memory is read when the copy runs, other
/// memory at once.
///
/// # Safety
/// `from` can be read for `len` bytes until the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    in_context(|state| unsafe { to_device(state, to, from, len, stream) })
}

/// Copies from the host to the device, in the legacy stream, and waits.
///
/// # Safety
/// `from` can be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
) -> CUresult {
    let code = in_context(|state| {
        state.no_unsafe_capture()?;
        // SAFETY: the caller's promise.
        unsafe { to_device(state, to, from, len, std::ptr::null_mut()) }
    });
    if code == CUDA_SUCCESS { wait_for(0).err().unwrap_or(code) } else { code }
}

/// Copies from the device to the host. To page-locked memory when the copy runs; to other memory
/// the call waits, as on a card.
///
/// # Safety
/// `to` can be written for `len` bytes until the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> CUresult {
    let mut pageable = false;
    let stream = stream_id(stream);
    let code = in_context(|state| {
        if len == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        device_range(from, len)?;
        if let Some(pinned) = state.pinned(to.addr(), len as u64) {
            let work = Work::DeviceToHost { to: to.addr(), pinned, from, len: len as u64 };
            return state.enqueue(stream, work);
        }
        state.no_capture_of(stream)?;
        pageable = true;
        Ok(())
    });
    if code != CUDA_SUCCESS || !pageable {
        return code;
    }
    // SAFETY: the caller's promise.
    unsafe { wait_and_copy(to, from, len, stream) }.err().unwrap_or(CUDA_SUCCESS)
}

/// # Safety
/// `to` can be written for `len` bytes.
unsafe fn wait_and_copy(to: *mut c_void, from: u64, len: usize, stream: usize) -> Call<()> {
    wait_for(stream)?;
    // The state is locked before the memory everywhere: not while `memory` is held.
    let check = driver().lock().options.uninitialized;
    let memory = driver().memory.read().unwrap_or_else(PoisonError::into_inner);
    let (allocation, at) = memory.range(from, len as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let written = written_before_copy(&memory, (allocation, at), len as u64, check);
    if written.is_ok() {
        let to = to.cast::<u8>();
        // The memory of a stranger may be uninitialized, so that no slice may be made of it.
        let mut buffer = [0; 4096];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(buffer.len());
            allocation.read(at + done as u64, &mut buffer[..step]);
            // SAFETY: `done < len`, within the caller's memory.
            let target = unsafe { to.add(done) };
            // SAFETY: `done + step <= len`, and the buffer is this function's own.
            unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr(), target, step) };
            done += step;
        }
    }
    drop(memory);
    let mut state = driver().lock();
    if let Err(fault) = written {
        state.fail(&fault);
        return state.sticky.map_or(Ok(()), Err);
    }
    state.counters.copies += 1;
    state.counters.copied_bytes += len as u64;
    Ok(())
}

/// Copies from the device to the host and waits.
///
/// # Safety
/// `to` can be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    len: usize,
) -> CUresult {
    let code = in_context(State::no_unsafe_capture);
    if code != CUDA_SUCCESS {
        return code;
    }
    // SAFETY: the caller's promise.
    let code = unsafe { cuMemcpyDtoHAsync_v2(to, from, len, std::ptr::null_mut()) };
    if code == CUDA_SUCCESS { wait_for(0).err().unwrap_or(code) } else { code }
}

/// Copies within device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> CUresult {
    in_context(|state| {
        if len == 0 {
            return Ok(());
        }
        device_range(to, len)?;
        device_range(from, len)?;
        let len = len as u64;
        if to < from + len && from < to + len {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.enqueue(stream_id(stream), Work::DeviceToDevice { to, from, len })
    })
}

fn fill(to: u64, len: usize, pattern: [u8; 4], stream: CUstream) -> CUresult {
    in_context(|state| {
        if len == 0 {
            return Ok(());
        }
        device_range(to, len)?;
        state.enqueue(stream_id(stream), Work::Fill { to, len: len as u64, pattern })
    })
}

/// Fills device memory with a byte.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(
    to: CUdeviceptr,
    value: c_uchar,
    count: usize,
    stream: CUstream,
) -> CUresult {
    fill(to, count, [value; 4], stream)
}

/// Fills device memory, aligned to 4 bytes, with a word.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(
    to: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> CUresult {
    match count.checked_mul(4) {
        Some(len) if to.is_multiple_of(4) => fill(to, len, value.to_le_bytes(), stream),
        _ => call(|state| check_context(state).and(Err(CUDA_ERROR_INVALID_VALUE))),
    }
}

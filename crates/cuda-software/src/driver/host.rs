//! Page-locked host memory.

use std::alloc::Layout;
use std::ffi::{c_uint, c_void};

use super::codes::*;
use super::put;
use super::state::{Pinned, in_context};

/// Alignment of page-locked memory, in bytes.
const PAGE: usize = 4096;
/// Byte that new page-locked memory is filled with.
const POISON: u8 = 0xcd;

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), PAGE).ok()
}

/// Bytes of page-locked memory.
///
/// # Safety
/// The range is within a live allocation of `cuMemHostAlloc`, and not changed meanwhile.
pub(super) unsafe fn bytes<'a>(address: usize, len: usize) -> &'a [u8] {
    let start = std::ptr::with_exposed_provenance(address);
    // SAFETY: the caller's promise; all bytes are initialized when they are allocated.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// Bytes of page-locked memory, to be written.
///
/// # Safety
/// The range is within a live allocation of `cuMemHostAlloc`, and not used meanwhile.
pub(super) unsafe fn bytes_mut<'a>(address: usize, len: usize) -> &'a mut [u8] {
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller's promise; all bytes are initialized when they are allocated.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

/// Returns page-locked memory to the system; it was taken out of the table of such memory, or is
/// about to be.
pub(super) fn release(address: usize, len: usize) {
    if let Some(layout) = layout(len) {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: `cuMemHostAlloc` allocated it with this layout; the table, from which each
        // entry is released once, keeps its length.
        unsafe { std::alloc::dealloc(start, layout) };
    }
}

/// Allocates page-locked host memory. Its contents are undefined (`0xcd`).
///
/// # Safety
/// `address` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    len: usize,
    flags: c_uint,
) -> CUresult {
    in_context(|state| {
        state.no_unsafe_capture()?;
        if len == 0 || flags > 7 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let layout = layout(len).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: `len` bytes were allocated above.
        unsafe { start.write_bytes(POISON, layout.size()) };
        state.last_number += 1;
        let serial = state.last_number;
        state.pinned.insert(start.expose_provenance(), Pinned { len, serial });
        // SAFETY: the caller's promise.
        unsafe { put(address, start.cast()) }
    })
}

/// Frees page-locked host memory. Copies that still use it are faults.
///
/// # Safety
/// The memory is not used any more by the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> CUresult {
    in_context(|state| {
        state.no_unsafe_capture()?;
        let pinned = state.pinned.remove(&address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        release(address.addr(), pinned.len);
        Ok(())
    })
}

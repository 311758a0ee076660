//! The device and its primary context.

use std::ffi::{c_char, c_int, c_uint};

use super::codes::*;
use super::queue::wait_for;
use super::state::{
    self, CURRENT, Call, IN_HOST_FUNCTION, PRIMARY, call, check_context, driver, in_context,
};
use super::{CUcontext, CUdevice, handle, id, put};

/// Version of the driver API: 12.8.
const VERSION: c_int = 12080;

/// Initializes the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    driver().lock().initialized = true;
    CUDA_SUCCESS
}

/// Version of the driver API, `major * 1000 + minor * 10`.
///
/// # Safety
/// `version` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { put(version, VERSION) }.err().unwrap_or(CUDA_SUCCESS)
}

/// Number of devices: 1.
///
/// # Safety
/// `count` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: the caller's promise.
    call(|_| unsafe { put(count, 1) })
}

/// Device of a number: only 0 exists.
///
/// # Safety
/// `device` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    call(|_| {
        exists(ordinal)?;
        // SAFETY: the caller's promise.
        unsafe { put(device, 0) }
    })
}

fn exists(device: CUdevice) -> Call<()> {
    if device == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

/// Writes text and its zero, cut to `len` bytes.
///
/// # Safety
/// `to` is null or can be written for `len` bytes.
pub(super) unsafe fn put_text(to: *mut c_char, len: usize, text: &str) -> Call<()> {
    if to.is_null() || len == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let used = text.len().min(len - 1);
    // SAFETY: `used < len`, and the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), used) };
    // SAFETY: `used < len`, and the caller's promise.
    let end = unsafe { to.add(used) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// Name of the device.
///
/// # Safety
/// `name` is null or can be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    len: c_int,
    device: CUdevice,
) -> CUresult {
    call(|_| {
        exists(device)?;
        let len = usize::try_from(len).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { put_text(name, len, "Software CUDA device") }
    })
}

/// PCI address of the device.
///
/// # Safety
/// `text` is null or can be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    len: c_int,
    device: CUdevice,
) -> CUresult {
    call(|_| {
        exists(device)?;
        let len = usize::try_from(len).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { put_text(text, len, "0000:00:00.0") }
    })
}

/// Attribute of the device, by NVIDIA's numbers.
///
/// # Safety
/// `value` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: CUdevice,
) -> CUresult {
    call(|_| {
        exists(device)?;
        let found = match attribute {
            // Threads in a block, and its sides.
            1..=3 => 1024,
            4 => 64,
            // Sides of a grid.
            5 => i32::MAX,
            6 | 7 => 65535,
            // Shared memory of a block, constant memory, warp, pitch, registers of a block.
            8 => 49152,
            9 => 65536,
            10 => 32,
            11 => i32::MAX,
            12 => 65536,
            // Clock in kHz: of no real device.
            13 => 1_000_000,
            // Texture alignment, overlap of copies, multiprocessors.
            14 => 512,
            15 => 1,
            16 => 2,
            // No time limit, not integrated, can map host memory, default compute mode.
            17 | 18 | 20 => 0,
            19 => 1,
            // Concurrent kernels, no ECC, PCI bus, device, domain.
            31 => 1,
            32..=34 | 50 => 0,
            // Memory clock and bus width: unknown.
            36 | 37 => 0,
            // L2 cache, threads of a multiprocessor, copy engines, unified addresses.
            38 => 1 << 20,
            39 => 1024,
            40 | 41 => 1,
            // Compute capability 7.5.
            75 => 7,
            76 => 5,
            // Priorities, caches, shared memory and registers of a multiprocessor.
            78..=80 => 1,
            81 => 65536,
            82 => 65536,
            // Shared memory on request, blocks of a multiprocessor.
            97 => 49152,
            106 => 16,
            // Speed of f32 to that of f64.
            87 => 32,
            // What other devices have.
            0..=140 => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: the caller's promise.
        unsafe { put(value, found) }
    })
}

/// Bytes of device memory.
///
/// # Safety
/// `bytes` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult {
    call(|_| {
        exists(device)?;
        // SAFETY: the caller's promise.
        unsafe { put(bytes, state::capacity() as usize) }
    })
}

/// Retains the primary context, and creates it where it does not exist.
///
/// # Safety
/// `context` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    call(|state| {
        exists(device)?;
        // SAFETY: the caller's promise.
        unsafe { put(context, handle(PRIMARY)) }?;
        if state.retained == 0 {
            state::create_context(state);
        }
        state.retained += 1;
        Ok(())
    })
}

/// Releases the primary context; the last release destroys it and all that is in it.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    // What was enqueued still runs.
    let last = !IN_HOST_FUNCTION.get() && driver().lock().retained == 1;
    if last {
        // A fault is described on stderr, and gone with the context.
        let _ = driver().run_all();
    }
    call(|state| {
        exists(device)?;
        match state.retained {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            1 => {
                state.retained = 0;
                state::destroy_context(state);
                Ok(())
            }
            _ => {
                state.retained -= 1;
                Ok(())
            }
        }
    })
}

/// Makes a context current to the calling thread; null makes none current.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    call(|state| match id(context) {
        0 => {
            CURRENT.set(0);
            Ok(())
        }
        PRIMARY if state.retained > 0 => {
            CURRENT.set(PRIMARY);
            Ok(())
        }
        PRIMARY => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        _ => Err(CUDA_ERROR_INVALID_CONTEXT),
    })
}

/// Context current to the calling thread.
///
/// # Safety
/// `context` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    // SAFETY: the caller's promise.
    call(|_| unsafe { put(context, handle(CURRENT.get())) })
}

/// Waits for all work of the context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> CUresult {
    let mut streams = Vec::new();
    let code = in_context(|state| {
        let mut result = Ok(());
        for (&name, stream) in &mut state.streams {
            if let Some(capture) = &mut stream.capture {
                capture.valid = false;
                result = Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
            streams.push(name);
        }
        result
    });
    if code != CUDA_SUCCESS {
        return code;
    }
    for stream in streams {
        if let Err(code) = wait_for(stream) {
            return code;
        }
    }
    call(|state| check_context(state))
}

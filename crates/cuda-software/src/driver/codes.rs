//! Result codes of the driver API, as NVIDIA numbers them.

use std::ffi::{CStr, c_char, c_int};

/// Result of every function of the driver API.
pub type CUresult = c_int;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        $($(#[$doc])* pub const $name: CUresult = $value;)*

        /// Name and description of a code.
        fn lookup(code: CUresult) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                $($value => Some((
                    const { literal(concat!(stringify!($name), "\0")) },
                    const { literal(concat!($text, "\0")) },
                )),)*
                _ => None,
            }
        }
    };
}

const fn literal(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a literal has one zero, at its end"),
    }
}

codes! {
    /// The call succeeded.
    CUDA_SUCCESS = 0, "no error";
    /// An argument is out of range.
    CUDA_ERROR_INVALID_VALUE = 1, "invalid argument";
    /// Device memory is exhausted.
    CUDA_ERROR_OUT_OF_MEMORY = 2, "out of memory";
    /// `cuInit` was not called.
    CUDA_ERROR_NOT_INITIALIZED = 3, "initialization error";
    /// The device does not exist.
    CUDA_ERROR_INVALID_DEVICE = 101, "invalid device ordinal";
    /// No context is current to the thread.
    CUDA_ERROR_INVALID_CONTEXT = 201, "invalid device context";
    /// The module's text cannot be compiled.
    CUDA_ERROR_INVALID_PTX = 218, "a PTX JIT compilation failed";
    /// The module's `.version` is newer than the driver.
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222, "the provided PTX was compiled with an unsupported toolchain.";
    /// A handle stands for nothing.
    CUDA_ERROR_INVALID_HANDLE = 400, "invalid resource handle";
    /// The resource is not in the state that the call needs.
    CUDA_ERROR_ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    /// A name was not found.
    CUDA_ERROR_NOT_FOUND = 500, "named symbol not found";
    /// Work is not complete.
    CUDA_ERROR_NOT_READY = 600, "device not ready";
    /// A kernel or copy accessed what is no live memory.
    CUDA_ERROR_ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    /// A kernel did not end.
    CUDA_ERROR_LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    /// The context was destroyed.
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    /// An access was not naturally aligned.
    CUDA_ERROR_MISALIGNED_ADDRESS = 716, "misaligned address";
    /// A kernel did what is undefined.
    CUDA_ERROR_LAUNCH_FAILED = 719, "unspecified launch failure";
    /// The call is not allowed here, as in a host function.
    CUDA_ERROR_NOT_PERMITTED = 800, "operation not permitted";
    /// The function exists, this library does not support this use.
    CUDA_ERROR_NOT_SUPPORTED = 801, "operation not supported";
    /// The call is not allowed while a stream is captured.
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    /// The capture failed before.
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    /// The call would make the capture depend on the legacy stream.
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    /// The event was recorded in a capture.
    CUDA_ERROR_CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    /// The capture was begun by another thread.
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    /// Something else failed.
    CUDA_ERROR_UNKNOWN = 999, "unknown error";
}

/// Writes the name of a code.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { put(code, text, |names| names.0) }
}

/// Writes the description of a code.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { put(code, text, |names| names.1) }
}

/// # Safety
/// `text` is null or can be written.
unsafe fn put(
    code: CUresult,
    text: *mut *const c_char,
    pick: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> CUresult {
    if text.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let found = lookup(code).map(pick);
    // SAFETY: not null, and the caller's promise.
    unsafe { text.write(found.map_or(std::ptr::null(), CStr::as_ptr)) };
    if found.is_some() { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

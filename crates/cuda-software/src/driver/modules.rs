//! Modules, functions and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::codes::*;
use super::device::put_text;
use super::state::{Call, Function, Module, Work, in_context};
use super::{CUfunction, CUmodule, CUstream, handle, id, put, stream_id};
use crate::exec::Launch;
use crate::ptx;

/// JIT options that have a meaning here.
const INFO_LOG_BUFFER_SIZE: c_uint = 4;
const ERROR_LOG_BUFFER: c_uint = 5;
const ERROR_LOG_BUFFER_SIZE: c_uint = 6;

/// Markers of `extra` in a launch.
const PARAM_END: usize = 0;
const PARAM_BUFFER: usize = 1;
const PARAM_SIZE: usize = 2;

/// Where a caller wants to read why a module failed.
struct Log {
    text: *mut c_char,
    len: usize,
    /// Where the used length goes: the option's value.
    used: *mut *mut c_void,
}

/// Loads a module of PTX text, which ends with a zero.
///
/// The error log (`CU_JIT_ERROR_LOG_BUFFER`) receives the line and reason where it fails.
///
/// # Safety
/// `image` is null or text with a zero; `options` and `values` have `count` elements, and log
/// buffers have the size given with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *const c_uint,
    values: *mut *mut c_void,
) -> CUresult {
    let code = in_context(|state| {
        state.no_unsafe_capture()?;
        let no_options = count > 0 && (options.is_null() || values.is_null());
        if image.is_null() || no_options { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    });
    if code != CUDA_SUCCESS {
        return code;
    }
    // Threads may compile at once: the state is not locked meanwhile.
    // SAFETY: the caller's promise.
    match unsafe { compile(image, count as usize, options, values) } {
        Err(code) => code,
        Ok(kernels) => in_context(|state| {
            let new = state.new_id();
            // SAFETY: the caller's promise.
            unsafe { put(module, handle(new)) }?;
            let loaded = Arc::new(AtomicBool::new(true));
            state.modules.insert(new, Module { kernels, loaded });
            Ok(())
        }),
    }
}

/// # Safety
/// Compiles PTX and registers the module. `image` must not be null; the other arguments are those of
/// `cuModuleLoadDataEx`.
unsafe fn compile(
    image: *const c_void,
    count: usize,
    options: *const c_uint,
    values: *mut *mut c_void,
) -> Call<Vec<Arc<ptx::Kernel>>> {
    // SAFETY: the caller's promise.
    let log = unsafe { read_options(count, options, values) }?;
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let parsed = text
        .to_str()
        .map_err(|_| ptx::SyntaxError::new(0, "text is not UTF-8"))
        .and_then(ptx::load);
    let message = parsed.as_ref().err().map_or(String::new(), |e| format!("ptxas error, {e}"));
    // SAFETY: the caller's promise.
    unsafe { write_log(&log, &message) }?;
    parsed.map_err(|error| {
        if error.unsupported_version {
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        } else {
            CUDA_ERROR_INVALID_PTX
        }
    })
}

/// Loads a module without compiler options; otherwise the same as `cuModuleLoadDataEx`.
///
/// # Safety
/// `image` is null or text with a zero; `module` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuModuleLoadDataEx(module, image, 0, std::ptr::null(), std::ptr::null_mut()) }
}

/// # Safety
/// `options` and `values` have `count` elements.
unsafe fn read_options(
    count: usize,
    options: *const c_uint,
    values: *mut *mut c_void,
) -> Call<Log> {
    let mut log = Log { text: std::ptr::null_mut(), len: 0, used: std::ptr::null_mut() };
    for at in 0..count {
        // SAFETY: `at < count`, the caller's promise.
        let option = unsafe { options.add(at) };
        // SAFETY: as above.
        let option = unsafe { option.read() };
        // SAFETY: as above.
        let place = unsafe { values.add(at) };
        // SAFETY: as above.
        let value = unsafe { place.read() };
        match option {
            ERROR_LOG_BUFFER => log.text = value.cast(),
            ERROR_LOG_BUFFER_SIZE => {
                // The size is the pointer's lower 32 bits.
                log.len = value.addr() & 0xffff_ffff;
                log.used = place;
            }
            INFO_LOG_BUFFER_SIZE => {
                // SAFETY: as above; nothing is written to that log.
                unsafe { place.write(std::ptr::null_mut()) };
            }
            0..=40 => {}
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(log)
}

/// # Safety
/// The log's buffer has its length, and its length can be written.
unsafe fn write_log(log: &Log, text: &str) -> Call<()> {
    if log.text.is_null() || log.len == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { put_text(log.text, log.len, text) }?;
    let used = text.len().min(log.len - 1);
    // SAFETY: `read_options` found the place within the caller's array.
    unsafe { log.used.write(handle(used)) };
    Ok(())
}

/// Unloads a module. Work that still uses its kernels is a fault.
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: CUmodule) -> CUresult {
    in_context(|state| {
        let name = id(module);
        let module = state.modules.remove(&name).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        module.loaded.store(false, Relaxed);
        state.functions.retain(|_, f| f.module != name);
        Ok(())
    })
}

/// Kernel of a module by its name.
///
/// # Safety
/// `function` is null or can be written; `name` is null or text with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    in_context(|state| {
        if name.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        let module_id = id(module);
        let module = state.modules.get(&module_id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let kernel = module.kernels.iter().find(|k| k.name.as_bytes() == name.to_bytes());
        let kernel = Arc::clone(kernel.ok_or(CUDA_ERROR_NOT_FOUND)?);
        let loaded = Arc::clone(&module.loaded);
        let new = state.new_id();
        // SAFETY: the caller's promise.
        unsafe { put(function, handle(new)) }?;
        state.functions.insert(new, Function { kernel, module: module_id, loaded });
        Ok(())
    })
}

/// Attribute of a kernel: most threads of a block (0), bytes of shared (1), constant (2) and
/// local memory (3), registers (4, an estimate), PTX and binary versions (5, 6).
///
/// # Safety
/// `value` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    function: CUfunction,
) -> CUresult {
    in_context(|state| {
        let function = state.functions.get(&id(function)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let kernel = &function.kernel;
        let found = match attribute {
            0 => kernel.max_threads,
            1 => kernel.shared_bytes,
            2 => 0,
            3 => kernel.local_bytes,
            4 => kernel.registers,
            5 | 6 => 75,
            7 => 0,
            8 => 49152 - kernel.shared_bytes.min(49152),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: the caller's promise.
        unsafe { put(value, found.cast_signed()) }
    })
}

/// Launches a kernel. Its parameters are read at once; the kernel runs when something waits.
///
/// # Safety
/// `params` is null or points to a pointer to each parameter; `extra` is null or a list as CUDA
/// describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    in_context(|state| {
        let function = state.functions.get(&id(function)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let function = function.clone();
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_sizes(&function.kernel, grid, block, shared_bytes)?;
        let len = function.kernel.param_bytes as usize;
        let params = if len == 0 {
            Vec::new()
        } else if !params.is_null() && extra.is_null() {
            // SAFETY: the caller's promise.
            unsafe { gather(&function.kernel, params) }?
        } else if !extra.is_null() && params.is_null() {
            // SAFETY: the caller's promise.
            unsafe { buffer(len, extra) }?
        } else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let launch =
            Launch { kernel: function.kernel, grid, block, dynamic_shared: shared_bytes, params };
        let work = Work::Kernel { launch: Arc::new(launch), loaded: function.loaded };
        state.enqueue(stream_id(stream), work)
    })
}

fn check_sizes(
    kernel: &ptx::Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
) -> Call<()> {
    let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
    let blocks: u128 = grid.iter().map(|&n| u128::from(n)).product();
    let shared = u64::from(kernel.shared_bytes.next_multiple_of(16)) + u64::from(shared_bytes);
    let possible = blocks > 0
        && blocks <= 1 << 31
        && grid[0] <= i32::MAX as u32
        && grid[1] <= 65535
        && grid[2] <= 65535
        && threads > 0
        && block[2] <= 64
        && threads <= u64::from(kernel.max_threads)
        && (shared_bytes == 0 || shared <= 49152)
        && kernel.required_block.is_none_or(|required| required == block);
    if possible { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// # Safety
/// `params` points to a pointer to each parameter.
unsafe fn gather(kernel: &ptx::Kernel, params: *mut *mut c_void) -> Call<Vec<u8>> {
    let mut bytes = vec![0; kernel.param_bytes as usize];
    for (at, param) in kernel.params.iter().enumerate() {
        // SAFETY: the caller's promise: there is a pointer for each parameter.
        let from = unsafe { params.add(at) };
        // SAFETY: as above.
        let from = unsafe { from.read() };
        if from.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let to = &mut bytes[param.offset as usize..][..param.bytes as usize];
        // SAFETY: the caller's promise: it points to a parameter of this size.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr(), to.len()) };
    }
    Ok(bytes)
}

/// # Safety
/// `extra` is a list that ends with `CU_LAUNCH_PARAM_END`.
unsafe fn buffer(len: usize, extra: *mut *mut c_void) -> Call<Vec<u8>> {
    let mut start = std::ptr::null::<u8>();
    let mut size = 0;
    // Two entries of two words and the end, at most.
    for at in [0, 2, 4] {
        // SAFETY: no end was found before: the caller's promise.
        let key = unsafe { extra.add(at) };
        // SAFETY: as above.
        let key = unsafe { key.read() }.addr();
        if key == PARAM_END {
            break;
        }
        // SAFETY: each key has a value.
        let value = unsafe { extra.add(at + 1) };
        // SAFETY: as above.
        let value = unsafe { value.read() };
        match key {
            PARAM_BUFFER => start = value.cast(),
            // SAFETY: the value points to a size: the caller's promise.
            PARAM_SIZE => size = unsafe { value.cast::<usize>().read() },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    if start.is_null() || size < len {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the buffer has `size >= len` bytes: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start, len) }.to_vec())
}

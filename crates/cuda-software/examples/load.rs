//! Loads PTX files and tells what each needs, or why it cannot be loaded: `load FILES`.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use cuda_software::*;

fn main() {
    let mut context = null_mut();
    assert_eq!(cuInit(0), CUDA_SUCCESS);
    // SAFETY: a pointer to a variable of this function.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, CUDA_SUCCESS);
    assert_eq!(cuCtxSetCurrent(context), CUDA_SUCCESS);
    let mut failed = 0;
    for path in std::env::args().skip(1) {
        match std::fs::read(&path).map_err(|e| e.to_string()).and_then(load) {
            Ok([threads, shared, local, registers]) => {
                eprintln!(
                    "{path}: {threads} threads, {shared} bytes shared, {local} local, {registers} registers"
                );
            }
            Err(reason) => {
                failed += 1;
                eprintln!("{path}: {reason}");
            }
        }
    }
    std::process::exit(c_int::from(failed > 0));
}

fn load(text: Vec<u8>) -> Result<[c_int; 4], String> {
    let text = CString::new(text).map_err(|e| e.to_string())?;
    let mut module = null_mut();
    let mut log = [0_u8; 512];
    let options = [5, 6];
    let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let image = text.as_ptr().cast();
    // SAFETY: the text has a zero, the options have two elements, the log its length.
    let code = unsafe {
        cuModuleLoadDataEx(&raw mut module, image, 2, options.as_ptr(), values.as_mut_ptr())
    };
    if code != CUDA_SUCCESS {
        let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        return Err(format!("{code}: {}", String::from_utf8_lossy(&log[..end])));
    }
    let mut function = null_mut();
    // SAFETY: a pointer to a variable of this function, a text with a zero.
    let code = unsafe { cuModuleGetFunction(&raw mut function, module, c"main".as_ptr()) };
    if code != CUDA_SUCCESS {
        return Err(format!("{code}: no kernel `main`"));
    }
    Ok([0, 1, 3, 4].map(|attribute| {
        let mut value = -1;
        // SAFETY: a pointer to a variable of this function.
        unsafe { cuFuncGetAttribute(&raw mut value, attribute, function) };
        value
    }))
}

//! Modules, functions and the arguments of launches.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use cuda_software::*;

use crate::fixture::{ADD, Context, launch, ok};

/// Loads text; code and error log.
fn load(text: &str) -> (CUresult, String) {
    let text = CString::new(text).expect("has no zero");
    let mut module = null_mut();
    let mut log = [1_u8; 200];
    let options = [5, 6, 0];
    let mut values = [
        log.as_mut_ptr().cast::<c_void>(),
        without_provenance_mut(log.len()),
        without_provenance_mut(32),
    ];
    let code = unsafe {
        cuModuleLoadDataEx(
            &raw mut module,
            text.as_ptr().cast(),
            3,
            options.as_ptr(),
            values.as_mut_ptr(),
        )
    };
    let log = CStr::from_bytes_until_nul(&log).expect("ends");
    assert_eq!(values[1].addr(), log.count_bytes());
    (code, log.to_str().expect("is text").to_owned())
}

#[test]
fn errors_of_modules_are_in_the_log() {
    let _context = Context::new();
    assert_eq!(load(ADD), (CUDA_SUCCESS, String::new()));
    let (code, log) = load(&ADD.replace("add.u32", "add.frob.u32"));
    assert_eq!(code, CUDA_ERROR_INVALID_PTX);
    assert_eq!(log, "ptxas error, line 13: modifier `.frob` of `add` is not known");
    let (code, log) = load(&ADD.replace("6.4", "9.0"));
    assert_eq!(code, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert!(log.contains("beyond 8.7"));
    // A long reason is cut.
    let (_, log) = load(&ADD.replace("add.u32", &format!("add.{}.u32", "x".repeat(500))));
    assert_eq!(log.len(), 199);
}

#[test]
fn functions_and_their_attributes() {
    let context = Context::new();
    let module = context.module(&ADD.replace(
        "(.param .u64 b0)\n{",
        "(.param .u64 b0) .reqntid 32, 1, 1\n{ .shared .b8 s[100]; .local .b32 l[5];",
    ));
    let mut function = null_mut();
    let code = unsafe { cuModuleGetFunction(&raw mut function, module, c"sub".as_ptr()) };
    assert_eq!(code, CUDA_ERROR_NOT_FOUND);
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) });
    let attribute = |which| {
        let mut value = -1;
        ok(unsafe { cuFuncGetAttribute(&raw mut value, which, function) });
        value
    };
    assert_eq!([0, 1, 3].map(attribute), [32, 100, 20]);
    assert!((8..30).contains(&attribute(4)));
    let stream = context.stream(0);
    let a = context.alloc(256);
    assert_eq!(launch(function, [1, 31], a, stream), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(function, [0, 32], a, stream), CUDA_ERROR_INVALID_VALUE);
    ok(launch(function, [1, 32], a, stream));
    ok(cuModuleUnload(module));
    assert_eq!(launch(function, [1, 32], a, stream), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn parameters_by_pointers_or_in_one_buffer() {
    let context = Context::new();
    let function = context.add_kernel();
    let stream = context.stream(0);
    let a = context.alloc(128);
    ok(cuMemsetD8Async(a, 0, 128, stream));
    let run = |params, extra| unsafe {
        cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, extra)
    };
    let mut address = a;
    let mut size = 8_usize;
    let mut extra = [
        without_provenance_mut(1),
        (&raw mut address).cast::<c_void>(),
        without_provenance_mut(2),
        (&raw mut size).cast(),
        null_mut(),
    ];
    ok(run(null_mut(), extra.as_mut_ptr()));
    let mut params = [(&raw mut address).cast::<c_void>()];
    ok(run(params.as_mut_ptr(), null_mut()));
    // They are read at the call.
    address = 0;
    assert_eq!(context.read(a, 32, stream), [64; 32]);
    assert_eq!(address, 0);
    size = 7;
    assert_eq!(run(null_mut(), extra.as_mut_ptr()), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(size, 7);
    assert_eq!(run(null_mut(), null_mut()), CUDA_ERROR_INVALID_VALUE);
    let too_many = unsafe {
        cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, params.as_mut_ptr(), null_mut())
    };
    assert_eq!(too_many, CUDA_ERROR_INVALID_VALUE);
}

//! The device, contexts and memory.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cuda_software::*;

use crate::fixture::{Context, launch, ok, report};

#[test]
fn the_device_is_described() {
    let _context = Context::new();
    let mut value = 0;
    ok(unsafe { cuDriverGetVersion(&raw mut value) });
    assert_eq!(value, 12080);
    ok(unsafe { cuDeviceGetCount(&raw mut value) });
    assert_eq!(value, 1);
    assert_eq!(unsafe { cuDeviceGet(&raw mut value, 1) }, CUDA_ERROR_INVALID_DEVICE);
    ok(unsafe { cuDeviceGet(&raw mut value, 0) });
    for (attribute, want) in
        [(75, 7), (76, 5), (16, 2), (1, 1024), (8, 49152), (10, 32), (18, 0), (36, 0), (37, 0)]
    {
        ok(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, 0) });
        assert_eq!(value, want, "attribute {attribute}");
    }
    let mut name = [1_u8; 32];
    ok(unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), 9, 0) });
    assert_eq!(&name[..10], b"Software\0\x01");
    ok(unsafe { cuDeviceGetPCIBusId(name.as_mut_ptr().cast(), 32, 0) });
    let mut text = null();
    ok(unsafe { cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &raw mut text) });
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    assert_eq!(text, c"CUDA_ERROR_ILLEGAL_ADDRESS");
    let mut text = null();
    assert_eq!(unsafe { cuGetErrorString(12345, &raw mut text) }, CUDA_ERROR_INVALID_VALUE);
    assert!(text.is_null());
}

#[test]
fn calls_need_a_current_context() {
    let context = Context::new();
    let address = context.alloc(4);
    std::thread::spawn(move || {
        assert_eq!(cuMemFree_v2(address), CUDA_ERROR_INVALID_CONTEXT);
        let mut current = null_mut();
        ok(unsafe { cuCtxGetCurrent(&raw mut current) });
        assert!(current.is_null());
    })
    .join()
    .expect("asserts hold");
    ok(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(cuMemFree_v2(address), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_eq!(report("live_allocations"), 0);
}

#[test]
fn memory_is_counted_and_limited() {
    let context = Context::new();
    let (mut free, mut total) = (0, 0);
    ok(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    assert_eq!(free, total);
    let address = context.alloc(1000);
    assert!(address.is_multiple_of(256));
    ok(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    assert_eq!(total - free, 1024);
    assert_eq!(report("live_bytes"), 1024);
    let mut other = 0;
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut other, total) }, CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut other, 0) }, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuMemFree_v2(address + 4), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemFree_v2(address));
    ok(cuMemFree_v2(0));
    assert_eq!(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    let again = context.alloc(1000);
    assert_ne!(again, address);
    assert_eq!(report("live_allocations"), 1);
}

#[test]
fn copies_and_fills() {
    let context = Context::new();
    let stream = context.stream(0);
    let (a, b) = (context.alloc(64), context.alloc(64));
    let mut words: Vec<u32> = (0..16).collect();
    ok(unsafe { cuMemcpyHtoDAsync_v2(a, words.as_ptr().cast(), 64, stream) });
    // Pageable memory was copied at the call.
    words.fill(99);
    ok(cuMemsetD8Async(b, 0xab, 64, stream));
    ok(cuMemcpyDtoDAsync_v2(b + 8, a + 4, 20, stream));
    ok(cuMemsetD32Async(b + 60, 7, 1, stream));
    let out = context.read(b, 16, stream);
    assert_eq!(out[..8], [0xabab_abab, 0xabab_abab, 1, 2, 3, 4, 5, 0xabab_abab]);
    assert_eq!(out[15], 7);
    assert_eq!(
        unsafe { cuMemcpyHtoDAsync_v2(a + 4, words.as_ptr().cast(), 64, stream) },
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(cuMemsetD32Async(b + 2, 7, 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuMemsetD8Async(b, 7, 65, stream), CUDA_ERROR_INVALID_VALUE);
    ok(unsafe { cuMemcpyHtoD_v2(a, words.as_ptr().cast(), 64) });
    ok(unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr().cast::<c_void>(), a, 64) });
    assert_eq!(words, [99; 16]);
    assert_eq!((report("copies"), report("copied_bytes")), (5, 64 + 20 + 64 + 64 + 64));
}

#[test]
fn reading_what_was_never_written_is_a_fault() {
    let context = Context::new();
    let stream = context.stream(0);
    let a = context.alloc(64);
    ok(cuMemsetD8Async(a, 1, 60, stream));
    let mut word = 0_u32;
    ok(unsafe { cuMemcpyDtoHAsync_v2((&raw mut word).cast(), a + 56, 4, stream) });
    let code = unsafe { cuMemcpyDtoHAsync_v2((&raw mut word).cast(), a + 60, 4, stream) };
    assert_eq!(code, CUDA_ERROR_LAUNCH_FAILED);
    assert!(crate::fixture::report_text().contains("byte 60 of allocation"));
}

#[test]
fn use_after_free_is_a_sticky_fault() {
    let context = Context::new();
    let stream = context.stream(0);
    let function = context.add_kernel();
    let a = context.alloc(128);
    ok(cuMemsetD8Async(a, 0, 128, stream));
    ok(launch(function, [1, 32], a, stream));
    // Too early: nothing waited.
    ok(cuMemFree_v2(a));
    assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut other = 0;
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut other, 4) }, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(report("faults"), 1);
    assert!(crate::fixture::report_text().contains("freed allocation"));
    // It ends with the context.
    drop(context);
    let context = Context::new();
    context.alloc(4);
}

#[test]
fn kernels_find_freed_memory_too() {
    let context = Context::new();
    let stream = context.stream(0);
    let function = context.add_kernel();
    let a = context.alloc(128);
    ok(launch(function, [1, 32], a, stream));
    ok(cuMemFree_v2(a));
    assert_eq!(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    let text = crate::fixture::report_text();
    assert!(
        text.contains("kernel `add`, PTX line 12, block (0, 0, 0), thread (0, 0, 0)"),
        "{text}"
    );
    assert!(text.contains("byte 0 of freed allocation"), "{text}");
}

#[test]
fn page_locked_memory_is_read_when_the_copy_runs() {
    let context = Context::new();
    let stream = context.stream(0);
    let (from, to) = (context.pinned(4), context.pinned(4));
    let a = context.alloc(16);
    from.set(1);
    to.set(0);
    ok(unsafe { cuMemcpyHtoDAsync_v2(a, from.start.cast(), 16, stream) });
    ok(unsafe { cuMemcpyDtoHAsync_v2(to.start.cast(), a, 16, stream) });
    // Too early, both of them.
    from.set(2);
    assert_eq!(to.get(), [0; 4]);
    ok(cuStreamSynchronize(stream));
    assert_eq!(to.get(), [2; 4]);
    // Freed before the copy.
    ok(unsafe { cuMemcpyHtoDAsync_v2(a, from.start.cast(), 16, stream) });
    assert_eq!(report("pinned_allocations"), 2);
    ok(unsafe { cuMemFreeHost(from.start.cast()) });
    assert_eq!(unsafe { cuMemFreeHost(from.start.cast()) }, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(crate::fixture::report_text().contains("was freed before the copy ran"));
}

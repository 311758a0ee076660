//! Streams, events and host functions.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use cuda_software::*;

use crate::fixture::{Context, launch, ok, report};

#[test]
fn nothing_runs_before_something_waits() {
    let context = Context::new();
    let stream = context.stream(0);
    let function = context.add_kernel();
    let a = context.alloc(400);
    let out = context.pinned(100);
    out.set(0);
    ok(cuMemsetD32Async(a, 5, 100, stream));
    ok(launch(function, [10, 10], a, stream));
    ok(launch(function, [5, 20], a, stream));
    ok(unsafe { cuMemcpyDtoHAsync_v2(out.start.cast(), a, 400, stream) });
    assert_eq!((out.get(), report("launches")), (vec![0; 100], 0));
    ok(cuStreamSynchronize(stream));
    assert_eq!((out.get(), report("launches")), (vec![35; 100], 2));
    assert_eq!(report("instructions"), 10 * 11 + 5 * 11);
}

#[test]
fn polls_make_progress_one_by_one() {
    let context = Context::new();
    let stream = context.stream(1);
    let a = context.alloc(4);
    for _ in 0..3 {
        ok(cuMemsetD32Async(a, 5, 1, stream));
    }
    let event = context.event();
    ok(cuEventQuery(event));
    ok(cuEventRecord(event, stream));
    for _ in 0..4 {
        assert_eq!(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    }
    ok(cuEventQuery(event));
    ok(cuStreamQuery(stream));
    ok(cuMemsetD32Async(a, 5, 1, stream));
    assert_eq!(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    ok(cuStreamQuery(stream));
    ok(cuEventDestroy_v2(event));
    assert_eq!(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn events_wait_for_what_is_before_them() {
    let context = Context::new();
    let stream = context.stream(1);
    let (a, out) = (context.alloc(4), context.pinned(1));
    let (first, second) = (context.event(), context.event());
    ok(cuMemsetD32Async(a, 1, 1, stream));
    ok(cuEventRecord(first, stream));
    ok(cuMemsetD32Async(a, 2, 1, stream));
    ok(unsafe { cuMemcpyDtoHAsync_v2(out.start.cast(), a, 4, stream) });
    ok(cuEventRecord(second, stream));
    out.set(0);
    ok(cuEventSynchronize(first));
    assert_eq!(out.get(), [0]);
    let mut time = -1.0;
    assert_eq!(unsafe { cuEventElapsedTime(&raw mut time, first, second) }, CUDA_ERROR_NOT_READY);
    ok(cuEventSynchronize(second));
    assert_eq!(out.get(), [2]);
    ok(unsafe { cuEventElapsedTime(&raw mut time, first, second) });
    assert!((0.0..1000.0).contains(&time));
    let mut silent = null_mut();
    ok(unsafe { cuEventCreate(&raw mut silent, 2) });
    ok(cuEventRecord(silent, stream));
    ok(cuStreamSynchronize(stream));
    let code = unsafe { cuEventElapsedTime(&raw mut time, first, silent) };
    assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn streams_are_independent_but_for_the_legacy_one() {
    let context = Context::new();
    let (a, b) = (context.alloc(4), context.alloc(4));
    let (free, blocking) = (context.stream(1), context.stream(0));
    let out = context.pinned(2);
    let copy = |at: usize, from, stream| unsafe {
        ok(cuMemcpyDtoHAsync_v2(out.start.add(at).cast(), from, 4, stream));
    };
    out.set(0);
    ok(cuMemsetD32Async(a, 1, 1, free));
    copy(0, a, free);
    ok(cuMemsetD32Async(b, 2, 1, blocking));
    copy(1, b, blocking);
    // Waits for `blocking`, not for `free`.
    ok(cuStreamSynchronize(null_mut()));
    assert_eq!(out.get(), [0, 0]);
    ok(cuMemsetD32Async(b, 3, 1, null_mut()));
    ok(cuStreamSynchronize(null_mut()));
    assert_eq!(out.get(), [0, 2]);
    // What is in the legacy stream comes before what is enqueued in `blocking` afterwards.
    ok(cuMemsetD32Async(b, 4, 1, null_mut()));
    copy(1, b, blocking);
    ok(cuStreamSynchronize(blocking));
    assert_eq!(out.get(), [0, 4]);
    ok(cuStreamSynchronize(free));
    assert_eq!(out.get(), [1, 4]);
}

#[test]
fn streams_wait_for_events_of_others() {
    let context = Context::new();
    let (first, second) = (context.stream(1), context.stream(1));
    let (a, out) = (context.alloc(4), context.pinned(1));
    let event = context.event();
    ok(cuMemsetD32Async(a, 8, 1, first));
    ok(cuEventRecord(event, first));
    ok(cuMemsetD32Async(a, 9, 1, first));
    ok(cuStreamWaitEvent(second, event, 0));
    ok(unsafe { cuMemcpyDtoHAsync_v2(out.start.cast(), a, 4, second) });
    ok(cuStreamSynchronize(second));
    assert_eq!(out.get(), [8]);
    ok(cuStreamDestroy_v2(first));
    assert_eq!(context.read(a, 1, second), [9]);
    assert_eq!(cuStreamSynchronize(first), CUDA_ERROR_INVALID_HANDLE);
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" fn note(data: *mut c_void) {
    let seen = unsafe { data.cast::<u32>().read() };
    CALLS.store(seen, Relaxed);
    CODE.store(cuCtxSynchronize(), Relaxed);
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    let context = Context::new();
    let stream = context.stream(0);
    let (a, out) = (context.alloc(4), context.pinned(1));
    out.set(0);
    ok(cuMemsetD32Async(a, 77, 1, stream));
    ok(unsafe { cuMemcpyDtoHAsync_v2(out.start.cast(), a, 4, stream) });
    ok(unsafe { cuLaunchHostFunc(stream, Some(note), out.start.cast()) });
    assert_eq!(CALLS.load(Relaxed), 0);
    ok(cuStreamSynchronize(stream));
    assert_eq!(CALLS.load(Relaxed), 77);
    assert_eq!(CODE.load(Relaxed), CUDA_ERROR_NOT_PERMITTED);
    assert_eq!(report("host_functions"), 1);
    assert_eq!(unsafe { cuLaunchHostFunc(stream, None, null_mut()) }, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn work_is_enqueued_and_waited_for_by_many_threads() {
    let context = Context::new();
    let function = context.add_kernel() as usize;
    let mut current = null_mut();
    ok(unsafe { cuCtxGetCurrent(&raw mut current) });
    let current = current as usize;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                ok(cuCtxSetCurrent(current as *mut c_void));
                let mut stream = null_mut();
                ok(unsafe { cuStreamCreate(&raw mut stream, 1) });
                for round in 0..20 {
                    let mut a = 0;
                    ok(unsafe { cuMemAlloc_v2(&raw mut a, 4000) });
                    ok(cuMemsetD32Async(a, round, 1000, stream));
                    ok(launch(function as CUfunction, [10, 100], a, stream));
                    let mut out = vec![0_u32; 1000];
                    ok(unsafe { cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), a, 4000, stream) });
                    assert!(out.iter().all(|&x| x == round + 100));
                    ok(cuMemFree_v2(a));
                }
                ok(cuStreamDestroy_v2(stream));
            });
        }
    });
    assert_eq!((report("launches"), report("live_allocations")), (80, 0));
}

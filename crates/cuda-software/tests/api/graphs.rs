//! Captures and graphs.

use std::ptr::null_mut;

use cuda_software::*;

use crate::fixture::{Context, launch, ok, report};

fn capture(stream: CUstream, mode: u32) {
    ok(cuStreamBeginCapture_v2(stream, mode));
    assert_eq!(status(stream), 1);
}

fn status(stream: CUstream) -> i32 {
    let mut value = -1;
    ok(unsafe { cuStreamIsCapturing(stream, &raw mut value) });
    value
}

fn end(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = std::ptr::without_provenance_mut(7);
    match unsafe { cuStreamEndCapture(stream, &raw mut graph) } {
        CUDA_SUCCESS => Ok(graph),
        code => {
            assert!(graph.is_null() || code != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            Err(code)
        }
    }
}

#[test]
fn a_graph_replays_what_was_captured() {
    let context = Context::new();
    let stream = context.stream(1);
    let function = context.add_kernel();
    let (a, input, output) = (context.alloc(400), context.pinned(100), context.pinned(100));
    capture(stream, 1);
    ok(unsafe { cuMemcpyHtoDAsync_v2(a, input.start.cast(), 400, stream) });
    ok(launch(function, [10, 10], a, stream));
    ok(launch(function, [2, 50], a, stream));
    ok(cuEventRecord(context.event(), stream));
    ok(unsafe { cuMemcpyDtoHAsync_v2(output.start.cast(), a, 400, stream) });
    let graph = end(stream).expect("captured");
    assert_eq!(status(stream), 0);
    ok(cuStreamSynchronize(stream));
    assert_eq!(report("launches"), 0);

    let mut count = 0;
    ok(unsafe { cuGraphGetNodes(graph, null_mut(), &raw mut count) });
    assert_eq!(count, 4);
    let mut nodes = [std::ptr::without_provenance_mut(3); 6];
    count = 6;
    ok(unsafe { cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) });
    assert_eq!(count, 4);
    assert!(nodes[..4].iter().all(|n| !n.is_null()) && nodes[4..].iter().all(|n| n.is_null()));

    let mut executable = null_mut();
    ok(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    ok(cuGraphDestroy(graph));
    ok(cuGraphUpload(executable, stream));
    for value in [1, 1000] {
        input.set(value);
        ok(cuGraphLaunch(executable, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(output.get(), [value + 60; 100]);
    }
    assert_eq!((report("graph_launches"), report("graph_nodes"), report("launches")), (2, 8, 4));
    ok(cuGraphLaunch(executable, stream));
    ok(cuGraphExecDestroy(executable));
    ok(cuStreamSynchronize(stream));
    assert_eq!(report("launches"), 6);
    assert_eq!(cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn waiting_ends_a_capture() {
    let context = Context::new();
    let stream = context.stream(1);
    let a = context.alloc(4);
    type Wait = fn(CUstream) -> CUresult;
    for wait in [(|s| cuStreamSynchronize(s)) as Wait, |s| cuStreamQuery(s), |_| cuCtxSynchronize()]
    {
        capture(stream, 2);
        ok(cuMemsetD32Async(a, 1, 1, stream));
        assert_eq!(wait(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(status(stream), 2);
        assert_eq!(cuMemsetD32Async(a, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(end(stream), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        assert_eq!(end(stream), Err(CUDA_ERROR_ILLEGAL_STATE));
    }
    // Events of a capture cannot be waited for.
    let event = context.event();
    capture(stream, 2);
    ok(cuEventRecord(event, stream));
    assert_eq!(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_eq!(end(stream), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    // Copies of pageable memory would wait.
    capture(stream, 2);
    let word = 1_u32;
    let code = unsafe { cuMemcpyHtoDAsync_v2(a, (&raw const word).cast(), 4, stream) };
    assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(end(stream), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn allocations_end_captures_by_their_mode() {
    let context = Context::new();
    let stream = context.stream(1);
    let alloc = || {
        let mut address = 0;
        unsafe { cuMemAlloc_v2(&raw mut address, 4) }
    };
    let mut current = null_mut();
    ok(unsafe { cuCtxGetCurrent(&raw mut current) });
    let current = current as usize;
    let elsewhere = || {
        let work = || {
            ok(cuCtxSetCurrent(current as CUcontext));
            alloc()
        };
        std::thread::scope(|scope| scope.spawn(work).join().expect("runs"))
    };
    // Global, thread-local, relaxed: here, and in another thread.
    for (mode, here, there) in [(0, false, false), (1, false, true), (2, true, true)] {
        for (allowed, code) in [(here, &alloc as &dyn Fn() -> CUresult), (there, &elsewhere)] {
            capture(stream, mode);
            let expected =
                if allowed { CUDA_SUCCESS } else { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };
            assert_eq!(code(), expected, "mode {mode}");
            assert_eq!(end(stream).is_ok(), allowed);
        }
    }
    // A thread can be relaxed as a whole.
    let mut mode = 2;
    ok(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) });
    capture(stream, 0);
    ok(alloc());
    assert!(end(stream).is_ok());
    ok(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) });
    assert_eq!(mode, 2);
}

#[test]
fn captures_and_the_legacy_stream() {
    let context = Context::new();
    let (blocking, free) = (context.stream(0), context.stream(1));
    let a = context.alloc(4);
    assert_eq!(cuStreamBeginCapture_v2(null_mut(), 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    capture(free, 0);
    ok(cuMemsetD32Async(a, 1, 1, null_mut()));
    assert!(end(free).is_ok());
    capture(blocking, 0);
    assert_eq!(cuStreamBeginCapture_v2(blocking, 0), CUDA_ERROR_ILLEGAL_STATE);
    assert_eq!(cuMemsetD32Async(a, 1, 1, null_mut()), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(end(blocking), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn a_graph_does_not_outlive_its_module() {
    let context = Context::new();
    let stream = context.stream(1);
    let module = context.module(crate::fixture::ADD);
    let mut function = null_mut();
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) });
    let a = context.alloc(128);
    ok(cuMemsetD8Async(a, 0, 128, stream));
    capture(stream, 1);
    ok(launch(function, [1, 32], a, stream));
    let graph = end(stream).expect("captured");
    let mut executable = null_mut();
    ok(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    ok(cuGraphLaunch(executable, stream));
    ok(cuStreamSynchronize(stream));
    ok(cuModuleUnload(module));
    ok(cuGraphLaunch(executable, stream));
    assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(crate::fixture::report_text().contains("module was unloaded"));
}

//! A context for one test at a time.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_software::*;

static ONE: Mutex<()> = Mutex::new(());

/// Current context, fresh and destroyed at the end.
pub(crate) struct Context {
    _one: MutexGuard<'static, ()>,
}

/// Asserts success.
#[track_caller]
pub(crate) fn ok(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

impl Context {
    pub(crate) fn new() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        ok(cuInit(0));
        // A test that failed may have left its context.
        while cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS {}
        let mut context = null_mut();
        ok(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
        ok(cuCtxSetCurrent(context));
        cuda_software_reset_counters();
        Self { _one: one }
    }

    pub(crate) fn stream(&self, flags: u32) -> CUstream {
        let mut stream = null_mut();
        ok(unsafe { cuStreamCreate(&raw mut stream, flags) });
        stream
    }

    pub(crate) fn event(&self) -> CUevent {
        let mut event = null_mut();
        ok(unsafe { cuEventCreate(&raw mut event, 0) });
        event
    }

    pub(crate) fn alloc(&self, bytes: usize) -> CUdeviceptr {
        let mut address = 0;
        ok(unsafe { cuMemAlloc_v2(&raw mut address, bytes) });
        address
    }

    /// Page-locked words.
    pub(crate) fn pinned(&self, words: usize) -> Pinned {
        let mut start = null_mut();
        ok(unsafe { cuMemHostAlloc(&raw mut start, words * 4, 0) });
        Pinned { start: start.cast(), words }
    }

    pub(crate) fn module(&self, text: &str) -> CUmodule {
        let text = CString::new(text).expect("has no zero");
        let mut module = null_mut();
        ok(unsafe { cuModuleLoadData(&raw mut module, text.as_ptr().cast()) });
        module
    }

    /// Kernel `add` of `ADD`, which adds `%ntid` to the words of a buffer.
    pub(crate) fn add_kernel(&self) -> CUfunction {
        let module = self.module(ADD);
        let mut function = null_mut();
        ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) });
        function
    }

    /// Words of device memory, copied to pageable memory, which waits.
    pub(crate) fn read(&self, from: CUdeviceptr, words: usize, stream: CUstream) -> Vec<u32> {
        let mut out = vec![0_u32; words];
        ok(unsafe { cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), from, words * 4, stream) });
        out
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        cuDevicePrimaryCtxRelease_v2(0);
    }
}

/// Page-locked memory.
#[derive(Clone, Copy)]
pub(crate) struct Pinned {
    pub(crate) start: *mut u32,
    words: usize,
}

impl Pinned {
    pub(crate) fn get(self) -> Vec<u32> {
        unsafe { std::slice::from_raw_parts(self.start, self.words) }.to_vec()
    }

    pub(crate) fn set(self, value: u32) {
        for i in 0..self.words {
            unsafe { self.start.add(i).write(value) };
        }
    }
}

/// Adds the size of the block to each word.
pub(crate) const ADD: &str = ".version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 b0)
{
 .reg .b32 %r<8>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [b0];
 mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
 mad.lo.u32 %r3, %r0, %r1, %r2;
 mul.wide.u32 %d1, %r3, 4;
 add.u64 %d2, %d0, %d1;
 ld.global.b32 %r4, [%d2];
 add.u32 %r4, %r4, %r1;
 st.global.b32 [%d2], %r4;
 ret;
}
";

/// Launches a kernel of one address.
pub(crate) fn launch(
    function: CUfunction,
    [grid, block]: [u32; 2],
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let mut address = address;
    let mut params = [(&raw mut address).cast::<c_void>()];
    let params = params.as_mut_ptr();
    unsafe { cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params, null_mut()) }
}

/// Value of the report.
pub(crate) fn report(name: &str) -> u64 {
    let text = report_text();
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("`{name}` is not in {text}")).parse().expect("is a number")
}

pub(crate) fn report_text() -> String {
    let len = unsafe { cuda_software_report(null_mut(), 0) };
    let mut buffer = vec![0_u8; len];
    unsafe { cuda_software_report(buffer.as_mut_ptr().cast(), len) };
    buffer.pop();
    String::from_utf8(buffer).expect("is text")
}

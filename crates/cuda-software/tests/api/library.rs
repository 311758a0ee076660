//! The file that is loaded in place of `libcuda.so.1`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// Every name that a program may ask for.
const NAMES: &str = "cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute
cuDeviceTotalMem_v2 cuDeviceGetPCIBusId cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
cuCtxGetCurrent cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemHostAlloc cuMemFreeHost cuMemcpyHtoDAsync_v2
cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8Async cuMemsetD32Async cuStreamCreate
cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamWaitEvent cuStreamBeginCapture_v2
cuStreamEndCapture cuStreamIsCapturing cuThreadExchangeStreamCaptureMode cuGraphInstantiateWithFlags cuGraphUpload
cuGraphLaunch cuGraphExecDestroy cuGraphDestroy cuGraphGetNodes cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction
cuModuleUnload cuFuncGetAttribute cuLaunchKernel cuLaunchHostFunc cuEventCreate cuEventRecord cuEventSynchronize
cuEventQuery cuEventElapsedTime cuEventDestroy_v2 cuCtxSynchronize cuGetErrorName cuGetErrorString
cuda_software_report cuda_software_reset_counters";

#[test]
fn the_library_exports_every_name() {
    let test = std::env::current_exe().expect("has a path");
    let file = test.with_file_name("libcuda_software.so");
    let name = CString::new(file.to_str().expect("is text")).expect("has no zero");
    let library = unsafe { dlopen(name.as_ptr(), 2) };
    assert!(!library.is_null(), "{:?}", unsafe { CStr::from_ptr(dlerror()) });
    for name in NAMES.split_whitespace() {
        let c_name = CString::new(name).expect("has no zero");
        assert!(!unsafe { dlsym(library, c_name.as_ptr()) }.is_null(), "{name}");
    }
    let init = unsafe { dlsym(library, c"cuInit".as_ptr()) };
    let init: extern "C" fn(u32) -> c_int = unsafe { std::mem::transmute(init) };
    assert_eq!(init(0), 0);
}

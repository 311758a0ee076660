//! [`Driver`]: the functions of the driver library that are used, by their addresses in it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use crate::{Error, Result};

/// A file to load in place of the driver library: a stand-in for it.
pub const DRIVER_VARIABLE: &str = "ROOFLIGHT_CUDA_DRIVER";

/// Where the library may be, by system.
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"];

/// What the driver answers: 0, or what is wrong.
pub(crate) type Code = c_uint;
/// An address in a device's memory.
pub(crate) type Address = u64;
/// What the driver knows of a context, a stream, an event, a module, a function or a graph.
pub(crate) type Raw = *mut c_void;

/// Starts a kernel with attributes.
pub(crate) type LaunchWith =
    unsafe extern "C" fn(*const LaunchConfig, Raw, *mut *mut c_void, *mut *mut c_void) -> Code;

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Raw,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) n_attributes: c_uint,
}

/// `CUlaunchAttribute`, of a number.
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) pad: [u8; 4],
    pub(crate) value: c_int,
    pub(crate) rest: [u8; 60],
}

/// Declares a table of functions, and how it is filled.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ty),* $(,)?);)*) => {
        /// The functions that are used.
        pub(crate) struct Functions {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($arg),*) -> Code,)*
            /// `cuLaunchKernelEx`, which drivers before 520 do not have.
            pub(crate) launch_with: Option<LaunchWith>,
        }

        impl Functions {
            /// Those of a library.
            ///
            /// # Safety
            /// The library must be NVIDIA's driver, or have functions of the same names, arguments and meanings.
            unsafe fn of(library: &Library) -> std::result::Result<Functions, libloading::Error> {
                Ok(Functions {
                    $($name: {
                        let symbol = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the signature is that of the driver API's documentation; the caller vouches for the
                        // library.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> Code>(symbol)
                        };
                        *found?
                    },)*
                    launch_with: {
                        // SAFETY: as above.
                        let found = unsafe { library.get::<LaunchWith>(b"cuLaunchKernelEx\0") };
                        found.ok().map(|found| *found)
                    },
                })
            }
        }
    };
}

functions! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(Code, *mut *const c_char);
    error_string = "cuGetErrorString"(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    device_bus = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut Raw, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_set = "cuCtxSetCurrent"(Raw);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2"(*mut Address, usize);
    memory_free = "cuMemFree_v2"(Address);
    host_alloc = "cuMemHostAlloc"(*mut Raw, usize, c_uint);
    host_free = "cuMemFreeHost"(Raw);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Raw);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Raw);
    copy_on_device = "cuMemcpyDtoDAsync_v2"(Address, Address, usize, Raw);
    fill = "cuMemsetD8Async"(Address, u8, usize, Raw);
    stream_create = "cuStreamCreate"(*mut Raw, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Raw);
    stream_wait = "cuStreamSynchronize"(Raw);
    capture_begin = "cuStreamBeginCapture_v2"(Raw, c_uint);
    capture_end = "cuStreamEndCapture"(Raw, *mut Raw);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Raw, Raw, u64);
    graph_launch = "cuGraphLaunch"(Raw, Raw);
    graph_exec_destroy = "cuGraphExecDestroy"(Raw);
    graph_destroy = "cuGraphDestroy"(Raw);
    event_create = "cuEventCreate"(*mut Raw, c_uint);
    event_record = "cuEventRecord"(Raw, Raw);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Raw, Raw);
    event_destroy = "cuEventDestroy_v2"(Raw);
    module_load = "cuModuleLoadDataEx"(*mut Raw, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload = "cuModuleUnload"(Raw);
    module_function = "cuModuleGetFunction"(*mut Raw, Raw, *const c_char);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Raw);
    launch = "cuLaunchKernel"(
        Raw, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Raw, *mut *mut c_void, *mut *mut c_void,
    );
}

/// The driver library, ready for use.
pub struct Driver {
    pub(crate) functions: Functions,
    /// The version of CUDA that it has: 12080 is 12.8.
    version: i32,
    /// It stays loaded until the process ends: threads may have what only it knows how to clean up.
    _library: ManuallyDrop<Library>,
}

impl Driver {
    /// The driver library, or what stands in for it: the file `stand_in`, or what [`DRIVER_VARIABLE`] names. Each is loaded
    /// and started once for the process.
    ///
    /// # Errors
    /// If there is none, or it does not start: a machine without NVIDIA's driver, or without a card.
    pub fn load(stand_in: Option<&Path>) -> Result<Arc<Driver>> {
        static LOADED: Mutex<BTreeMap<Option<PathBuf>, Arc<Driver>>> = Mutex::new(BTreeMap::new());
        let named = stand_in.map(Path::to_path_buf);
        let named = named.or_else(|| std::env::var_os(DRIVER_VARIABLE).map(PathBuf::from));
        // every change is whole
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = loaded.get(&named) {
            return Ok(Arc::clone(driver));
        }
        let driver = Driver::start(named.clone())?;
        loaded.insert(named, Arc::clone(&driver));
        Ok(driver)
    }

    fn start(named: Option<PathBuf>) -> Result<Arc<Driver>> {
        let names = match &named {
            Some(path) => vec![path.clone()],
            None => NAMES.iter().map(PathBuf::from).collect(),
        };
        // SAFETY: loading runs the library's own start, which for NVIDIA's driver has no conditions.
        let load = |name: &PathBuf| unsafe { Library::new(name) };
        let mut tried = names.iter().map(load);
        let library = match tried.find_map(std::result::Result::ok) {
            Some(library) => library,
            None => {
                let why = match named {
                    Some(path) => format!("{} cannot be loaded", path.display()),
                    None => "NVIDIA's driver is not installed".into(),
                };
                return Err(Error::own("CUDA", why));
            }
        };
        // SAFETY: it goes by the driver's name, or was named by whoever vouches for it.
        let functions = unsafe { Functions::of(&library) };
        let functions = functions.map_err(|e| {
            Error::own("CUDA", format!("NVIDIA's driver is too old (410 or later is needed): {e}"))
        })?;
        let library = ManuallyDrop::new(library);
        let mut driver = Driver { functions, version: 0, _library: library };
        // SAFETY: no flags are defined.
        let started = unsafe { (driver.functions.init)(0) };
        driver.check("CUDA does not start", started)?;
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        let told = unsafe { (driver.functions.driver_version)(&raw mut version) };
        driver.check("the driver's version", told)?;
        driver.version = version;
        Ok(Arc::new(driver))
    }

    /// The version of CUDA that the driver has: 12080 is 12.8.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// If the driver cannot tell.
    pub fn count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let code = unsafe { (self.functions.device_count)(&raw mut count) };
        self.check("the number of CUDA devices", code)?;
        Ok(count)
    }

    /// An error where the driver's answer is one.
    pub(crate) fn check(&self, what: &str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(Error { what: what.to_owned(), code, why: self.told(code) })
    }

    /// What the driver says of a code.
    fn told(&self, code: Code) -> String {
        let text = |f: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: `text` outlives the call.
            let code = unsafe { f(code, &raw mut text) };
            // SAFETY: the driver gives a string of its own that ends with a zero and stays.
            let text = (code == 0 && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            text.map(|text| text.to_string_lossy().into_owned())
        };
        match (text(self.functions.error_string), text(self.functions.error_name)) {
            (Some(said), Some(name)) => format!("{said} ({name})"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => format!("error {code}"),
        }
    }
}

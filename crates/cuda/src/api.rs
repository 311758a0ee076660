//! [`Driver`]: the loaded driver library and the functions of it that this crate uses.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use crate::{Error, Result};

/// Environment variable: path of a library to load instead of NVIDIA's driver.
pub const DRIVER_VARIABLE: &str = "ROOFLIGHT_CUDA_DRIVER";

/// Names of the driver library, in the order in which they are tried.
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"];

/// Oldest supported version of NVIDIA's driver: the first one with CUDA 11.4, which added
/// `cuGraphInstantiateWithFlags`.
pub(crate) const LEAST_DRIVER: u32 = 470;

/// `CUresult`: 0, or an error code.
pub(crate) type Code = c_uint;
/// `CUdeviceptr`: an address in device memory.
pub(crate) type Address = u64;
/// Opaque handle of a context, a stream, an event, a module, a function or a graph.
pub(crate) type Raw = *mut c_void;

/// Declares [`Functions`] and the code that looks up its symbols.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ty),* $(,)?);)*) => {
        /// Driver functions that this crate calls.
        pub(crate) struct Functions {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Functions {
            /// Looks up all functions in a library.
            ///
            /// # Safety
            /// The library must be NVIDIA's driver, or export functions of the same names,
            /// signatures and semantics.
            unsafe fn load(library: &Library) -> std::result::Result<Functions, libloading::Error> {
                Ok(Functions {
                    $($name: {
                        let symbol = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the signature follows the driver API's reference; the caller
                        // vouches for the library.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> Code>(symbol)
                        };
                        *found?
                    },)*
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

/// The loaded and initialized driver library.
pub struct Driver {
    pub(crate) functions: Functions,
    /// CUDA version of the driver: 12080 is 12.8.
    version: i32,
    /// Never unloaded: threads may hold state that only the library can clean up.
    _library: ManuallyDrop<Library>,
}

impl Driver {
    /// Loads and initializes the driver library: the file `path` if it is given, else the file in
    /// the environment variable [`DRIVER_VARIABLE`] if it is set, else NVIDIA's driver. Each
    /// library is loaded once per process.
    ///
    /// # Errors
    /// If the library cannot be loaded, lacks a function or does not initialize, as on machines
    /// without NVIDIA's driver or without a card.
    pub fn load(path: Option<&Path>) -> Result<Arc<Driver>> {
        static LOADED: Mutex<BTreeMap<Option<PathBuf>, Arc<Driver>>> = Mutex::new(BTreeMap::new());
        let named = path.map(Path::to_path_buf);
        let named = named.or_else(|| {
            std::env::var_os(DRIVER_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
        });
        // a panic cannot leave the map half changed
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
        // SAFETY: loading runs the library's initializers; those of NVIDIA's driver have no
        // preconditions.
        let load = |name: &PathBuf| unsafe { Library::new(name) };
        let mut tried = names.iter().map(load);
        let library = match tried.find_map(std::result::Result::ok) {
            Some(library) => library,
            None => {
                let why = match named {
                    Some(path) => format!("{} cannot be loaded", path.display()),
                    None => "NVIDIA's driver is not installed".into(),
                };
                return Err(Error::new("cannot load the CUDA driver", why));
            }
        };
        // SAFETY: the library has the driver's file name, or the user chose it as a replacement.
        let functions = unsafe { Functions::load(&library) };
        let functions = functions.map_err(|e| {
            let why = format!("version {LEAST_DRIVER} or later is required: {e}");
            Error::new("NVIDIA's driver is too old", why)
        })?;
        let library = ManuallyDrop::new(library);
        let mut driver = Driver { functions, version: 0, _library: library };
        // SAFETY: the only argument is a flags value, which must be 0.
        let started = unsafe { (driver.functions.init)(0) };
        driver.check("cannot initialize CUDA", started)?;
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        let queried = unsafe { (driver.functions.driver_version)(&raw mut version) };
        driver.check("cannot query the version of the CUDA driver", queried)?;
        driver.version = version;
        Ok(Arc::new(driver))
    }

    /// CUDA version of the driver: 12080 is 12.8.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Number of devices.
    ///
    /// # Errors
    /// If the driver cannot enumerate the devices.
    pub fn count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let code = unsafe { (self.functions.device_count)(&raw mut count) };
        self.check("cannot count the CUDA devices", code)?;
        Ok(count)
    }

    /// Converts a driver result to an error of the operation `what`.
    pub(crate) fn check(&self, what: &str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(Error { what: what.to_owned(), code, why: self.describe(code) })
    }

    /// The driver's description and name of an error code.
    fn describe(&self, code: Code) -> String {
        let text = |f: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: `text` outlives the call.
            let code = unsafe { f(code, &raw mut text) };
            // SAFETY: the driver returns a static zero-terminated string.
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

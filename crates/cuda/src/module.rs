//! [`Module`]: kernels that the driver compiled from PTX. [`Function`]: one kernel of a module.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Arc;

use crate::api::Raw;
use crate::{Context, Driver, Error, Result};

/// Values of `CUjit_option`. Source: CUDA driver API reference.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;
/// Values of `CUfunction_attribute`.
const REGISTERS: c_int = 4;
const LOCAL_BYTES: c_int = 3;
/// Size of the buffer for the compiler's error log, in bytes.
const LOG_BYTES: usize = 4096;

/// Error texts of operations that fail in several places.
const LOAD_PTX: &str = "cannot compile PTX";
const FIND_KERNEL: &str = "cannot find a kernel";
const LAUNCH: &str = "cannot launch a kernel";

/// A compiled module, loaded into a context.
pub struct Module {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on modules are thread-safe.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads PTX.
    ///
    /// # Errors
    /// If the driver does not compile it. The error contains the compiler's log.
    pub fn load(context: &Arc<Context>, ptx: &str) -> Result<Arc<Module>> {
        let driver = context.current()?;
        let text = CString::new(ptx).map_err(|e| Error::new(LOAD_PTX, e.to_string()))?;
        let mut raw = std::ptr::null_mut();
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
        let load = driver.functions.module_load;
        // SAFETY: the text ends with a zero, there are two options with their values, and all of
        // them outlive the call.
        let code = unsafe {
            load(
                &raw mut raw,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        driver.check(LOAD_PTX, code).map_err(|mut error| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            let words: Vec<_> = log.split_whitespace().collect();
            if !words.is_empty() {
                error.why = format!("{}: {}", error.why, words.join(" "));
            }
            error
        })?;
        Ok(Arc::new(Module { context: Arc::clone(context), raw }))
    }

    /// Finds a kernel by its name.
    ///
    /// # Errors
    /// If the module has no kernel of that name, or `shape` has too many addresses.
    pub fn function(self: &Arc<Self>, name: &str, shape: Shape) -> Result<Function> {
        if shape.addresses > Shape::MOST_ADDRESSES {
            let (n, most) = (shape.addresses, Shape::MOST_ADDRESSES);
            let why = format!("expected at most {most} addresses, found {n}");
            return Err(Error::new(FIND_KERNEL, why));
        }
        let driver = self.context.current()?;
        let name = CString::new(name).map_err(|e| Error::new(FIND_KERNEL, e.to_string()))?;
        let mut raw = std::ptr::null_mut();
        let find = driver.functions.module_function;
        // SAFETY: `raw` outlives the call, the module is loaded, and the name ends with a zero.
        let code = unsafe { find(&raw mut raw, self.raw, name.as_ptr()) };
        driver.check(FIND_KERNEL, code)?;
        Ok(Function { module: Arc::clone(self), raw, shape })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: functions hold the module, so none of them is left.
            let _ = unsafe { (driver.functions.module_unload)(self.raw) };
        }
    }
}

/// A kernel of a loaded module.
pub struct Function {
    module: Arc<Module>,
    raw: Raw,
    shape: Shape,
}

// SAFETY: the driver's functions on functions are thread-safe.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Arguments of a launch. The first parameter of a kernel is a block of bytes by value; the others
/// are 64-bit device addresses.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Value of the first parameter. Bytes beyond its size are ignored.
    pub constants: &'a [u8],
    /// Values of the other parameters, in order. Addresses beyond their number are ignored.
    pub addresses: &'a [u64],
}

/// Parameters and block size of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size of the first parameter in bytes.
    pub constant_bytes: usize,
    /// Number of address parameters; at most [`Shape::MOST_ADDRESSES`].
    pub addresses: usize,
    /// Number of threads of a block in x, y and z.
    pub block: [u32; 3],
}

impl Shape {
    /// Maximum number of address parameters.
    pub const MOST_ADDRESSES: usize = 15;
}

impl Function {
    /// Number of registers and bytes of local memory per thread.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn resources(&self) -> Result<[i32; 2]> {
        let driver = self.module.context.current()?;
        let attribute = |number: c_int| {
            let mut value = 0;
            // SAFETY: `value` outlives the call.
            let code =
                unsafe { (driver.functions.function_attribute)(&raw mut value, number, self.raw) };
            driver.check("cannot query an attribute of a kernel", code).map(|()| value)
        };
        Ok([attribute(REGISTERS)?, attribute(LOCAL_BYTES)?])
    }

    /// Enqueues the kernel. `driver` has the module's context current, and `stream` belongs to it.
    ///
    /// # Errors
    /// If there are too few arguments or the driver rejects the launch.
    pub(crate) fn launch(&self, driver: &Driver, stream: Raw, launch: &Launch<'_>) -> Result<()> {
        let Launch { grid: [x, y, z], constants, addresses } = *launch;
        let Shape { constant_bytes, addresses: wanted, block } = self.shape;
        let [bx, by, bz] = block;
        if addresses.len() < wanted || constants.len() < constant_bytes {
            let why = format!(
                "expected {wanted} addresses and {constant_bytes} constant bytes, found {} and {}",
                addresses.len(),
                constants.len()
            );
            return Err(Error::new(LAUNCH, why));
        }
        let mut values = [std::ptr::null_mut(); 1 + Shape::MOST_ADDRESSES];
        values[0] = constants.as_ptr().cast_mut().cast::<c_void>();
        for (value, address) in values[1..].iter_mut().zip(addresses) {
            *value = std::ptr::from_ref(address).cast_mut().cast::<c_void>();
        }
        let none = std::ptr::null_mut();
        let run = driver.functions.launch;
        // SAFETY: there are at least as many bytes and addresses as the kernel has parameters, as
        // `shape` states, and the driver copies them before it returns. What the kernel accesses
        // is the caller's responsibility (see the crate's documentation).
        let code =
            unsafe { run(self.raw, x, y, z, bx, by, bz, 0, stream, values.as_mut_ptr(), none) };
        driver.check(LAUNCH, code)
    }
}

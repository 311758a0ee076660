//! [`Module`]: kernels that the driver made of PTX; [`Function`]: one of them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Arc;

use crate::api::{LaunchAttribute, LaunchConfig, Raw};
use crate::{Context, Driver, Error, Result};

/// Numbers of options, from the driver's documentation.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;
/// Numbers of attributes.
const REGISTERS: c_int = 4;
const LOCAL_BYTES: c_int = 3;
/// The attribute of a launch that may begin before what was enqueued before it has ended.
const OVERLAP: u32 = 6;
/// Bytes of what the driver may say of PTX that it does not take.
const LOG_BYTES: usize = 4096;

/// Kernels, ready to run.
pub struct Module {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on modules are thread-safe.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Have the driver make them of PTX.
    ///
    /// # Errors
    /// What its compiler says of the text.
    pub fn load(context: &Arc<Context>, ptx: &str) -> Result<Arc<Module>> {
        let driver = context.current()?;
        let text = CString::new(ptx).map_err(|e| Error::own("PTX", e.to_string()))?;
        let mut raw = std::ptr::null_mut();
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
        let load = driver.functions.module_load;
        // SAFETY: the text ends with a zero, there are two options with their values, and all outlive the call.
        let code = unsafe {
            load(
                &raw mut raw,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        driver.check("PTX", code).map_err(|mut error| {
            let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            let said: Vec<_> = said.split_whitespace().collect();
            if !said.is_empty() {
                error.why = format!("{}: {}", error.why, said.join(" "));
            }
            error
        })?;
        Ok(Arc::new(Module { context: Arc::clone(context), raw }))
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// If there is none of that name, or it takes too many addresses.
    pub fn function(self: &Arc<Self>, name: &str, shape: Shape) -> Result<Function> {
        if shape.addresses > Shape::MOST_ADDRESSES {
            return Err(Error::own("a kernel", format!("{} addresses", shape.addresses)));
        }
        let driver = self.context.current()?;
        let name = CString::new(name).map_err(|e| Error::own("a kernel", e.to_string()))?;
        let mut raw = std::ptr::null_mut();
        let find = driver.functions.module_function;
        // SAFETY: `raw` outlives the call, the module is there, and the name ends with a zero.
        let code = unsafe { find(&raw mut raw, self.raw, name.as_ptr()) };
        driver.check("a kernel", code)?;
        Ok(Function { module: Arc::clone(self), raw, shape })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: no function of it is left.
            let _ = unsafe { (driver.functions.module_unload)(self.raw) };
        }
    }
}

/// A kernel.
pub struct Function {
    module: Arc<Module>,
    raw: Raw,
    shape: Shape,
}

// SAFETY: the driver's functions on functions are thread-safe.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// How a kernel is run. Its first parameter is bytes by value, the others are addresses of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// What it is given by value; there may be more bytes than it takes.
    pub constants: &'a [u8],
    /// Addresses of what it reads and writes, in the order of its other parameters; there may be more than it takes.
    pub addresses: &'a [u64],
}

/// What a kernel takes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of its first parameter.
    pub constant_bytes: usize,
    /// How many addresses follow; at most [`Shape::MOST_ADDRESSES`].
    pub addresses: usize,
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Whether it waits by itself for what was enqueued before it, so that it may be started ahead of that time. Only for
    /// devices of compute capability 9 and later, and only if it says so with its first instruction.
    pub waits: bool,
}

impl Shape {
    /// Most addresses that a kernel takes.
    pub const MOST_ADDRESSES: usize = 15;
}

impl Function {
    /// Registers of a thread, and bytes of local memory that it has beside them.
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
            driver.check("an attribute of a kernel", code).map(|()| value)
        };
        Ok([attribute(REGISTERS)?, attribute(LOCAL_BYTES)?])
    }

    pub(crate) fn launch(&self, driver: &Driver, stream: Raw, launch: &Launch<'_>) -> Result<()> {
        let Launch { grid: [x, y, z], constants, addresses } = *launch;
        let Shape { constant_bytes, addresses: wanted, block, waits } = self.shape;
        let [bx, by, bz] = block;
        if addresses.len() < wanted || constants.len() < constant_bytes {
            let why = format!(
                "{} addresses and {} bytes, {wanted} and {constant_bytes} wanted",
                addresses.len(),
                constants.len()
            );
            return Err(Error::own("a kernel", why));
        }
        let mut values = [std::ptr::null_mut(); 1 + Shape::MOST_ADDRESSES];
        values[0] = constants.as_ptr().cast_mut().cast::<c_void>();
        for (value, address) in values[1..].iter_mut().zip(addresses) {
            *value = std::ptr::from_ref(address).cast_mut().cast::<c_void>();
        }
        let none = std::ptr::null_mut();
        if let Some(run) = driver.functions.launch_with.filter(|_| waits) {
            let overlap = LaunchAttribute { id: OVERLAP, pad: [0; 4], value: 1, rest: [0; 60] };
            let config = LaunchConfig {
                grid: [x, y, z],
                block,
                shared_bytes: 0,
                stream,
                attributes: &raw const overlap,
                n_attributes: 1,
            };
            // SAFETY: as below; the configuration outlives the call.
            let code = unsafe { run(&raw const config, self.raw, values.as_mut_ptr(), none) };
            return driver.check("a kernel", code);
        }
        let run = driver.functions.launch;
        // SAFETY: the kernel takes no more than there are bytes and addresses, which the driver copies before it returns. What a kernel does to the device's memory is no matter of the host's safety.
        let code =
            unsafe { run(self.raw, x, y, z, bx, by, bz, 0, stream, values.as_mut_ptr(), none) };
        driver.check("a kernel", code)
    }
}

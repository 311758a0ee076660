//! [`Context`]: a device, opened.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use crate::api::Raw;
use crate::{Driver, Result};

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Compute capability: `[8, 6]`.
    pub capability: [i32; 2],
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Whether it is built into the processor and has the machine's own memory.
    pub is_integrated: bool,
    /// Where it is on the machine's bus: `0000:01:00.0`.
    pub bus: Option<String>,
}

/// Numbers of attributes, from the driver's documentation.
const MULTIPROCESSORS: c_int = 16;
const INTEGRATED: c_int = 18;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// The primary context of a device. Kept as long as something of it is.
pub struct Context {
    driver: Arc<Driver>,
    device: c_int,
    raw: Raw,
}

// SAFETY: a context may be current in any thread, and in several at once; the driver's functions are thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl DeviceInfo {
    /// Of device `ordinal`.
    ///
    /// # Errors
    /// If there is none of that number.
    pub fn of(driver: &Driver, ordinal: i32) -> Result<DeviceInfo> {
        let device = device(driver, ordinal)?;
        let text = |f: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32| {
            let mut text = [0; 256];
            // SAFETY: the driver writes at most so many bytes, a zero at the end among them.
            let code = unsafe { f(text.as_mut_ptr(), text.len() as c_int, device) };
            driver.check("the name of a CUDA device", code)?;
            // SAFETY: it was filled with zeros, the last of which is there still.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            Ok(text.to_string_lossy().into_owned())
        };
        let attribute = |number: c_int| {
            let mut value = 0;
            // SAFETY: `value` outlives the call.
            let code =
                unsafe { (driver.functions.device_attribute)(&raw mut value, number, device) };
            driver.check("an attribute of a CUDA device", code).map(|()| value)
        };
        let mut memory = 0_usize;
        // SAFETY: `memory` outlives the call.
        let code = unsafe { (driver.functions.device_memory)(&raw mut memory, device) };
        driver.check("the memory of a CUDA device", code)?;
        Ok(DeviceInfo {
            name: text(driver.functions.device_name)?,
            memory: memory as u64,
            capability: [attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?],
            multiprocessors: attribute(MULTIPROCESSORS)?,
            is_integrated: attribute(INTEGRATED)? != 0,
            bus: text(driver.functions.device_bus).ok().map(|bus| bus.to_lowercase()),
        })
    }
}

fn device(driver: &Driver, ordinal: i32) -> Result<c_int> {
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    let code = unsafe { (driver.functions.device_get)(&raw mut device, ordinal) };
    driver.check("a CUDA device", code)?;
    Ok(device)
}

impl Context {
    /// Open device `ordinal`.
    ///
    /// # Errors
    /// If there is none of that number, or it does not open.
    pub fn open(driver: &Arc<Driver>, ordinal: i32) -> Result<Arc<Context>> {
        let device = device(driver, ordinal)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; what is retained is released when this is dropped.
        let code = unsafe { (driver.functions.context_retain)(&raw mut raw, device) };
        driver.check("a CUDA device does not open", code)?;
        Ok(Arc::new(Context { driver: Arc::clone(driver), device, raw }))
    }

    /// The driver, with this context current in this thread.
    pub(crate) fn current(&self) -> Result<&Driver> {
        // SAFETY: the context is retained.
        let code = unsafe { (self.driver.functions.context_set)(self.raw) };
        self.driver.check("a CUDA context", code)?;
        Ok(&self.driver)
    }

    /// Bytes of the device's memory that are free, and all.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn memory(&self) -> Result<[u64; 2]> {
        let driver = self.current()?;
        let (mut free, mut all) = (0_usize, 0_usize);
        // SAFETY: both outlive the call.
        let code = unsafe { (driver.functions.memory_info)(&raw mut free, &raw mut all) };
        driver.check("the memory of a CUDA device", code)?;
        Ok([free as u64, all as u64])
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. What fails now concerns nobody.
        let _ = unsafe { (self.driver.functions.context_release)(self.device) };
    }
}

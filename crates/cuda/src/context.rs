//! [`Context`]: an open device. [`DeviceInfo`]: properties of a device.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use crate::api::Raw;
use crate::{Driver, Result};

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Size of the device memory in bytes.
    pub memory: u64,
    /// Compute capability, major and minor: `[8, 6]`.
    pub capability: [i32; 2],
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// Whether the device is integrated and uses the machine's main memory.
    pub is_integrated: bool,
    /// PCI address: `0000:01:00.0`; `None` if the driver does not report it.
    pub bus: Option<String>,
}

/// Values of `CUdevice_attribute`. Source: CUDA driver API reference.
const MULTIPROCESSORS: c_int = 16;
const INTEGRATED: c_int = 18;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// The primary context of a device. Objects of the context keep it alive.
pub struct Context {
    driver: Arc<Driver>,
    device: c_int,
    raw: Raw,
}

// SAFETY: a context may be current in several threads; the driver's functions are thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl DeviceInfo {
    /// Queries device `ordinal`.
    ///
    /// # Errors
    /// If the device does not exist or the driver cannot query it.
    pub fn of(driver: &Driver, ordinal: i32) -> Result<DeviceInfo> {
        let device = device(driver, ordinal)?;
        let text = |f: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32| {
            let mut text = [0; 256];
            // SAFETY: the driver writes at most `text.len()` bytes, including the terminating zero.
            let code = unsafe { f(text.as_mut_ptr(), text.len() as c_int, device) };
            driver.check("cannot query the name of a CUDA device", code)?;
            // SAFETY: the buffer was zeroed, and the driver ends the text with a zero.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            Ok(text.to_string_lossy().into_owned())
        };
        let attribute = |number: c_int| {
            let mut value = 0;
            // SAFETY: `value` outlives the call.
            let code =
                unsafe { (driver.functions.device_attribute)(&raw mut value, number, device) };
            driver.check("cannot query an attribute of a CUDA device", code).map(|()| value)
        };
        let mut memory = 0_usize;
        // SAFETY: `memory` outlives the call.
        let code = unsafe { (driver.functions.device_memory)(&raw mut memory, device) };
        driver.check("cannot query the memory of a CUDA device", code)?;
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
    driver.check("cannot find a CUDA device", code)?;
    Ok(device)
}

impl Context {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// If the device does not exist or cannot be opened.
    pub fn open(driver: &Arc<Driver>, ordinal: i32) -> Result<Arc<Context>> {
        let device = device(driver, ordinal)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; `drop` releases the context.
        let code = unsafe { (driver.functions.context_retain)(&raw mut raw, device) };
        driver.check("cannot open a CUDA device", code)?;
        Ok(Arc::new(Context { driver: Arc::clone(driver), device, raw }))
    }

    /// Makes this context current in the calling thread and returns the driver.
    pub(crate) fn current(&self) -> Result<&Driver> {
        // SAFETY: the context is retained.
        let code = unsafe { (self.driver.functions.context_set)(self.raw) };
        self.driver.check("cannot use a CUDA context", code)?;
        Ok(&self.driver)
    }

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn memory(&self) -> Result<[u64; 2]> {
        let driver = self.current()?;
        let (mut free, mut all) = (0_usize, 0_usize);
        // SAFETY: both outlive the call.
        let code = unsafe { (driver.functions.memory_info)(&raw mut free, &raw mut all) };
        driver.check("cannot query the memory of a CUDA device", code)?;
        Ok([free as u64, all as u64])
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `open` retained the context once. Errors have no consequence here.
        let _ = unsafe { (self.driver.functions.context_release)(self.device) };
    }
}

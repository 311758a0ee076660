//! [`DeviceMemory`] and [`HostMemory`]: memory of a device, and memory of the host that a device copies from and to.

use std::sync::Arc;

use crate::api::{Address, Raw};
use crate::{Context, Error, Result};

/// Memory of a device. What is in it is not defined before something is written.
pub struct DeviceMemory {
    context: Arc<Context>,
    address: Address,
    bytes: u64,
}

impl DeviceMemory {
    /// So many bytes.
    ///
    /// # Errors
    /// [`Error::is_out_of_memory`] if there is no room for them.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<DeviceMemory> {
        let driver = context.current()?;
        let mut address = 0;
        let size = usize::try_from(bytes.max(1));
        let size = size.map_err(|e| Error::own("memory of a CUDA device", e.to_string()))?;
        // SAFETY: `address` outlives the call; the memory is freed when this is dropped.
        let code = unsafe { (driver.functions.memory_alloc)(&raw mut address, size) };
        driver.check("memory of a CUDA device", code)?;
        Ok(DeviceMemory { context: Arc::clone(context), address, bytes })
    }

    /// Where it begins, as kernels know it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that it has.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// The address of byte `at`, from which there are `bytes`.
    pub(crate) fn span(&self, at: u64, bytes: u64) -> Result<Address> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let error = || {
            let why = format!("{bytes} bytes at {at} of a buffer of {}", self.bytes);
            Error::own("memory of a CUDA device", why)
        };
        fits.then_some(self.address + at).ok_or_else(error)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: it was allocated here, and nobody has its address any more but kernels that were launched before, for
            // which the driver waits.
            let _ = unsafe { (driver.functions.memory_free)(self.address) };
        }
    }
}

/// Memory of the host that stays where it is: devices copy from it and to it while the host does something else.
pub struct HostMemory {
    context: Arc<Context>,
    raw: Raw,
    bytes: usize,
}

// SAFETY: it is plain memory; who shares it is told by the borrows of its methods.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// So many bytes, zeros.
    ///
    /// # Errors
    /// [`Error::is_out_of_memory`] if there is no room for them.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<HostMemory> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; the memory is freed when this is dropped.
        let code = unsafe { (driver.functions.host_alloc)(&raw mut raw, bytes.max(1), 0) };
        driver.check("pinned memory of the host", code)?;
        let memory = HostMemory { context: Arc::clone(context), raw, bytes };
        // SAFETY: so many bytes were allocated.
        unsafe { memory.raw.cast::<u8>().write_bytes(0, bytes) };
        Ok(memory)
    }

    /// Bytes that it has.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Put bytes where a device will read them. No device may be reading there: see [`crate::Stream::wait`].
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {at}", bytes.len());
        // SAFETY: they fit, and both are valid for so many bytes; pinned memory is never part of a Rust slice that others
        // hold, for no method gives one out.
        let to = unsafe { self.raw.cast::<u8>().add(at) };
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Take bytes that a device wrote, after [`crate::Stream::wait`].
    ///
    /// # Panics
    /// If there are not so many.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {at}", bytes.len());
        // SAFETY: there are so many, written at the latest when it was made.
        let from = unsafe { self.raw.cast::<u8>().add(at) };
        // SAFETY: as above, and `bytes` is a slice of the caller's own.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Where byte `at` is, from which there are `bytes`.
    pub(crate) fn span(&self, at: u64, bytes: u64) -> Result<*mut u8> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes as u64);
        if !fits {
            let why = format!("{bytes} bytes at {at} of a buffer of {}", self.bytes);
            return Err(Error::own("pinned memory of the host", why));
        }
        // SAFETY: `at` is within it.
        Ok(unsafe { self.raw.cast::<u8>().add(at as usize) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: it was allocated here; copies that were enqueued before are waited for by the driver.
            let _ = unsafe { (driver.functions.host_free)(self.raw) };
        }
    }
}

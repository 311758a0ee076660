//! [`DeviceMemory`]: memory of a device. [`HostMemory`]: page-locked memory of the host.

use std::sync::Arc;

use crate::api::{Address, Raw};
use crate::{Context, Error, Result};

/// Error text of a failed allocation.
const ALLOCATE_DEVICE: &str = "cannot allocate CUDA device memory";

/// An allocation of device memory. Its initial content is undefined.
pub struct DeviceMemory {
    context: Arc<Context>,
    address: Address,
    bytes: u64,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::is_out_of_memory`] if the device has not enough free memory.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<DeviceMemory> {
        let driver = context.current()?;
        let mut address = 0;
        let size = usize::try_from(bytes.max(1));
        let size = size.map_err(|e| Error::new(ALLOCATE_DEVICE, e.to_string()))?;
        // SAFETY: `address` outlives the call; the memory is freed when this is dropped.
        let code = unsafe { (driver.functions.memory_alloc)(&raw mut address, size) };
        driver.check(ALLOCATE_DEVICE, code)?;
        Ok(DeviceMemory { context: Arc::clone(context), address, bytes })
    }

    /// Device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// Device address of the range of `bytes` bytes at offset `at`, checked against the size.
    pub(crate) fn span(&self, at: u64, bytes: u64) -> Result<Address> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let error = || {
            let why = format!("{bytes} bytes at offset {at} of a buffer of {} bytes", self.bytes);
            Error::new("access to CUDA device memory out of bounds", why)
        };
        fits.then_some(self.address + at).ok_or_else(error)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: allocated by `new`, and this was the last reference. The driver waits for
            // kernels that were launched before and use the memory.
            let _ = unsafe { (driver.functions.memory_free)(self.address) };
        }
    }
}

/// An allocation of page-locked host memory. Devices copy from and to it asynchronously.
pub struct HostMemory {
    context: Arc<Context>,
    raw: Raw,
    bytes: usize,
}

// SAFETY: plain memory without thread affinity.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// Allocates `bytes` bytes, filled with zeros.
    ///
    /// # Errors
    /// [`Error::is_out_of_memory`] if the system cannot lock that much memory.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<HostMemory> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; the memory is freed when this is dropped.
        let code = unsafe { (driver.functions.host_alloc)(&raw mut raw, bytes.max(1), 0) };
        driver.check("cannot allocate page-locked host memory", code)?;
        let memory = HostMemory { context: Arc::clone(context), raw, bytes };
        // SAFETY: `bytes` bytes were allocated at `raw`.
        unsafe { memory.raw.cast::<u8>().write_bytes(0, bytes) };
        Ok(memory)
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Writes `bytes` at offset `at`. No enqueued copy may use this range: see
    /// [`crate::Stream::wait`].
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {at}", bytes.len());
        // SAFETY: the range was checked above. No method hands out a reference to this memory, so
        // `bytes` cannot overlap it.
        let to = unsafe { self.raw.cast::<u8>().add(at) };
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads `bytes.len()` bytes at offset `at`. Copies from the device are visible after
    /// [`crate::Stream::wait`].
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {at}", bytes.len());
        // SAFETY: the range was checked above, and `new` initialized all bytes.
        let from = unsafe { self.raw.cast::<u8>().add(at) };
        // SAFETY: as above, and `bytes` is an exclusive reference to other memory.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Pointer to the range of `bytes` bytes at offset `at`, checked against the size.
    pub(crate) fn span(&self, at: u64, bytes: u64) -> Result<*mut u8> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes as u64);
        if !fits {
            let why = format!("{bytes} bytes at offset {at} of a buffer of {} bytes", self.bytes);
            return Err(Error::new("access to page-locked host memory out of bounds", why));
        }
        // SAFETY: `at` was checked against the size above.
        Ok(unsafe { self.raw.cast::<u8>().add(at as usize) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: allocated by `new`; the driver waits for copies that were enqueued before.
            let _ = unsafe { (driver.functions.host_free)(self.raw) };
        }
    }
}

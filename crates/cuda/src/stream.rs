//! [`Stream`]: a queue of work for a device. [`Event`]: a point in a stream.

use std::sync::Arc;

use crate::api::Raw;
use crate::{Context, DeviceMemory, Function, Graph, HostMemory, Launch, Result};

/// `CU_STREAM_NON_BLOCKING`: no synchronization with the default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls of other threads cannot invalidate a capture.
const THREAD_LOCAL: u32 = 1;

/// Ends the capture of a stream when it is dropped by a panic.
struct Capturing<'a>(&'a Stream);

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        let _ = self.0.end_capture();
    }
}

/// A queue of work that a device executes in order. Only [`Stream::wait`] blocks.
pub struct Stream {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on streams are thread-safe.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn new(context: &Arc<Context>) -> Result<Stream> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; `drop` destroys the stream.
        let code = unsafe { (driver.functions.stream_create)(&raw mut raw, NON_BLOCKING) };
        driver.check("cannot create a CUDA stream", code)?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    /// Blocks until all enqueued work is complete.
    ///
    /// # Errors
    /// If any work since the last call has failed on the device.
    pub fn wait(&self) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: `self` owns the stream.
        let code = unsafe { (driver.functions.stream_wait)(self.raw) };
        driver.check("work on the CUDA device failed", code)
    }

    /// Enqueues a copy of `bytes` bytes from the host to the device. Each side is a buffer and an
    /// offset in bytes. The source must not change before [`wait`](Self::wait).
    ///
    /// # Errors
    /// If a range is out of bounds or the device is lost.
    pub fn to_device(
        &self,
        (from, from_at): (&HostMemory, u64),
        (to, to_at): (&DeviceMemory, u64),
        bytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.span(from_at, bytes)?, to.span(to_at, bytes)?);
        let driver = self.context.current()?;
        let copy = driver.functions.copy_to_device;
        // SAFETY: `span` checked both ranges, and page-locked memory is freed only after the copy.
        let code = unsafe { copy(to, from.cast(), bytes as usize, self.raw) };
        driver.check("cannot copy to the CUDA device", code)
    }

    /// Enqueues a copy of `bytes` bytes from the device to the host. The bytes are visible after
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn to_host(
        &self,
        (from, from_at): (&DeviceMemory, u64),
        (to, to_at): (&HostMemory, u64),
        bytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.span(from_at, bytes)?, to.span(to_at, bytes)?);
        let driver = self.context.current()?;
        let copy = driver.functions.copy_to_host;
        // SAFETY: as above.
        let code = unsafe { copy(to.cast(), from, bytes as usize, self.raw) };
        driver.check("cannot copy from the CUDA device", code)
    }

    /// Enqueues a copy of `bytes` bytes within device memory.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn on_device(
        &self,
        (from, from_at): (&DeviceMemory, u64),
        (to, to_at): (&DeviceMemory, u64),
        bytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.span(from_at, bytes)?, to.span(to_at, bytes)?);
        let driver = self.context.current()?;
        // SAFETY: `span` checked both ranges.
        let code = unsafe { (driver.functions.copy_on_device)(to, from, bytes as usize, self.raw) };
        driver.check("cannot copy on the CUDA device", code)
    }

    /// Enqueues a fill of `bytes` bytes at offset `at` with zeros.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn clear(&self, memory: &DeviceMemory, at: u64, bytes: u64) -> Result<()> {
        let to = memory.span(at, bytes)?;
        let driver = self.context.current()?;
        // SAFETY: `span` checked the range.
        let code = unsafe { (driver.functions.fill)(to, 0, bytes as usize, self.raw) };
        driver.check("cannot clear CUDA device memory", code)
    }

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// If arguments are missing, the grid exceeds the limits of the device, or the device is lost.
    pub fn launch(&self, function: &Function, launch: &Launch<'_>) -> Result<()> {
        let driver = self.context.current()?;
        function.launch(driver, self.raw, launch)
    }

    /// Enqueues all work of a graph.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: the caller holds the graph, and it belongs to this context.
        let code = unsafe { (driver.functions.graph_launch)(graph.raw(), self.raw) };
        driver.check("cannot launch a CUDA graph", code)
    }

    /// Records the work that `f` enqueues in this stream as a graph, without executing it.
    ///
    /// # Errors
    /// An error of `f`, or if `f` calls an operation that cannot be captured.
    pub fn capture(&self, f: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let driver = self.context.current()?;
        // SAFETY: `self` owns the stream.
        let code = unsafe { (driver.functions.capture_begin)(self.raw, THREAD_LOCAL) };
        driver.check("cannot begin to capture a CUDA graph", code)?;
        let capturing = Capturing(self);
        let done = f(self);
        // the guard ends the capture also if `f` panics
        std::mem::forget(capturing);
        let ended = self.end_capture();
        match (done, ended) {
            (Ok(()), Ok(graph)) => Graph::instantiate(&self.context, graph),
            (Err(error), ended) => {
                if let Ok(graph) = ended {
                    // SAFETY: the capture created the graph, which has no other reference.
                    let _ = unsafe { (driver.functions.graph_destroy)(graph) };
                }
                Err(error)
            }
            (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Ends a capture and returns what was captured.
    fn end_capture(&self) -> Result<Raw> {
        let driver = self.context.current()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: `graph` outlives the call.
        let code = unsafe { (driver.functions.capture_end)(self.raw, &raw mut graph) };
        driver.check("cannot capture a CUDA graph", code)?;
        Ok(graph)
    }

    /// Enqueues the recording of an event: the device sets it when all earlier work is complete.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn record(&self, event: &Event) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: the caller holds both, and they belong to the same context.
        let code = unsafe { (driver.functions.event_record)(event.raw, self.raw) };
        driver.check("cannot record a CUDA event", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: this was the last reference; the driver lets enqueued work finish.
            let _ = unsafe { (driver.functions.stream_destroy)(self.raw) };
        }
    }
}

/// A point in a stream, with the time at which the device reached it.
pub struct Event {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on events are thread-safe.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that is not recorded yet.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn new(context: &Arc<Context>) -> Result<Event> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; `drop` destroys the event.
        let code = unsafe { (driver.functions.event_create)(&raw mut raw, 0) };
        driver.check("cannot create a CUDA event", code)?;
        Ok(Event { context: Arc::clone(context), raw })
    }

    /// Nanoseconds between an earlier event and this one. The device must have reached both.
    ///
    /// # Errors
    /// If one of them is not recorded or not reached.
    pub fn since(&self, earlier: &Event) -> Result<u64> {
        let driver = self.context.current()?;
        let mut milliseconds = 0.0;
        let elapsed = driver.functions.event_elapsed;
        // SAFETY: `milliseconds` outlives the call, and the caller holds both events.
        let code = unsafe { elapsed(&raw mut milliseconds, earlier.raw, self.raw) };
        driver.check("cannot query the time between CUDA events", code)?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: this was the last reference.
            let _ = unsafe { (driver.functions.event_destroy)(self.raw) };
        }
    }
}

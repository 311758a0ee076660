//! [`Stream`]: what a device does one after another; [`Event`]: a moment in it.

use std::sync::Arc;

use crate::api::Raw;
use crate::{Context, DeviceMemory, Function, Graph, HostMemory, Launch, Result};

/// Does not wait for the stream that every context has.
const NON_BLOCKING: u32 = 1;
/// Captures are told of errors of this thread alone.
const THREAD_LOCAL: u32 = 1;

/// Work of a device that is done in order. Nothing here waits but [`Stream::wait`].
pub struct Stream {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on streams are thread-safe.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new one.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn new(context: &Arc<Context>) -> Result<Stream> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; the stream is destroyed when this is dropped.
        let code = unsafe { (driver.functions.stream_create)(&raw mut raw, NON_BLOCKING) };
        driver.check("a CUDA stream", code)?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    /// Wait until all that was enqueued is done.
    ///
    /// # Errors
    /// What went wrong on the device since the last call, too.
    pub fn wait(&self) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: the stream is there.
        let code = unsafe { (driver.functions.stream_wait)(self.raw) };
        driver.check("the device", code)
    }

    /// Copy to a device. The host's bytes must stay as they are until [`wait`](Self::wait).
    ///
    /// # Errors
    /// If there are not so many bytes, or the device is lost.
    pub fn to_device(
        &self,
        (from, from_at): (&HostMemory, u64),
        (to, to_at): (&DeviceMemory, u64),
        bytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.span(from_at, bytes)?, to.span(to_at, bytes)?);
        let driver = self.context.current()?;
        let copy = driver.functions.copy_to_device;
        // SAFETY: both have so many bytes, and pinned memory is freed only after the copy.
        let code = unsafe { copy(to, from.cast(), bytes as usize, self.raw) };
        driver.check("a copy to the device", code)
    }

    /// Copy to the host, where the bytes are after [`wait`](Self::wait).
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
        driver.check("a copy from the device", code)
    }

    /// Copy from one place of a device to another.
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
        // SAFETY: both have so many bytes.
        let code = unsafe { (driver.functions.copy_on_device)(to, from, bytes as usize, self.raw) };
        driver.check("a copy on the device", code)
    }

    /// Make bytes of a device zeros.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn clear(&self, memory: &DeviceMemory, at: u64, bytes: u64) -> Result<()> {
        let to = memory.span(at, bytes)?;
        let driver = self.context.current()?;
        // SAFETY: there are so many bytes.
        let code = unsafe { (driver.functions.fill)(to, 0, bytes as usize, self.raw) };
        driver.check("memory of the device made zeros", code)
    }

    /// Run a kernel.
    ///
    /// # Errors
    /// If it has other parameters, the grid is beyond what the device takes, or the device is lost.
    pub fn launch(&self, function: &Function, launch: &Launch<'_>) -> Result<()> {
        let driver = self.context.current()?;
        function.launch(driver, self.raw, launch)
    }

    /// Run all that a graph holds.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: the graph is there, and of the same context.
        let code = unsafe { (driver.functions.graph_launch)(graph.raw(), self.raw) };
        driver.check("a CUDA graph", code)
    }

    /// What `f` enqueues here, as a graph; nothing of it runs.
    ///
    /// # Errors
    /// What `f` finds wrong; if it does something that no graph can hold.
    pub fn capture(&self, f: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let driver = self.context.current()?;
        // SAFETY: the stream is there.
        let code = unsafe { (driver.functions.capture_begin)(self.raw, THREAD_LOCAL) };
        driver.check("a CUDA graph is begun", code)?;
        let done = f(self);
        let mut graph = std::ptr::null_mut();
        // SAFETY: `graph` outlives the call.
        let code = unsafe { (driver.functions.capture_end)(self.raw, &raw mut graph) };
        let ended = driver.check("a CUDA graph is ended", code);
        if (done.is_err() || ended.is_err()) && !graph.is_null() {
            // SAFETY: it was made just now, and nobody has it.
            let _ = unsafe { (driver.functions.graph_destroy)(graph) };
        }
        done.and(ended)?;
        Graph::of(&self.context, graph)
    }

    /// Note the moment in which all before it is done.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn record(&self, event: &Event) -> Result<()> {
        let driver = self.context.current()?;
        // SAFETY: both are there, and of the same context.
        let code = unsafe { (driver.functions.event_record)(event.raw, self.raw) };
        driver.check("a CUDA event", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: nobody has it any more; the driver lets what was enqueued end.
            let _ = unsafe { (driver.functions.stream_destroy)(self.raw) };
        }
    }
}

/// A moment in a stream.
pub struct Event {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on events are thread-safe.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// One that nothing was recorded for.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn new(context: &Arc<Context>) -> Result<Event> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call; the event is destroyed when this is dropped.
        let code = unsafe { (driver.functions.event_create)(&raw mut raw, 0) };
        driver.check("a CUDA event", code)?;
        Ok(Event { context: Arc::clone(context), raw })
    }

    /// Nanoseconds from an earlier one, after both have come.
    ///
    /// # Errors
    /// If one has not.
    pub fn since(&self, earlier: &Event) -> Result<u64> {
        let driver = self.context.current()?;
        let mut milliseconds = 0.0;
        let elapsed = driver.functions.event_elapsed;
        // SAFETY: `milliseconds` outlives the call, and both events are there.
        let code = unsafe { elapsed(&raw mut milliseconds, earlier.raw, self.raw) };
        driver.check("the time between CUDA events", code)?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: nobody has it any more.
            let _ = unsafe { (driver.functions.event_destroy)(self.raw) };
        }
    }
}

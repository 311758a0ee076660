//! [`Gpu`]: an open device: its [`Backend`], limits, compiled kernels, kernel shapes and counters.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use program::{Error, Result};

use crate::backend::{
    Backend, Binding, Buffer, Command, DeviceFacts, Handle, Ticket, Usage, Work, Write,
};
use crate::kernels::{Abilities, Shader, ShaderKernel, Shapes};
use crate::timing::Stamps;

/// An open device. All models that are loaded on it share it.
pub(crate) struct Gpu {
    backend: Box<dyn Backend>,
    facts: DeviceFacts,
    kernels: Mutex<HashMap<Shader, Handle>>,
    /// Kernel shapes for models that are loaded from now on.
    shapes: Mutex<Shapes>,
    pub(crate) counts: DeviceCounters,
}

/// Counters since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    pub(crate) submissions: AtomicU64,
    pub(crate) replays: AtomicU64,
    pub(crate) readbacks: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    /// Nanoseconds spent recording submissions.
    pub(crate) encoding: AtomicU64,
}

impl DeviceCounters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Bytes per write of an upload. Bounds the staging memory, because each write is copied once more.
const PIECE: usize = 16 << 20;

impl Gpu {
    /// Wraps a back end. `most_bytes` limits the size of buffers that kernels access, in addition
    /// to the device's own limit.
    pub(crate) fn new(backend: Box<dyn Backend>, most_bytes: Option<u64>) -> Gpu {
        let mut facts = backend.facts().clone();
        facts.most_seen = facts.most_seen.min(most_bytes.unwrap_or(u64::MAX));
        let (kernels, shapes, counts) =
            (Mutex::default(), Mutex::default(), DeviceCounters::default());
        Gpu { backend, facts, kernels, shapes, counts }
    }

    /// Properties of the device.
    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Whether the device is emulated on the processor.
    pub(crate) fn is_software(&self) -> bool {
        self.facts.is_software
    }

    /// Positions at which the device can write timestamps; `None` if it cannot.
    pub(crate) fn stamps(&self) -> Option<Stamps> {
        self.facts.stamps
    }

    /// Nanoseconds per timestamp tick.
    pub(crate) fn tick(&self) -> f32 {
        self.facts.tick
    }

    /// Optional features that kernels may use.
    pub(crate) fn able(&self) -> Abilities {
        self.facts.able
    }

    /// Overrides the optional features.
    #[cfg(test)]
    pub(crate) fn set_able(&mut self, able: Abilities) {
        self.facts.able = able;
    }

    /// Overrides the positions of timestamps.
    #[cfg(test)]
    pub(crate) fn limit_stamps(&mut self, stamps: Option<Stamps>) {
        self.facts.stamps = stamps;
    }

    /// Overrides the maximum size of a buffer, in bytes.
    #[cfg(test)]
    pub(crate) fn limit_buffers(&mut self, bytes: u64) {
        self.facts.most_buffer = bytes;
    }

    /// Maximum size in bytes of a buffer that kernels access, rounded down to a multiple of 1024.
    pub(crate) fn most_bytes(&self) -> u64 {
        // a multiple of the size of every element type
        self.facts.most_seen / 1024 * 1024
    }

    /// Kernel shapes for models that are loaded from now on.
    pub(crate) fn shapes(&self) -> Shapes {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the kernel shapes for models that are loaded from now on.
    pub(crate) fn set_shapes(&self, shapes: Shapes) {
        *self.shapes.lock().unwrap_or_else(PoisonError::into_inner) = shapes;
    }

    /// Checks for errors that occurred outside a call, such as a lost device.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has failed since it was opened.
    pub(crate) fn check(&self) -> Result<()> {
        self.backend.check()
    }

    /// An [`Error::Device`] that names this device.
    pub(crate) fn error(&self, problem: &str) -> Error {
        Error::Device { problem: format!("{}: {problem}", self.facts.name) }
    }

    /// Allocates a buffer of at least `bytes` bytes. The content is zero, except for
    /// [`Usage::Results`].
    ///
    /// # Errors
    /// [`Error::Memory`] if the buffer is too large or memory is exhausted, [`Error::Device`] if
    /// the device fails.
    pub(crate) fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Buffer> {
        let size = bytes.max(16).next_multiple_of(16);
        if size > self.facts.most_buffer {
            return Err(Error::Memory { what, bytes });
        }
        Ok(Buffer::new(self.backend.buffer(what, size, usage)?, size))
    }

    /// Allocates a buffer that kernels read and fills it with `words`.
    pub(crate) fn upload(&self, what: &'static str, words: &[u32]) -> Result<Buffer> {
        let to = self.buffer(what, 4 * words.len() as u64, Usage::Storage)?;
        for (i, bytes) in bytemuck::cast_slice(words).chunks(PIECE).enumerate() {
            self.write(what, &[Write { to: &to, at: (i * PIECE) as u64, bytes }])?;
        }
        Ok(to)
    }

    /// Writes to buffers; the next submission sees the new content.
    pub(crate) fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()> {
        self.backend.write(what, writes)
    }

    /// The kernel of a shader, compiled on first use.
    pub(crate) fn kernel(&self, shader: &Shader) -> Result<Handle> {
        let known = self.kernels().get(shader).cloned();
        if let Some(made) = known {
            return Ok(made);
        }
        // compiled without the lock, so that other threads can compile at the same time
        let made = self.backend.kernel(shader)?;
        Ok(self.kernels().entry(shader.clone()).or_insert(made).clone())
    }

    /// Compiles kernels on all processor cores, because drivers compile slowly. Errors are ignored
    /// here; the first use of the kernel reports them.
    pub(crate) fn make_kernels(&self, shaders: &[Shader]) {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(shaders.len()) {
                scope.spawn(|| {
                    while let Some(shader) = shaders.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let _ = self.kernel(shader);
                    }
                });
            }
        });
    }

    /// Empties the cache of compiled kernels. Kernels that a model uses stay alive.
    pub(crate) fn forget_kernels(&self) {
        self.kernels().clear();
    }

    fn kernels(&self) -> MutexGuard<'_, HashMap<Shader, Handle>> {
        // a panic cannot leave the map half changed
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the bindings of several kernels.
    pub(crate) fn bindings(
        &self,
        of: &[(&'static ShaderKernel, Vec<Binding<'_>>)],
    ) -> Result<Vec<Handle>> {
        self.backend.bindings(of)
    }

    /// Creates a clock that can time `dispatches` dispatches; `None` if the device cannot time that
    /// many.
    pub(crate) fn clock(&self, stamps: Stamps, dispatches: usize) -> Result<Option<Handle>> {
        self.backend.clock(stamps, dispatches)
    }

    /// Submits work without waiting for it, and counts the recording time.
    pub(crate) fn submit(&self, work: &Work<'_>) -> Result<Ticket> {
        let ticket = self.backend.submit(work)?;
        DeviceCounters::add(&self.counts.encoding, ticket.recording.as_nanos() as u64);
        DeviceCounters::add(&self.counts.replays, u64::from(ticket.replayed));
        Ok(ticket)
    }

    /// Runs commands and waits until they are complete, so that memory only they used can be freed.
    pub(crate) fn run(&self, what: &'static str, commands: &[Command<'_>]) -> Result<()> {
        let ticket = self.backend.submit(&Work { what, writes: &[], commands, stamping: None })?;
        self.backend.wait(&ticket)
    }

    /// Waits for a submission, then reads the first `bytes` bytes of its results, if any.
    pub(crate) fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>> {
        if bytes == 0 {
            return self.backend.wait(ticket).map(|()| Vec::new());
        }
        let found = self.backend.read(ticket, from, bytes)?;
        DeviceCounters::add(&self.counts.readbacks, 1);
        DeviceCounters::add(&self.counts.bytes_read, bytes);
        Ok(found)
    }

    /// Bytes of device memory in use, if the back end can tell.
    pub(crate) fn allocated(&self) -> Option<u64> {
        self.backend.allocated()
    }
}

/// Index of the first device whose line contains `wanted`, ignoring case; without `wanted`, of the first device.
///
/// # Errors
/// [`Error::Device`]: `none` if there is no device, or that no `what` has such a name.
pub(crate) fn find_device(
    lines: &[String],
    wanted: Option<&str>,
    what: &str,
    none: &str,
) -> Result<usize> {
    let fits = |line: &String| {
        wanted.is_none_or(|wanted| line.to_lowercase().contains(&wanted.to_lowercase()))
    };
    lines.iter().position(fits).ok_or_else(|| {
        let problem = match wanted {
            Some(wanted) if !lines.is_empty() => {
                format!("no {what} is called `{wanted}`; there are: {}", lines.join("; "))
            }
            _ => none.to_owned(),
        };
        Error::Device { problem }
    })
}

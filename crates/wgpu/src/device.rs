//! [`Gpu`]: a device behind its [`Backend`], and what is kept beside it: bounds, kernels that were made, shapes, counters.

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

/// A device, ready for use. Shared by the models that are loaded on it.
pub(crate) struct Gpu {
    backend: Box<dyn Backend>,
    facts: DeviceFacts,
    kernels: Mutex<HashMap<Shader, Handle>>,
    /// Of the models that are loaded from now on.
    shapes: Mutex<Shapes>,
    pub(crate) counts: DeviceCounters,
}

/// What went to the device since it was opened.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    pub(crate) submissions: AtomicU64,
    pub(crate) replays: AtomicU64,
    pub(crate) readbacks: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    /// Nanoseconds.
    pub(crate) encoding: AtomicU64,
}

impl DeviceCounters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Bytes of a piece that is uploaded at a time: each is copied once more on its way.
const PIECE: usize = 16 << 20;

impl Gpu {
    /// A device whose buffers that kernels see take `most_bytes`, or less if that is all it allows.
    pub(crate) fn new(backend: Box<dyn Backend>, most_bytes: Option<u64>) -> Gpu {
        let mut facts = backend.facts().clone();
        facts.most_seen = facts.most_seen.min(most_bytes.unwrap_or(u64::MAX));
        let (kernels, shapes, counts) =
            (Mutex::default(), Mutex::default(), DeviceCounters::default());
        Gpu { backend, facts, kernels, shapes, counts }
    }

    /// What is known of it.
    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Whether the processor plays it.
    pub(crate) fn is_software(&self) -> bool {
        self.facts.is_software
    }

    /// Where it writes timestamps, if it does.
    pub(crate) fn stamps(&self) -> Option<Stamps> {
        self.facts.stamps
    }

    /// Nanoseconds of a tick of its timestamps.
    pub(crate) fn tick(&self) -> f32 {
        self.facts.tick
    }

    /// What its kernels may use.
    pub(crate) fn able(&self) -> Abilities {
        self.facts.able
    }

    /// As if these were what it has.
    #[cfg(test)]
    pub(crate) fn set_able(&mut self, able: Abilities) {
        self.facts.able = able;
    }

    /// As if it could write no others.
    #[cfg(test)]
    pub(crate) fn limit_stamps(&mut self, stamps: Option<Stamps>) {
        self.facts.stamps = stamps;
    }

    /// As if no buffer had more than so many bytes.
    #[cfg(test)]
    pub(crate) fn limit_buffers(&mut self, bytes: u64) {
        self.facts.most_buffer = bytes;
    }

    /// Most bytes of a buffer that a shader sees.
    pub(crate) fn most_bytes(&self) -> u64 {
        // a multiple of all that is kept in a buffer
        self.facts.most_seen / 1024 * 1024
    }

    /// The shapes of products.
    pub(crate) fn shapes(&self) -> Shapes {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Have models that are loaded from now on multiply in these shapes.
    pub(crate) fn set_shapes(&self, shapes: Shapes) {
        *self.shapes.lock().unwrap_or_else(PoisonError::into_inner) = shapes;
    }

    /// What has failed since it was opened.
    pub(crate) fn check(&self) -> Result<()> {
        self.backend.check()
    }

    pub(crate) fn error(&self, problem: &str) -> Error {
        Error::Device { problem: format!("{}: {problem}", self.facts.name) }
    }

    /// A buffer of at least `bytes`, zeros.
    pub(crate) fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Buffer> {
        let size = bytes.max(16).next_multiple_of(16);
        if size > self.facts.most_buffer {
            return Err(Error::Memory { what, bytes });
        }
        Ok(Buffer::new(self.backend.buffer(what, size, usage)?, size))
    }

    /// A buffer for shaders to read with these words in it.
    pub(crate) fn upload(&self, what: &'static str, words: &[u32]) -> Result<Buffer> {
        let to = self.buffer(what, 4 * words.len() as u64, Usage::Storage)?;
        for (i, bytes) in bytemuck::cast_slice(words).chunks(PIECE).enumerate() {
            self.write(what, &[Write { to: &to, at: (i * PIECE) as u64, bytes }])?;
        }
        Ok(to)
    }

    /// Write before the next submission.
    pub(crate) fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()> {
        self.backend.write(what, writes)
    }

    /// The kernel of a shader, made when it is first asked for.
    pub(crate) fn kernel(&self, shader: &Shader) -> Result<Handle> {
        let known = self.kernels().get(shader).cloned();
        if let Some(made) = known {
            return Ok(made);
        }
        // others may make theirs meanwhile
        let made = self.backend.kernel(shader)?;
        Ok(self.kernels().entry(shader.clone()).or_insert(made).clone())
    }

    /// Make these kernels, several at once: drivers take their time for each. What fails is told when it is used.
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

    /// Let go of the kernels that no model has.
    pub(crate) fn forget_kernels(&self) {
        self.kernels().clear();
    }

    fn kernels(&self) -> MutexGuard<'_, HashMap<Shader, Handle>> {
        // every change is whole
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What kernels bind.
    pub(crate) fn bindings(
        &self,
        of: &[(&'static ShaderKernel, Vec<Binding<'_>>)],
    ) -> Result<Vec<Handle>> {
        self.backend.bindings(of)
    }

    /// A clock for so many dispatches; `None` if the device does not time so many.
    pub(crate) fn clock(&self, stamps: Stamps, dispatches: usize) -> Result<Option<Handle>> {
        self.backend.clock(stamps, dispatches)
    }

    /// Have work done; count what it took to record it.
    pub(crate) fn submit(&self, work: &Work<'_>) -> Result<Ticket> {
        let ticket = self.backend.submit(work)?;
        DeviceCounters::add(&self.counts.encoding, ticket.recording.as_nanos() as u64);
        DeviceCounters::add(&self.counts.replays, u64::from(ticket.replayed));
        Ok(ticket)
    }

    /// Run commands, and wait until they are done: memory that they alone used is free then.
    pub(crate) fn run(&self, what: &'static str, commands: &[Command<'_>]) -> Result<()> {
        let ticket = self.backend.submit(&Work { what, writes: &[], commands, stamping: None })?;
        self.backend.wait(&ticket)
    }

    /// Wait for a submission, and read what it found: some bytes, if any.
    pub(crate) fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>> {
        if bytes == 0 {
            return self.backend.wait(ticket).map(|()| Vec::new());
        }
        let found = self.backend.read(ticket, from, bytes)?;
        DeviceCounters::add(&self.counts.readbacks, 1);
        DeviceCounters::add(&self.counts.bytes_read, bytes);
        Ok(found)
    }

    /// Bytes of its memory that are taken, where that is told.
    pub(crate) fn allocated(&self) -> Option<u64> {
        self.backend.allocated()
    }
}

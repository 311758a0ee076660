//! [`Backend`]: what the executor asks of a device, whichever interface reaches it. Buffers, kernels, bindings and
//! submissions; all that is decided before (plans, kernels' texts, dispatches, caches) knows no more of a device than this.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use program::Result;

use crate::kernels::{Abilities, Shader, ShaderKernel};
use crate::timing::Stamps;

/// What a back end keeps of a buffer, a kernel, bindings or a clock. Freed with its last clone.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// What is known of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    /// By what it is reached, as options name it.
    pub(crate) interface: &'static str,
    /// Its name alone.
    pub(crate) name: String,
    /// One line: name, interface, kind.
    pub(crate) line: String,
    /// The driver and its version.
    pub(crate) driver: String,
    /// Whether the processor plays it.
    pub(crate) is_software: bool,
    /// Whether its memory is the machine's own.
    pub(crate) shares_memory: bool,
    /// Where it is on the machine's bus, if the driver tells: `0000:01:00.0`.
    pub(crate) bus: Option<String>,
    /// Most bytes of a buffer.
    pub(crate) most_buffer: u64,
    /// Most bytes of a buffer that kernels see.
    pub(crate) most_seen: u64,
    /// What kernels may use.
    pub(crate) able: Abilities,
    /// Where it writes timestamps, if it does.
    pub(crate) stamps: Option<Stamps>,
    /// Nanoseconds of a tick of these.
    pub(crate) tick: f32,
}

/// What a buffer is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Constants of dispatches: kernels read them as one small value.
    Constants,
    /// Kernels read or write it; it may be copied from and to.
    Storage,
    /// Copied from and to, seen by no kernel.
    Copies,
    /// The host reads what was copied to it.
    Results,
}

/// Memory on a device, or memory of the host that a device copies to ([`Usage::Results`]).
#[derive(Clone)]
pub(crate) struct Buffer {
    pub(crate) handle: Handle,
    bytes: u64,
}

impl Buffer {
    /// Of so many bytes.
    pub(crate) fn new(handle: Handle, bytes: u64) -> Buffer {
        Buffer { handle, bytes }
    }

    /// Bytes that it has.
    pub(crate) fn size(&self) -> u64 {
        self.bytes
    }

    /// What its back end keeps of it.
    pub(crate) fn of<T: 'static>(&self) -> &T {
        part(&self.handle)
    }
}

/// What a handle holds.
///
/// # Panics
/// If it is of another back end.
pub(crate) fn part<T: 'static>(handle: &Handle) -> &T {
    handle.downcast_ref().expect("handles go to the back end that made them")
}

/// Bytes for a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) to: &'a Buffer,
    /// First byte that is written.
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
}

/// What a kernel binds at one place: a buffer whole, or some bytes of it.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) buffer: &'a Buffer,
    /// First byte, and how many; `None` for all.
    pub(crate) part: Option<(u64, u64)>,
}

impl<'a> Binding<'a> {
    /// All of a buffer.
    pub(crate) fn whole(buffer: &'a Buffer) -> Binding<'a> {
        Binding { buffer, part: None }
    }
}

/// What a device does, in order; each sees what those before it wrote.
#[derive(Clone, Copy)]
pub(crate) enum Command<'a> {
    /// Run a kernel with these bindings in so many workgroups.
    Dispatch { kernel: &'a Handle, bindings: &'a Handle, groups: [u32; 3] },
    /// Copy bytes from one buffer to another.
    Copy { from: &'a Buffer, from_at: u64, to: &'a Buffer, to_at: u64, bytes: u64 },
    /// Make bytes zeros.
    Clear { buffer: &'a Buffer, at: u64, bytes: u64 },
}

/// Where timestamps of a submission go.
#[derive(Clone, Copy)]
pub(crate) struct Stamping<'a> {
    pub(crate) clock: &'a Handle,
    pub(crate) stamps: Stamps,
    /// A buffer of [`Usage::Results`], and the byte where they begin: 64 bits each.
    pub(crate) to: &'a Buffer,
    pub(crate) at: u64,
}

/// A submission: bytes are written, then commands run.
pub(crate) struct Work<'a> {
    /// What fails if it fails.
    pub(crate) what: &'static str,
    pub(crate) writes: &'a [Write<'a>],
    pub(crate) commands: &'a [Command<'a>],
    pub(crate) stamping: Option<Stamping<'a>>,
}

/// A submission that was made.
pub(crate) struct Ticket {
    pub(crate) handle: Handle,
    /// What it took to record it.
    pub(crate) recording: Duration,
    /// Whether nothing had to be recorded: the device was told to repeat what it knew.
    pub(crate) replayed: bool,
}

/// A device, ready for use.
pub(crate) trait Backend: Send + Sync {
    /// What is known of it.
    fn facts(&self) -> &DeviceFacts;

    /// What has failed since, such as a lost device.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn check(&self) -> Result<()>;

    /// A buffer of so many bytes, a multiple of 16; zeros, unless it is for results.
    ///
    /// # Errors
    /// [`program::Error::Memory`], [`program::Error::Device`].
    fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Handle>;

    /// Write before the next submission. The bytes are on their way when this returns, and no longer needed.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()>;

    /// The kernel of a shader. Whoever asks keeps it.
    ///
    /// # Errors
    /// [`program::Error::Device`] if its compiler does not take it.
    fn kernel(&self, shader: &Shader) -> Result<Handle>;

    /// What kernels bind: of each its bindings in order.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn bindings(&self, of: &[(&'static ShaderKernel, Vec<Binding<'_>>)]) -> Result<Vec<Handle>>;

    /// A clock for so many dispatches; `None` if that is too many.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn clock(&self, stamps: Stamps, dispatches: usize) -> Result<Option<Handle>>;

    /// Have work done. This does not wait.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn submit(&self, work: &Work<'_>) -> Result<Ticket>;

    /// Wait until it is done.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn wait(&self, ticket: &Ticket) -> Result<()>;

    /// Wait until it is done, and read the beginning of a buffer of [`Usage::Results`], a whole number of words.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>>;

    /// Bytes of the device's memory that are taken, where that is told.
    fn allocated(&self) -> Option<u64>;
}

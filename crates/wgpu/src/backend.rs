//! [`Backend`]: the operations that the executor needs from a device, independent of the interface
//! that reaches it: buffers, kernels, bindings, submissions.
//!
//! Plans, kernel texts, dispatches and caches use a device only through this trait. Implementations
//! are in `webgpu.rs` (Vulkan, Metal, Direct3D 12) and `nvidia.rs` (CUDA).

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use program::Result;

use crate::kernels::{Abilities, Shader, ShaderKernel};
use crate::timing::Stamps;

/// A back end's own representation of a buffer, a kernel, bindings, a clock or a submission. Freed
/// with its last clone.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// Properties of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    /// Name of the interface, as `--executor` takes it: `wgpu`, `cuda`.
    pub(crate) interface: &'static str,
    /// Name of the device.
    pub(crate) name: String,
    /// Name, interface and kind on one line: `NVIDIA H200, cuda, discrete`.
    pub(crate) line: String,
    /// Name and version of the driver.
    pub(crate) driver: String,
    /// Whether the device is emulated on the processor.
    pub(crate) is_software: bool,
    /// Whether the device uses the machine's main memory.
    pub(crate) shares_memory: bool,
    /// PCI address, if the driver reports it: `0000:01:00.0`.
    pub(crate) bus: Option<String>,
    /// Maximum size of a buffer in bytes.
    pub(crate) most_buffer: u64,
    /// Maximum size in bytes of a buffer that kernels access.
    pub(crate) most_seen: u64,
    /// Optional features that kernels may use.
    pub(crate) able: Abilities,
    /// Positions at which the device can write timestamps; `None` if it cannot.
    pub(crate) stamps: Option<Stamps>,
    /// Nanoseconds per timestamp tick.
    pub(crate) tick: f32,
}

/// Intended use of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Constants of dispatches. Kernels read them as one small value.
    Constants,
    /// Kernels read and write it. It can be the source and the target of copies.
    Storage,
    /// Source and target of copies. Kernels do not access it.
    Copies,
    /// Target of copies. The host reads it.
    Results,
}

/// Device memory, or host memory that the device copies to ([`Usage::Results`]).
#[derive(Clone)]
pub(crate) struct Buffer {
    pub(crate) handle: Handle,
    bytes: u64,
}

impl Buffer {
    /// Wraps a back end's buffer of `bytes` bytes.
    pub(crate) fn new(handle: Handle, bytes: u64) -> Buffer {
        Buffer { handle, bytes }
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.bytes
    }

    /// The back end's own representation of the buffer.
    ///
    /// # Panics
    /// If the buffer belongs to another back end.
    pub(crate) fn of<T: 'static>(&self) -> &T {
        part(&self.handle)
    }
}

/// The value inside a handle.
///
/// # Panics
/// If the handle belongs to another back end.
pub(crate) fn part<T: 'static>(handle: &Handle) -> &T {
    handle.downcast_ref().expect("a handle is used only with the back end that created it")
}

/// A write from the host to a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) to: &'a Buffer,
    /// Offset in the buffer, in bytes.
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
}

/// The buffer, or part of a buffer, at one binding of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) buffer: &'a Buffer,
    /// Offset and length in bytes; `None` for the whole buffer.
    pub(crate) part: Option<(u64, u64)>,
}

impl<'a> Binding<'a> {
    /// Binds a whole buffer.
    pub(crate) fn whole(buffer: &'a Buffer) -> Binding<'a> {
        Binding { buffer, part: None }
    }
}

/// A command. The commands of a submission run in order, and each sees the writes of earlier ones.
#[derive(Clone, Copy)]
pub(crate) enum Command<'a> {
    /// Runs a kernel in a grid of workgroups.
    Dispatch { kernel: &'a Handle, bindings: &'a Handle, groups: [u32; 3] },
    /// Copies bytes between buffers.
    Copy { from: &'a Buffer, from_at: u64, to: &'a Buffer, to_at: u64, bytes: u64 },
    /// Fills bytes with zeros.
    Clear { buffer: &'a Buffer, at: u64, bytes: u64 },
}

/// Timestamps requested for a submission, and their destination.
#[derive(Clone, Copy)]
pub(crate) struct Stamping<'a> {
    pub(crate) clock: &'a Handle,
    pub(crate) stamps: Stamps,
    /// Destination: a buffer of [`Usage::Results`]. Each timestamp has 64 bits.
    pub(crate) to: &'a Buffer,
    /// Offset of the first timestamp in the buffer, in bytes.
    pub(crate) at: u64,
}

/// A submission: all writes, then all commands.
pub(crate) struct Work<'a> {
    /// Name of the work, for error messages.
    pub(crate) what: &'static str,
    pub(crate) writes: &'a [Write<'a>],
    pub(crate) commands: &'a [Command<'a>],
    pub(crate) stamping: Option<Stamping<'a>>,
}

/// A submission in progress or completed.
pub(crate) struct Ticket {
    #[cfg_attr(
        not(feature = "wgpu"),
        expect(dead_code, reason = "a CUDA stream is waited for as a whole")
    )]
    pub(crate) handle: Handle,
    /// Time spent recording the commands.
    pub(crate) recording: Duration,
    /// Whether the device replayed an earlier recording, so that nothing was recorded.
    pub(crate) replayed: bool,
}

/// An open device.
pub(crate) trait Backend: Send + Sync {
    /// Properties of the device.
    fn facts(&self) -> &DeviceFacts;

    /// Checks for errors that occurred outside a call, such as a lost device.
    ///
    /// # Errors
    /// [`program::Error::Device`] if the device has failed since it was opened.
    fn check(&self) -> Result<()>;

    /// Allocates a buffer. `bytes` is a multiple of 16. The content is zero, except for
    /// [`Usage::Results`], where it is unspecified.
    ///
    /// # Errors
    /// [`program::Error::Memory`] if there is not enough memory, [`program::Error::Device`] if the
    /// device fails.
    fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Handle>;

    /// Writes to buffers; the next submission sees the new content. The caller may reuse the bytes
    /// when this returns.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()>;

    /// Compiles the kernel of a shader. The caller caches the result.
    ///
    /// # Errors
    /// [`program::Error::Device`] if the shader does not compile.
    fn kernel(&self, shader: &Shader) -> Result<Handle>;

    /// Creates the bindings of several kernels. Each entry lists the bindings of a kernel in order.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn bindings(&self, of: &[(&'static ShaderKernel, Vec<Binding<'_>>)]) -> Result<Vec<Handle>>;

    /// Creates a clock that can time `dispatches` dispatches; `None` if the device cannot time that
    /// many.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn clock(&self, stamps: Stamps, dispatches: usize) -> Result<Option<Handle>>;

    /// Submits work without waiting for it.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    fn submit(&self, work: &Work<'_>) -> Result<Ticket>;

    /// Waits until a submission is complete.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn wait(&self, ticket: &Ticket) -> Result<()>;

    /// Waits until a submission is complete, then reads the first `bytes` bytes of a buffer of
    /// [`Usage::Results`]. `bytes` is a multiple of 4.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>>;

    /// Bytes of device memory in use, if the back end can tell.
    fn allocated(&self) -> Option<u64>;
}

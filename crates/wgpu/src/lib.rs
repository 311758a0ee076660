//! The GPU executor: lowers a program into a short list of dispatches and runs a step with one submission and one
//! read-back. Devices are reached by one of two interfaces behind the trait `Backend`: wgpu (Vulkan, Metal, Direct3D 12:
//! `webgpu.rs`) and CUDA (`nvidia.rs`). Kernels have one text for both: WGSL, which becomes PTX for CUDA.
//!
//! The way through: `lower.rs` (program to plan), `formats.rs` and `pack.rs` (weights to planes), `kernels.rs` and `kernels/`
//! (the shaders), `dispatch.rs` (plan to dispatches), `batch.rs` (what a step is about), `model.rs` (sessions and steps).
#![deny(unsafe_code)]

mod backend;
mod batch;
mod caches;
mod ceilings;
mod declare;
mod device;
mod dispatch;
#[cfg(feature = "wgpu")]
#[expect(unsafe_code, reason = "experimental features are acknowledged, and a variable is set")]
mod experimental;
mod formats;
mod kernels;
mod lower;
mod model;
#[cfg(feature = "cuda")]
mod nvidia;
mod pack;
mod plan;
mod slab;
mod slots;
mod timing;
mod traffic;
mod tuning;
#[cfg(feature = "wgpu")]
mod webgpu;
mod weights;
mod workspace;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use program::{
    CacheStorage, Ceilings, Executor, KernelShape, KernelTuning, MemoryNeeds, MemoryOptions, Model,
    Op, Program, Progress, Promises, Result, WeightSource,
};
use quant::GgmlType;

use crate::declare::DeviceMemory;
use crate::device::Gpu;
use crate::model::GpuModel;

pub use crate::traffic::moved::{DispatchBytes, step_bytes};

/// How a device is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// Vulkan, Metal or Direct3D 12, by wgpu.
    #[default]
    Wgpu,
    /// NVIDIA's driver.
    Cuda,
}

/// How a GPU is used.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// By which interface.
    pub interface: Interface,
    /// Part of the adapter's name, whatever the case; `None` for the most promising one.
    pub adapter: Option<String>,
    /// Where the caches of a model's sessions lie. A disk is refused when a model is loaded.
    pub storage: CacheStorage,
    /// Tell the device every submission command by command, and replay none.
    pub plain_submissions: bool,
    /// A library to load in place of NVIDIA's driver: a stand-in for it, as tests have.
    pub driver: Option<PathBuf>,
    /// Most bytes of a buffer that kernels see; `None`: as many as the device allows. Larger matrices are cut into parts.
    pub most_bytes: Option<u64>,
}

/// What went to a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Submissions of steps.
    pub submissions: u64,
    /// Those of them that the device repeated as it knew them: nothing was recorded.
    pub replays: u64,
    /// Times that results were read back.
    pub readbacks: u64,
    /// Bytes of these results.
    pub bytes_read: u64,
    /// Dispatches in these submissions.
    pub dispatches: u64,
    /// Time that it took to record them.
    pub encoding: Duration,
}

/// A GPU as an executor. Clones are of one device.
#[derive(Clone)]
pub struct GpuExecutor {
    gpu: Arc<Gpu>,
    storage: CacheStorage,
}

impl GpuExecutor {
    /// Open an adapter.
    ///
    /// # Errors
    /// [`program::Error::Device`] if there is none, or it does not open.
    pub fn open(options: &GpuOptions) -> Result<GpuExecutor> {
        let gpu = open(options)?;
        Ok(GpuExecutor { gpu: Arc::new(gpu), storage: options.storage.clone() })
    }

    /// The devices of this machine that an interface reaches, a line each, the most promising first.
    pub fn devices(interface: Interface) -> Vec<String> {
        match interface {
            #[cfg(feature = "wgpu")]
            Interface::Wgpu => webgpu::list(),
            #[cfg(feature = "cuda")]
            Interface::Cuda => nvidia::list(),
            #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
            _ => Vec::new(),
        }
    }

    /// Its adapter in a line: `llvmpipe (LLVM 15.0.6, 256 bits), vulkan, software`.
    pub fn adapter(&self) -> String {
        self.gpu.facts().line.clone()
    }

    /// The driver and its version, as far as it tells.
    pub fn driver(&self) -> String {
        self.gpu.facts().driver.clone()
    }

    /// Whether the processor plays the GPU.
    pub fn is_software(&self) -> bool {
        self.gpu.is_software()
    }

    /// Whether its memory is the machine's own, and no card's.
    pub fn shares_memory(&self) -> bool {
        self.gpu.facts().shares_memory
    }

    /// Where it is on the machine's bus, as the system names it, if the driver tells: `0000:01:00.0`.
    pub fn bus(&self) -> Option<String> {
        self.gpu.facts().bus.clone()
    }

    /// What went to the device since it was opened.
    pub fn counts(&self) -> DeviceCounts {
        let counts = &self.gpu.counts;
        DeviceCounts {
            submissions: counts.submissions.load(Ordering::Relaxed),
            replays: counts.replays.load(Ordering::Relaxed),
            readbacks: counts.readbacks.load(Ordering::Relaxed),
            bytes_read: counts.bytes_read.load(Ordering::Relaxed),
            dispatches: counts.dispatches.load(Ordering::Relaxed),
            encoding: Duration::from_nanos(counts.encoding.load(Ordering::Relaxed)),
        }
    }

    /// Bytes of the device's memory that are taken, by all that has been made on it, where that is told.
    pub fn allocated(&self) -> Option<u64> {
        self.gpu.allocated()
    }
}

/// Keeps drivers from writing to the terminal. Has an effect only at the start of a program, before its first thread.
pub fn before_threads() {
    #[cfg(feature = "wgpu")]
    experimental::disable_device_layer();
}

/// Whether an interface reaches a GPU here that no processor plays.
pub fn has_card(interface: Interface) -> bool {
    match interface {
        #[cfg(feature = "wgpu")]
        Interface::Wgpu => webgpu::has_card(),
        #[cfg(feature = "cuda")]
        Interface::Cuda => nvidia::has_card(),
        #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
        _ => false,
    }
}

/// Open a device: the first one, or the first whose line has the wanted name in it.
fn open(options: &GpuOptions) -> Result<Gpu> {
    match options.interface {
        #[cfg(feature = "wgpu")]
        Interface::Wgpu => webgpu::open(options.adapter.as_deref(), options.most_bytes),
        #[cfg(feature = "cuda")]
        Interface::Cuda => nvidia::open(options),
        #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
        _ => Err(program::Error::Unsupported("this interface is not linked".into())),
    }
}

impl KernelTuning for GpuExecutor {
    fn tune(&self, types: &[GgmlType], progress: &mut dyn FnMut(f64)) -> Result<Vec<KernelShape>> {
        tuning::tune(&self.gpu, types, progress)
    }

    fn set_shapes(&self, shapes: &[KernelShape]) {
        self.gpu.set_shapes(kernels::Shapes::of(shapes, self.gpu.able()));
    }
}

impl Executor for GpuExecutor {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        declare::supports(op, types)
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        let (most_bytes, bound) = (self.gpu.most_bytes(), self.storage.memory);
        let has_wide = self.gpu.able().has_wide();
        let device = DeviceMemory { most_bytes, is_card: !self.shares_memory(), bound, has_wide };
        declare::memory(program, options, device)
    }

    fn promises(&self) -> Promises {
        declare::promises()
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        Ok(Box::new(GpuModel::load(&self.gpu, program, weights, &self.storage, progress)?))
    }

    /// Models of one device share it: steps of one queue run in turn.
    fn beside(&self, storage: &CacheStorage) -> Option<Box<dyn Executor>> {
        Some(Box::new(GpuExecutor { gpu: Arc::clone(&self.gpu), storage: storage.clone() }))
    }

    fn ceilings(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Ceilings> {
        ceilings::measure(&self.gpu, progress)
    }

    fn describe(&self) -> String {
        format!("{}: {}", self.gpu.facts().interface, self.gpu.facts().line)
    }
}

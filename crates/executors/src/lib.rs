//! The executors that the binaries are linked with: the only crate that names them. The features `cuda` and `wgpu` link those
//! for GPUs; without them these are known by name and do not start.

#![forbid(unsafe_code)]

pub use cpu::{Cpu, MlaChoice, SessionFolder, SessionFolders, release_free_memory};
use std::sync::OnceLock;

use kernels::Isa;
use program::{
    CacheStorage, DeviceLayers, DeviceShare, Division, Executor, Hybrid, HybridOptions,
    KernelTuning, MemoryOptions, Program, Result,
};

/// What can run a model.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorKind {
    /// This machine's processor.
    #[default]
    Cpu,
    /// A GPU, by Vulkan, Metal or Direct3D 12.
    Wgpu,
    /// A GPU of NVIDIA's, by its driver.
    Cuda,
    /// Of the processor and a GPU what was measured to be faster for the model. Started as it is, it is the processor: whoever can
    /// measure chooses before.
    Auto,
    /// The reference: plain loops, slow, for checking.
    #[value(hide = true)]
    Interpreter,
}

impl ExecutorKind {
    /// What runs models where nobody says: where there is a card, what measures faster; else this machine's processor.
    pub fn usual() -> ExecutorKind {
        static USUAL: OnceLock<ExecutorKind> = OnceLock::new();
        let with = |has_card| if has_card { ExecutorKind::Auto } else { ExecutorKind::Cpu };
        *USUAL.get_or_init(|| with(has_card(ExecutorKind::Wgpu) || has_card(ExecutorKind::Cuda)))
    }

    /// The executor for GPUs that `auto` tries: CUDA if it has a card and `adapter`, if given, names one of its devices.
    pub fn of_a_gpu(adapter: Option<&str>) -> ExecutorKind {
        let is_named = adapter.is_none_or(|adapter| names_a_device(ExecutorKind::Cuda, adapter));
        match has_card(ExecutorKind::Cuda) && is_named {
            true => ExecutorKind::Cuda,
            false => ExecutorKind::Wgpu,
        }
    }

    /// Whether it is one for GPUs.
    pub fn is_gpu(self) -> bool {
        matches!(self, ExecutorKind::Wgpu | ExecutorKind::Cuda)
    }

    /// Its name, as `--executor` takes it.
    pub fn name(self) -> &'static str {
        match self {
            ExecutorKind::Cpu => "cpu",
            ExecutorKind::Wgpu => "wgpu",
            ExecutorKind::Cuda => "cuda",
            ExecutorKind::Auto => "auto",
            ExecutorKind::Interpreter => "interpreter",
        }
    }
}

/// Keeps GPU drivers from writing to the terminal. Must be called at the start of a program, before its first thread is created.
pub fn before_threads() {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    gpu::before_threads();
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn has_card(kind: ExecutorKind) -> bool {
    interface(kind).is_some_and(gpu::has_card)
}

/// Whether a part of a device's line is this text, ignoring case.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn names_a_device(kind: ExecutorKind, text: &str) -> bool {
    let devices = interface(kind).map(gpu::GpuExecutor::devices).unwrap_or_default();
    devices.iter().any(|line| line.to_lowercase().contains(&text.to_lowercase()))
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn interface(kind: ExecutorKind) -> Option<gpu::Interface> {
    match kind {
        ExecutorKind::Wgpu => Some(gpu::Interface::Wgpu),
        ExecutorKind::Cuda => Some(gpu::Interface::Cuda),
        ExecutorKind::Cpu | ExecutorKind::Auto | ExecutorKind::Interpreter => None,
    }
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn has_card(_: ExecutorKind) -> bool {
    false
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn names_a_device(_: ExecutorKind, _: &str) -> bool {
    false
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct ExecutorOptions {
    /// Which one.
    pub kind: ExecutorKind,
    /// Threads; `None` for the machine's physical cores.
    pub threads: Option<usize>,
    /// Instruction set to use at most; `None` for all this CPU has.
    pub isa: Option<Isa>,
    /// How latent attention is computed.
    pub mla: MlaChoice,
    /// Part of the name of a GPU; `None` for the most promising one.
    pub adapter: Option<String>,
    /// What a GPU runs, if one does.
    pub share: DeviceShare,
    /// Where sessions are kept over restarts; the processor alone does that.
    pub kept: SessionFolders,
}

/// What is known of the GPU that an executor runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// The executor that reaches it, as `--executor` takes it: `wgpu`, `cuda`.
    pub executor: &'static str,
    /// Its adapter: `llvmpipe (LLVM 15.0.6, 256 bits), vulkan, software`.
    pub adapter: String,
    /// The driver, on which speeds depend too.
    pub driver: String,
    /// Whether the processor plays it.
    pub is_software: bool,
    /// Whether its memory is the machine's own.
    pub shares_memory: bool,
    /// Where it is on the machine's bus, as the system names it, if that is told: `0000:01:00.0`.
    pub bus: Option<String>,
    /// Layers that it runs, where the processor runs the others; `None`: it runs all.
    pub beside: Option<usize>,
}

/// An executor that is ready to load.
pub struct Started {
    /// The executor itself.
    pub executor: Box<dyn Executor>,
    /// The GPU that it runs on, if it runs on one.
    pub gpu: Option<GpuFacts>,
    /// What can be tuned of that.
    pub tuning: Option<Box<dyn KernelTuning>>,
    /// Why a GPU has not all that it was to have, and what the processor has instead.
    pub refused: Option<String>,
}

impl Started {
    fn on_processor(executor: Box<dyn Executor>) -> Started {
        Started { executor, gpu: None, tuning: None, refused: None }
    }
}

impl ExecutorOptions {
    /// Threads that will compute; of a GPU's executor the one that gives it work.
    pub fn n_threads(&self) -> usize {
        match self.kind {
            ExecutorKind::Cpu | ExecutorKind::Auto => {
                self.threads.unwrap_or_else(cpu::default_threads)
            }
            ExecutorKind::Wgpu | ExecutorKind::Cuda | ExecutorKind::Interpreter => 1,
        }
    }

    /// The executor itself.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn start(&self) -> Result<Box<dyn Executor>> {
        Ok(self.start_with(&CacheStorage::default())?.executor)
    }

    /// The executor itself, which keeps the caches of sessions where `storage` says; the reference has no choice of that.
    ///
    /// # Errors
    /// [`program::Error::Device`] if there is no such GPU, or it does not open; [`program::Error::Unsupported`] where GPUs are not linked.
    pub fn start_with(&self, storage: &CacheStorage) -> Result<Started> {
        Ok(match self.kind {
            ExecutorKind::Cpu | ExecutorKind::Auto => {
                Started::on_processor(Box::new(self.cpu_with(storage)))
            }
            ExecutorKind::Interpreter => {
                Started::on_processor(Box::new(program::interpreter::Interpreter))
            }
            kind @ (ExecutorKind::Wgpu | ExecutorKind::Cuda) => {
                on_gpu(kind, self.adapter.as_deref(), storage)?
            }
        })
    }

    /// The executor for one program: of a GPU's, what it does not run and what it is not to run goes to the processor.
    /// `sessions`: those that a bound on caches is dealt out for.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn start_for(
        &self,
        program: &Program,
        storage: &CacheStorage,
        sessions: &MemoryOptions,
    ) -> Result<Started> {
        // nobody asked for a GPU then
        let nothing = self.share.layers == DeviceLayers::Last(0) && self.share.named.is_empty();
        if !self.kind.is_gpu() || nothing {
            return ExecutorOptions { kind: self.without_gpu(), ..self.clone() }
                .start_with(storage);
        }
        let started = self.start_with(storage)?;
        self.divided(started, program, storage, sessions)
    }

    /// The same with a GPU that was started already.
    ///
    /// # Errors
    /// As [`start_for`](Self::start_for).
    pub fn divided(
        &self,
        started: Started,
        program: &Program,
        storage: &CacheStorage,
        sessions: &MemoryOptions,
    ) -> Result<Started> {
        let division = Division::of(program, &*started.executor, self.share.clone())?;
        let refused = division
            .refused()
            .map(|why| format!("the processor runs {}: {why}", division.on_processor()));
        if division.submissions() == 0 {
            let processor = Box::new(self.cpu_with(storage));
            return Ok(Started { refused, ..Started::on_processor(processor) });
        }
        if division.crossings() == 0 {
            return Ok(started);
        }
        let options = HybridOptions {
            share: self.share.clone(),
            storage: storage.clone(),
            sessions: *sessions,
        };
        let processor = Box::new(self.cpu_with(storage));
        let hybrid = Hybrid::new(processor, started.executor, &division, options);
        let beside = Some(division.n_layers());
        let gpu = started.gpu.map(|gpu| GpuFacts { beside, ..gpu });
        let tuning = started.tuning;
        Ok(Started { executor: Box::new(hybrid), gpu, tuning, refused })
    }

    fn without_gpu(&self) -> ExecutorKind {
        match self.kind {
            ExecutorKind::Wgpu | ExecutorKind::Cuda => ExecutorKind::Cpu,
            kind => kind,
        }
    }

    /// The processor, whatever was chosen: for measurements of what only it has.
    pub fn cpu(&self) -> Cpu {
        self.cpu_with(&CacheStorage::default())
    }

    fn cpu_with(&self, storage: &CacheStorage) -> Cpu {
        let ExecutorOptions { threads, isa, mla, .. } = *self;
        let (storage, kept) = (storage.clone(), self.kept.clone());
        Cpu::new(&cpu::Options { threads, isa, mla, storage, kept, ..cpu::Options::default() })
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn on_gpu(kind: ExecutorKind, adapter: Option<&str>, storage: &CacheStorage) -> Result<Started> {
    let linked = match kind {
        ExecutorKind::Cuda => cfg!(feature = "cuda"),
        _ => cfg!(feature = "wgpu"),
    };
    let Some(interface) = interface(kind).filter(|_| linked) else { return Err(not_linked(kind)) };
    let options = gpu::GpuOptions {
        interface,
        adapter: adapter.map(str::to_owned),
        storage: storage.clone(),
        ..gpu::GpuOptions::default()
    };
    let opened = gpu::GpuExecutor::open(&options)?;
    let facts = GpuFacts {
        executor: kind.name(),
        adapter: opened.adapter(),
        driver: opened.driver(),
        is_software: opened.is_software(),
        shares_memory: opened.shares_memory(),
        bus: opened.bus(),
        beside: None,
    };
    let tuning = Box::new(opened.clone());
    let (executor, gpu) = (Box::new(opened), Some(facts));
    Ok(Started { executor, gpu, tuning: Some(tuning), refused: None })
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn on_gpu(kind: ExecutorKind, _: Option<&str>, _: &CacheStorage) -> Result<Started> {
    Err(not_linked(kind))
}

fn not_linked(kind: ExecutorKind) -> program::Error {
    let name = kind.name();
    program::Error::Unsupported(format!(
        "GPUs by {name} are not linked into this binary: cargo build --release --features {name}"
    ))
}

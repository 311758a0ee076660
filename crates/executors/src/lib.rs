//! The executors that the binaries are linked with: the only crate that names them.

#![forbid(unsafe_code)]

pub use cpu::{Cpu, MlaChoice};
use kernels::Isa;
use program::{CacheStorage, Executor};

/// What can run a model.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorKind {
    /// This machine's processor.
    #[default]
    Cpu,
    /// The reference: plain loops, slow, for checking.
    Interpreter,
}

/// What the user chose.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecutorOptions {
    /// Which one.
    pub kind: ExecutorKind,
    /// Threads; `None` for the machine's physical cores.
    pub threads: Option<usize>,
    /// Instruction set to use at most; `None` for all this CPU has.
    pub isa: Option<Isa>,
    /// How latent attention is computed.
    pub mla: MlaChoice,
}

impl ExecutorOptions {
    /// Threads that will compute.
    pub fn n_threads(&self) -> usize {
        match self.kind {
            ExecutorKind::Cpu => self.threads.unwrap_or_else(cpu::default_threads),
            ExecutorKind::Interpreter => 1,
        }
    }

    /// The executor itself.
    pub fn start(&self) -> Box<dyn Executor> {
        self.start_with(&CacheStorage::default())
    }

    /// The executor itself, which keeps the caches of sessions where `storage` says; the reference has no choice of that.
    pub fn start_with(&self, storage: &CacheStorage) -> Box<dyn Executor> {
        match self.kind {
            ExecutorKind::Cpu => Box::new(self.cpu_with(storage)),
            ExecutorKind::Interpreter => Box::new(program::interpreter::Interpreter),
        }
    }

    /// The processor, whatever was chosen: for measurements of what only it has.
    pub fn cpu(&self) -> Cpu {
        self.cpu_with(&CacheStorage::default())
    }

    fn cpu_with(&self, storage: &CacheStorage) -> Cpu {
        let ExecutorOptions { threads, isa, mla, .. } = *self;
        Cpu::new(&cpu::Options { threads, isa, mla, storage: storage.clone() })
    }
}

//! The CPU executor: lowers a program into few phases, packs its weights, runs steps on a team of threads.
//!
//! The way through: `lower.rs` (program to plan), `load.rs` (kernels and places), `weights/` (file to panels), `schedule.rs`
//! (phases with what they own), `model.rs` (sessions and steps), `exec/` (phases at work). Kernels come from the `kernels` crate, cache storage from `kv`.

mod cache;
mod declare;
mod digest;
mod exec;
mod geometry;
mod kept;
mod load;
mod lower;
mod measured;
mod memory;
mod mla;
mod model;
mod needs;
mod plan;
mod pool;
mod probe;
mod schedule;
mod threads;
mod tune;
mod weights;
mod workspace;

use std::sync::Arc;

use kernels::Isa;
use kv::DiskLayer;
use program::{
    CacheStorage, Ceilings, Executor, MemoryNeeds, MemoryOptions, Model, Op, Program, Progress,
    Promises, Result, WeightSource,
};
use quant::GgmlType;

pub use kept::{SessionFolder, SessionFolders};
pub use measured::MeasuredModel;
pub use memory::release_free_memory;
pub use mla::{MlaChoice, MlaDims, MlaForm};
pub use threads::default_threads;

use crate::load::Workshop;
use crate::model::CpuModel;
use crate::pool::Team;
use crate::tune::Tuning;

/// How the CPU is used.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads; [`default_threads`] if `None`.
    pub threads: Option<usize>,
    /// Instruction sets that kernels may use; what the CPU has if `None`.
    pub isa: Option<Isa>,
    /// How latent attention is computed.
    pub mla: MlaChoice,
    /// Where the caches of a model's sessions lie: for each model that is loaded.
    pub storage: CacheStorage,
    /// Where sessions are kept over restarts.
    pub kept: SessionFolders,
    /// What stands between caches and the file that has them on disk.
    pub layer: DiskLayer,
}

/// The CPU as an executor.
pub struct Cpu {
    pool: Arc<Team>,
    tuning: Arc<Tuning>,
    mla: MlaChoice,
    storage: CacheStorage,
    kept: SessionFolders,
    layer: DiskLayer,
}

impl Cpu {
    /// Start the team of threads.
    pub fn new(options: &Options) -> Cpu {
        let threads = options.threads.unwrap_or_else(default_threads);
        let isa = options.isa.unwrap_or_else(Isa::detect).and(Isa::detect());
        Cpu {
            pool: Arc::new(Team::new(threads)),
            tuning: Arc::new(Tuning::new(isa)),
            mla: options.mla,
            storage: options.storage.clone(),
            kept: options.kept.clone(),
            layer: options.layer.clone(),
        }
    }

    /// Threads in the team, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.n()
    }

    /// Up to how many activation rows matrices of type `ty` are multiplied row by row while a panel streams past, and
    /// beyond that in tiles: measured on this machine when first asked for. `None` for types that weights cannot have.
    pub fn stream_rows(&self, ty: GgmlType) -> Option<usize> {
        Some(self.tuning.linear(ty)?.stream_rows())
    }

    /// What programs are loaded with.
    fn workshop(&self) -> Workshop<'_> {
        let Cpu { pool, tuning, mla, storage, kept, layer } = self;
        Workshop { pool, tuning, mla: *mla, storage, lender: None, kept, layer }
    }

    /// Instruction sets in use.
    pub fn isa(&self) -> Isa {
        self.tuning.isa()
    }
}

impl Executor for Cpu {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        declare::supports(op, types, self.isa())
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        declare::memory(program, self.workshop(), options)
    }

    fn promises(&self) -> Promises {
        declare::promises(self.mla)
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        Ok(Box::new(CpuModel::load(program, weights, self.workshop(), progress)?))
    }

    fn beside(&self, storage: &CacheStorage) -> Option<Box<dyn Executor>> {
        Some(Box::new(Cpu {
            pool: Arc::clone(&self.pool),
            tuning: Arc::clone(&self.tuning),
            mla: self.mla,
            storage: storage.clone(),
            kept: SessionFolders::default(),
            layer: self.layer.clone(),
        }))
    }

    fn shares_weights(&self) -> bool {
        true
    }

    fn ceilings(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Ceilings> {
        probe::probe(&self.pool, self.isa(), progress)
    }

    fn describe(&self) -> String {
        let n = self.threads();
        format!("{n} thread{}, {}", if n == 1 { "" } else { "s" }, self.isa().name())
    }
}

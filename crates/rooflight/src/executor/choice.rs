//! [`ExecutorChoice`]: the options that the executor of a model is chosen by.

use executors::{ExecutorKind, ExecutorOptions, MlaChoice, SessionFolders};
use kernels::Isa;
use program::{DeviceShare, Program};

use super::to_run::GpuProducts;
use crate::Result;
use crate::share::ShareOptions;

/// How the executor of a model is chosen.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExecutorChoice {
    /// Kind of the executor. By default the fastest on this machine that runs the model.
    pub kind: Option<ExecutorKind>,
    /// Number of threads. By default that of physical cores.
    pub threads: Option<usize>,
    /// Best instruction set to use. By default the best of this processor.
    pub isa: Option<Isa>,
    /// How latent attention is computed.
    pub mla: Option<MlaChoice>,
    /// Part of the name of a GPU.
    pub adapter: Option<String>,
    /// What a GPU multiplies.
    pub products: GpuProducts,
    /// What a GPU has of the model.
    pub share: ShareOptions,
}

impl ExecutorChoice {
    /// Returns the kind of executor, by default the usual one of this machine.
    pub fn kind(&self) -> ExecutorKind {
        self.kind.unwrap_or_else(ExecutorKind::usual)
    }

    /// Returns whether a GPU is asked for.
    pub fn asks_for_gpu(&self) -> bool {
        self.kind().is_gpu() || self.kind() == ExecutorKind::Auto
    }

    /// Returns the options of an executor that a GPU computes everything with.
    pub fn options(&self) -> ExecutorOptions {
        ExecutorOptions {
            kind: self.kind(),
            threads: self.threads,
            isa: self.isa,
            mla: self.mla.unwrap_or_default(),
            adapter: self.adapter.clone(),
            share: DeviceShare::default(),
            kept: SessionFolders::default(),
        }
    }

    /// Returns the options of an executor for a program.
    ///
    /// # Errors
    /// As [`ShareOptions::of`], where a GPU is asked for.
    pub fn options_for(&self, program: &Program) -> Result<ExecutorOptions> {
        let all = self.options();
        let share = if self.asks_for_gpu() { self.share.of(program)? } else { all.share };
        Ok(ExecutorOptions { share, ..all })
    }
}

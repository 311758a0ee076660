//! [`ExecutorChoice`]: options for choosing the executor of a model.

use executors::{ExecutorKind, ExecutorOptions, MlaChoice, SessionFolders};
use kernels::Isa;
use program::{DeviceShare, Program};

use super::to_run::GpuProducts;
use crate::Result;
use crate::share::ShareOptions;

/// Options for choosing the executor of a model.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExecutorChoice {
    /// Kind of executor. The default is the fastest one on this machine that supports the model.
    pub kind: Option<ExecutorKind>,
    /// Number of threads. The default is the number of physical cores.
    pub threads: Option<usize>,
    /// Most capable instruction set to use. The default is the best of this processor.
    pub isa: Option<Isa>,
    /// Form in which latent attention is computed.
    pub mla: Option<MlaChoice>,
    /// GPU to use, by a part of its name.
    pub adapter: Option<String>,
    /// Number type of GPU matrix products.
    pub products: GpuProducts,
    /// Layers, experts and tensors to place on a GPU.
    pub share: ShareOptions,
}

impl ExecutorChoice {
    /// Returns the kind of executor; if none is set, the usual kind of this machine.
    pub fn kind(&self) -> ExecutorKind {
        self.kind.unwrap_or_else(ExecutorKind::usual)
    }

    /// Returns whether this choice allows a GPU: one is requested, or the kind is `auto`.
    pub fn asks_for_gpu(&self) -> bool {
        self.kind().is_gpu() || self.kind() == ExecutorKind::Auto
    }

    /// Returns the executor options, with the whole model on the GPU if there is one.
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

    /// Returns the executor options for a program, with its division between processor and GPU.
    ///
    /// # Errors
    /// Those of [`ShareOptions::of`], if this choice allows a GPU.
    pub fn options_for(&self, program: &Program) -> Result<ExecutorOptions> {
        let all = self.options();
        let share = if self.asks_for_gpu() { self.share.of(program)? } else { all.share };
        Ok(ExecutorOptions { share, ..all })
    }
}

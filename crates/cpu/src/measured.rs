//! [`MeasuredModel`]: a model as measurements want it. Nothing that runs a model needs this.

use std::sync::Arc;

use program::{Model, Program, Result, SessionId, WeightSource};

use crate::Cpu;
use crate::model::CpuModel;

/// A loaded model whose sessions can be given made-up contents, which would take long to compute.
pub struct MeasuredModel(CpuModel);

impl Cpu {
    /// Load a program as [`program::Executor::load`] does.
    ///
    /// # Errors
    /// Those of [`program::Executor::load`].
    pub fn load_measured(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
    ) -> Result<MeasuredModel> {
        CpuModel::load(program, weights, self.workshop(), &mut |_| {}).map(MeasuredModel)
    }
}

impl MeasuredModel {
    /// The model itself.
    pub fn model(&self) -> &dyn Model {
        &self.0
    }

    /// Make an empty session hold `len` positions of made-up content.
    ///
    /// # Errors
    /// Unknown session, full context, memory.
    pub fn fill(&self, id: SessionId, len: usize) -> Result<()> {
        self.0.fill(id, len)
    }

    /// Memory that steps took so far, in bytes, besides weights and caches.
    pub fn work_bytes(&self) -> u64 {
        self.0.work_bytes()
    }
}

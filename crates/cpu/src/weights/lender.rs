//! What a model lends to another of the same file, which runs in turn with it: weights that both read are kept once.

use std::sync::Arc;

use program::{Program, WeightId, WeightSpec};

use super::{PackedJob, Table, WeightMemory};
use crate::memory::Buffer;
use crate::schedule::{LoadedPhase, Schedule};

/// A loaded model, as one that lends.
#[derive(Clone, Copy)]
pub(crate) struct Lender<'a> {
    pub(crate) program: &'a Program,
    pub(crate) schedule: &'a Schedule,
    pub(crate) weights: &'a Arc<WeightMemory>,
}

impl Lender<'_> {
    /// The panels of the matrix that `spec` is, which another program calls `weight`, if they stand alone in a job. What it
    /// was lent itself it does not lend.
    pub(crate) fn job(&self, weight: WeightId, spec: &WeightSpec) -> Option<PackedJob> {
        let is_it = |job: &&PackedJob| {
            !job.is_lent() && job.only().is_some_and(|id| self.program.weight(id) == spec)
        };
        Some(self.schedule.jobs().find(is_it)?.lend(weight))
    }

    /// The table that `spec` is, as the file has it.
    pub(super) fn table(&self, spec: &WeightSpec) -> Option<Arc<Buffer>> {
        self.schedule.phases.iter().find_map(|phase| match phase {
            LoadedPhase::Embed { table: Table::Raw(table), .. } => table.copy_of(spec),
            _ => None,
        })
    }
}

//! The output head as the sum of a coarse and a fine matrix, and how much the fine one can change.

use kernels::linear::PANEL_ROWS;
use program::Rows;

use super::Weights;
use crate::memory::Shared;
use crate::plan::{Job, Phase, Plan};
use crate::pool::{Pool, Shares};

/// What a bound is larger than the norm it is made from: more than rounding adds to a product of any length.
const ROUNDING: f64 = 1.001;

/// Whether the head (phase, job) stands alone in its phase and its outputs are the logits as they are, of selected rows.
pub(super) fn can_split(plan: &Plan, (phase, job): (usize, usize)) -> bool {
    let Phase::Linear(linear) = &plan.phases[phase] else { return false };
    match &linear.jobs[job] {
        Job::One { matrix, links, .. } => {
            let plain = links.is_empty() && matrix.bias.is_none();
            plain && linear.jobs.len() == 1 && linear.x.rows == Rows::Selected
        }
        Job::Gated { .. } => false,
    }
}

impl Weights {
    /// For each row of a head that is kept as two matrices: the norm of its fine row, rounded up. By Cauchy and Schwarz,
    /// the fine part of its logit is at most this times the norm of the activations.
    pub(crate) fn head_bounds(&self) -> Option<&[f32]> {
        self.head_bounds.as_deref()
    }

    /// The bounds of the head `split`, if it was split.
    pub(super) fn bounds_of(&self, split: Option<(usize, usize)>, pool: &Pool) -> Option<Vec<f32>> {
        let (phase, job) = split?;
        let job = &self.jobs[phase][job];
        let fine = job.matrices.get(1).filter(|_| job.is_split())?;
        let mut bounds = vec![0.0; job.n_panels() * PANEL_ROWS];
        let out = Shared::new(&mut bounds);
        let shares = Shares::new(pool.n());
        shares.reset();
        pool.run(&|worker| {
            let mut rows = vec![0.0; PANEL_ROWS * fine.cols];
            for panel in shares.take(&worker, job.n_panels()) {
                fine.kernel.unpack(
                    &self.arena()[job.bytes(panel..panel + 1, 1)],
                    0..PANEL_ROWS,
                    &mut rows,
                );
                // SAFETY: panels are dealt once each.
                let bounds = unsafe { out.slice_mut(panel * PANEL_ROWS..(panel + 1) * PANEL_ROWS) };
                for (bound, row) in bounds.iter_mut().zip(rows.chunks_exact(fine.cols)) {
                    let squares: f64 = row.iter().map(|w| f64::from(*w) * f64::from(*w)).sum();
                    *bound = (squares.sqrt() * ROUNDING) as f32;
                }
            }
        });
        Some(bounds)
    }
}

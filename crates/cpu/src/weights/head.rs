//! The output head as the sum of a coarse and a fine matrix, and how much the fine one can change.

use kernels::linear::PANEL_ROWS;
use program::{Program, Rows};

use super::Weights;
use crate::Options;
use crate::memory::Shared;
use crate::plan::{Job, Phase, Plan};
use crate::pool::{Pool, Shares};

/// What a bound is larger than the norm it is made from: more than rounding adds to a product of up to half a million
/// columns.
const ROUNDING: f64 = 1.001;

/// The head (phase, job) if it is to be split: large enough, alone in its phase, and its outputs are the logits as they
/// are, of selected rows.
pub(super) fn to_split(
    program: &Program,
    plan: &Plan,
    options: &Options,
) -> Option<(usize, usize)> {
    let (phase, job) = plan.head?;
    let Phase::Linear(linear) = &plan.phases[phase] else { return None };
    let Job::One { matrix, links, .. } = &linear.jobs[job] else { return None };
    let plain = links.is_empty() && matrix.bias.is_none();
    let alone = linear.jobs.len() == 1 && linear.x.rows == Rows::Selected;
    let large = program.weight(matrix.weight).bytes() >= options.two_stage_head_bytes?;
    (plain && alone && large).then_some((phase, job))
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

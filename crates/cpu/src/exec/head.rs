//! The output head in two stages, for one row of which the greatest logit alone is wanted.
//!
//! ```text
//! the coarse matrix, all panels      coarse part + bound of the fine part: no logit is above this
//! ---- barrier
//! the stretch with the highest       in full; its greatest logit is the floor
//! ---- barrier
//! each panel that reaches the floor  in full; all other logits are left out
//! ```
//!
//! What is computed in full has the bits that a step over all logits gives it, and the greatest is among them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use kernels::linear::{ActFormat, Activations, PANEL_ROWS};
use program::{LEFT_OUT, PEAK};

use super::linear::{Input, Items, add};
use super::{Exec, Scratch};
use crate::geometry::MANY_ROWS_PANELS;
use crate::plan::{LinearPhase, Operand};
use crate::pool::Worker;
use crate::weights::PackedJob;

/// Stretches of logits that share a peak which a worker takes at a time.
const STRETCHES: usize = 16;

/// The head, as the workers see it.
struct Head<'a> {
    job: &'a PackedJob,
    input: Input,
    logits: Operand,
}

impl Head<'_> {
    /// The panels of stretch `stretch`.
    fn panels(&self, stretch: usize) -> Range<usize> {
        let first = stretch * MANY_ROWS_PANELS;
        first..(first + MANY_ROWS_PANELS).min(self.job.n_panels())
    }

    /// The logits of some panels.
    fn cols(&self, panels: Range<usize>) -> Range<usize> {
        panels.start * PANEL_ROWS..(panels.end * PANEL_ROWS).min(self.logits.cols)
    }
}

impl Exec<'_> {
    /// Compute the greatest logit of the only row in phase `index`, whose only job is a split head.
    pub(super) fn greatest(
        &self,
        worker: &Worker<'_>,
        index: usize,
        phase: &LinearPhase,
        logits: Operand,
        scratch: &mut Scratch<'_>,
    ) {
        let jobs = self.weights.jobs(index);
        let input = self.input(worker, index, phase, scratch);
        let head = Head { job: &jobs[0], input, logits };
        let norm = self.norm(&head);
        let items = Items { jobs, n: 1, workers: worker.n };
        for item in self.shares[index].main.take(worker, items.len()) {
            let (_, panels) = items.get(item);
            self.at_most(&head, panels, norm, scratch);
        }
        worker.sync();
        let floor = self.floor(&head, scratch);
        worker.sync();
        let n_stretches = logits.cols.div_ceil(PEAK);
        for item in self.shares[index].side.take(worker, n_stretches.div_ceil(STRETCHES)) {
            for stretch in item * STRETCHES..((item + 1) * STRETCHES).min(n_stretches) {
                self.finish(&head, stretch, floor, scratch);
            }
        }
    }

    /// The activations as a matrix of the head reads them.
    fn row_of(&self, head: &Head<'_>) -> Activations<'_> {
        let format = ActFormat::Q8(head.input.source.q8.expect("a split head reads 8-bit blocks"));
        self.activations(&head.input.source, 0..1, None, format)
    }

    /// The norm of the activations.
    fn norm(&self, head: &Head<'_>) -> f32 {
        let Activations::Q8(x) = self.row_of(head) else { unreachable!("they are 8-bit blocks") };
        let blocks = x.codes[..x.cols].chunks_exact(32).zip(x.scales);
        let squares = blocks.map(|(codes, scale)| {
            let sum: i32 = codes.iter().map(|code| i32::from(*code) * i32::from(*code)).sum();
            f64::from(sum) * f64::from(*scale) * f64::from(*scale)
        });
        squares.sum::<f64>().sqrt() as f32
    }

    /// Multiply panels of one of the two matrices.
    fn run_matrix(
        &self,
        head: &Head<'_>,
        m: usize,
        panels: Range<usize>,
        (tile, scratch): (&mut [f32], &mut [u8]),
    ) {
        let bytes = &self.weights.arena()[head.job.bytes(panels, m)];
        head.job.matrices[m].kernel.run(bytes, (&self.row_of(head), &[]), tile, scratch);
    }

    /// Store what no logit of these panels is above, and find the peaks of that.
    fn at_most(&self, head: &Head<'_>, panels: Range<usize>, norm: f32, scratch: &mut Scratch<'_>) {
        let tile = &mut scratch.tiles[..panels.len() * PANEL_ROWS];
        self.run_matrix(head, 0, panels.clone(), (tile, scratch.kernel));
        let cols = head.cols(panels.clone());
        let bounds = &self.weights.head_bounds().expect("a split head has bounds")[cols.clone()];
        // SAFETY: an item's columns have one writer, and nobody reads them before the next barrier.
        let out = unsafe { self.value(head.logits).slice_mut(cols) };
        for ((out, coarse), bound) in out.iter_mut().zip(&*tile).zip(bounds) {
            *out = coarse + bound * norm;
        }
        self.peaks(head.logits, panels, 0..1);
    }

    /// Compute one panel in full; the result stands at the start of the tiles.
    fn whole<'s>(
        &self,
        head: &Head<'_>,
        panel: usize,
        scratch: &'s mut Scratch<'_>,
    ) -> &'s mut [f32] {
        let (tile, rest) = scratch.tiles.split_at_mut(PANEL_ROWS);
        let fine = &mut rest[..PANEL_ROWS];
        self.run_matrix(head, 0, panel..panel + 1, (tile, scratch.kernel));
        self.run_matrix(head, 1, panel..panel + 1, (fine, scratch.kernel));
        add(tile, fine);
        tile
    }

    /// A logit that the greatest is not below; every worker finds the same. Minus infinity if some are no numbers.
    fn floor(&self, head: &Head<'_>, scratch: &mut Scratch<'_>) -> f32 {
        // SAFETY: written before the last barrier; written again after the next one.
        let peaks = unsafe { self.peaks.slice(0..head.logits.cols.div_ceil(PEAK)) };
        let mut highest = 0;
        for (stretch, peak) in peaks.iter().enumerate() {
            if peak.is_nan() {
                return f32::NEG_INFINITY;
            }
            if *peak > peaks[highest] {
                highest = stretch;
            }
        }
        let mut floor = f32::NEG_INFINITY;
        for panel in head.panels(highest) {
            let n = head.cols(panel..panel + 1).len();
            floor = self.whole(head, panel, scratch)[..n].iter().copied().fold(floor, f32::max);
        }
        floor
    }

    /// Give the logits of a stretch: in full those of panels that reach the floor. What is no number reaches it.
    fn finish(&self, head: &Head<'_>, stretch: usize, floor: f32, scratch: &mut Scratch<'_>) {
        let reaches = |bound: &f32| bound.is_nan() || *bound >= floor;
        // SAFETY: a stretch and its peak have one writer since the last barrier, this worker.
        let peak = unsafe { self.peaks.slice_mut(stretch..stretch + 1) };
        let panels = head.panels(stretch);
        let first = panels.start * PANEL_ROWS;
        // SAFETY: as above.
        let logits = unsafe { self.value(head.logits).slice_mut(head.cols(panels.clone())) };
        if !reaches(&peak[0]) {
            logits.fill(LEFT_OUT);
            peak[0] = LEFT_OUT;
            return;
        }
        for panel in panels {
            let cols = head.cols(panel..panel + 1);
            let logits = &mut logits[cols.start - first..cols.end - first];
            if logits.iter().any(reaches) {
                let whole = self.whole(head, panel, scratch);
                logits.copy_from_slice(&whole[..logits.len()]);
                if let Some(n_whole) = self.n_whole {
                    n_whole.fetch_add(1, Ordering::Relaxed);
                }
            } else {
                logits.fill(LEFT_OUT);
            }
        }
        self.kernels.peaks(logits, peak);
    }
}

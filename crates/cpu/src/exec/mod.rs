//! Running a plan: every worker walks the phases and meets the others after each.

mod arrange;
mod attention;
mod experts;
mod latent;
mod linear;
mod route;
mod rows;
mod sort;

use std::ops::Range;
use std::time::{Duration, Instant};

use kernels::attention::{ATTEND, AttendFn, MERGE, MergeFn};
use kernels::linear::{QUANTIZE_Q8, QuantizeQ8};
use kernels::rows::{
    ADD, ADD_WEIGHTED, AddWeightedFn, BinaryFn, GATED_SIGMOID, GATED_SILU, PEAKS, PeaksFn,
    RMS_NORM, ROTATE, RmsNormFn, RotateFn,
};
use kernels::{Isa, Kernel};
use program::{Act, Gate, Rows};

pub(crate) use arrange::Arrangements;
pub(crate) use attention::scratch_floats;
pub(crate) use experts::{ExpertsShape, MixScratch};
pub(crate) use latent::{
    LatentKernels, LatentMemory, LatentNeeds, LatentScratch, LatentWorkspace, StepRows,
};
pub(crate) use linear::{kernel_scratch, q8_stride, tile_floats};

use crate::cache::CacheShape;
use crate::memory::Shared;
use crate::mla::MlaForm;
use crate::plan::{Operand, Phase, Plan};
use crate::pool::{Shares, Worker};
use crate::weights::Weights;

/// The kernels chosen for this CPU, matrices apart.
pub(crate) struct Kernels {
    rms_norm: &'static Kernel<RmsNormFn>,
    gated_silu: &'static Kernel<BinaryFn>,
    gated_sigmoid: &'static Kernel<BinaryFn>,
    add_weighted: &'static Kernel<AddWeightedFn>,
    add: &'static Kernel<BinaryFn>,
    rotate: &'static Kernel<RotateFn>,
    peaks: &'static Kernel<PeaksFn>,
    quantize_q8: &'static Kernel<QuantizeQ8>,
    attend: &'static Kernel<AttendFn>,
    merge: &'static Kernel<MergeFn>,
    latent: LatentKernels,
}

impl Kernels {
    pub(crate) fn pick(isa: Isa) -> Kernels {
        Kernels {
            rms_norm: RMS_NORM.pick(isa),
            gated_silu: GATED_SILU.pick(isa),
            gated_sigmoid: GATED_SIGMOID.pick(isa),
            add_weighted: ADD_WEIGHTED.pick(isa),
            add: ADD.pick(isa),
            rotate: ROTATE.pick(isa),
            peaks: PEAKS.pick(isa),
            quantize_q8: QUANTIZE_Q8.pick(isa),
            attend: ATTEND.pick(isa),
            merge: MERGE.pick(isa),
            latent: LatentKernels::pick(isa),
        }
    }

    /// See [`program::StepOut::peaks`]; NaN where a logit is not finite.
    pub(crate) fn peaks(&self, logits: &[f32], out: &mut [f32]) {
        self.peaks.call(logits, out);
    }

    fn gated_act(&self, act: Gate, gate: &[f32], up: &[f32], out: &mut [f32]) {
        match act {
            Gate::Act(Act::Silu) => self.gated_silu.call(gate, up, out),
            Gate::Act(Act::Sigmoid) => self.gated_sigmoid.call(gate, up, out),
            other => unreachable!("`lower` lets no {other:?} pass"),
        }
    }
}

/// The rows of one session in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceRows {
    /// Its first row in the step.
    pub(crate) first_row: usize,
    /// Its rows.
    pub(crate) n: usize,
    /// Position of its first row.
    pub(crate) start: usize,
}

/// Cosines and sines of every row for one rotation.
pub(crate) struct Angles {
    /// `[n_rows, n_pairs]`.
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
    pub(crate) n_pairs: usize,
}

/// Prepared inputs of linear layers.
#[derive(Clone, Copy)]
pub(crate) struct Acts<'a> {
    pub(crate) normed: Shared<'a, f32>,
    pub(crate) codes: Shared<'a, i8>,
    pub(crate) scales: Shared<'a, f32>,
    pub(crate) sums: Shared<'a, i32>,
    pub(crate) arranged: Shared<'a, i32>,
}

/// Memory of one worker.
pub(crate) struct Scratch<'a> {
    /// Outputs of an item: three times `[panels][n][16]`.
    pub(crate) tiles: &'a mut [f32],
    /// One row.
    pub(crate) row: &'a mut [f32],
    /// For linear kernels.
    pub(crate) kernel: &'a mut [u8],
    /// For attention.
    pub(crate) attention: &'a mut [f32],
    /// For latent attention.
    pub(crate) latent: LatentScratch<'a>,
}

/// Work lists of one phase.
pub(crate) struct PhaseShares {
    /// Its units or tiles.
    pub(crate) main: Shares,
    /// What comes before or after them, beyond an inner barrier.
    pub(crate) side: Shares,
    /// What comes last, beyond another.
    pub(crate) last: Shares,
}

/// Everything the workers share during one step.
pub(crate) struct Exec<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) weights: &'a Weights,
    pub(crate) kernels: &'a Kernels,
    pub(crate) tokens: &'a [u32],
    pub(crate) sequences: &'a [SequenceRows],
    /// `[sequence]`: how latent attention is computed.
    pub(crate) forms: &'a [MlaForm],
    /// Rows whose outputs are wanted.
    pub(crate) selected: &'a [usize],
    pub(crate) angles: &'a [Angles],
    /// `[cache]`: how its heads lie.
    pub(crate) attention: &'a [CacheShape],
    /// `[cache][sequence][block]`.
    pub(crate) blocks: &'a [Vec<Vec<Shared<'a, u8>>>],
    /// By value, as far as phases keep them.
    pub(crate) values: &'a [Shared<'a, f32>],
    pub(crate) acts: Acts<'a>,
    /// What the experts' gates and ups make: rows by expert.
    pub(crate) inner: Acts<'a>,
    /// `[worker]`.
    pub(crate) mixtures: Shared<'a, MixScratch>,
    pub(crate) partials: Shared<'a, f32>,
    /// Of the logits.
    pub(crate) peaks: Shared<'a, f32>,
    pub(crate) latent: LatentMemory<'a>,
    /// `[worker]`.
    pub(crate) scratch: &'a [ScratchParts<'a>],
    /// `[phase]`.
    pub(crate) shares: &'a [PhaseShares],
    /// `[phase]`: wall time, written by worker 0.
    pub(crate) times: Shared<'a, Duration>,
}

/// The memory [`Scratch`] is cut from.
pub(crate) struct ScratchParts<'a> {
    pub(crate) tiles: Shared<'a, f32>,
    pub(crate) row: Shared<'a, f32>,
    pub(crate) kernel: Shared<'a, u8>,
    pub(crate) attention: Shared<'a, f32>,
}

impl<'a> Exec<'a> {
    /// Run every phase as `worker`.
    pub(crate) fn run(&self, worker: &Worker<'_>) {
        let mut scratch = self.scratch(worker);
        // SAFETY: each worker takes its own, once per step.
        let mixture = unsafe { self.mixtures.slice_mut(worker.index..worker.index + 1) };
        let mixture = &mut mixture[0];
        let mut start = Instant::now();
        for (index, phase) in self.plan.phases.iter().enumerate() {
            match phase {
                Phase::Embed { table, out } => self.embed(worker, *table, *out),
                Phase::Rows(ops) => self.row_ops(worker, ops, mixture),
                Phase::Linear(linear) => self.linear(worker, index, linear, &mut scratch),
                Phase::Attention(attention) => {
                    self.attention(worker, index, attention, &mut scratch)
                }
                Phase::Latent(latent) => self.latent(worker, index, latent, &mut scratch),
                Phase::Expand(expand) => self.expand(worker, index, expand, &mut scratch),
                Phase::Experts(experts) => {
                    self.experts(worker, index, experts, (&mut scratch, mixture));
                }
                Phase::SelectRows { x, out } => self.select_rows(worker, *x, *out),
            }
            worker.sync();
            if worker.index == 0 {
                let end = Instant::now();
                // SAFETY: only this worker writes times, and nobody reads them before the step ends.
                let time = unsafe { self.times.slice_mut(index..index + 1) };
                time[0] = end - start;
                start = end;
            }
        }
    }

    fn rows_of(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens.len(),
            Rows::Selected => self.selected.len(),
        }
    }

    fn value(&self, operand: Operand) -> Shared<'a, f32> {
        self.values[operand.value.0 as usize]
    }

    /// Rows of an operand, to read.
    fn operand_rows(&self, operand: Operand, rows: Range<usize>) -> &'a [f32] {
        // SAFETY: an operand that a phase reads was written before the last barrier, or by this worker.
        unsafe { self.value(operand).slice(rows.start * operand.cols..rows.end * operand.cols) }
    }

    /// One row of an operand, to read.
    fn row(&self, operand: Operand, row: usize) -> &'a [f32] {
        self.operand_rows(operand, row..row + 1)
    }

    fn scratch(&self, worker: &Worker<'_>) -> Scratch<'a> {
        let parts = &self.scratch[worker.index];
        // SAFETY: each worker cuts its own parts, once per step.
        let tiles = unsafe { parts.tiles.all_mut() };
        // SAFETY: as above.
        let row = unsafe { parts.row.all_mut() };
        // SAFETY: as above.
        let kernel = unsafe { parts.kernel.all_mut() };
        // SAFETY: as above.
        let attention = unsafe { parts.attention.all_mut() };
        // SAFETY: as above.
        let latent = unsafe { self.latent.scratch(worker.index) };
        Scratch { tiles, row, kernel, attention, latent }
    }
}

/// The part of `0..n` that belongs to `worker`.
fn split(n: usize, worker: &Worker<'_>) -> Range<usize> {
    worker.index * n / worker.n..(worker.index + 1) * n / worker.n
}

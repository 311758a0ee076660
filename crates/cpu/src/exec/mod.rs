//! Running a plan: every worker walks the phases, each of which is one or more sections of work.

mod ahead;
mod arrange;
mod attention;
mod blocks;
mod certificate;
mod choices;
mod chosen;
mod context;
mod conv;
mod experts;
mod far;
mod indexer;
mod items;
mod keys;
mod latent;
mod linear;
mod meter;
mod product;
mod representatives;
mod route;
mod rows;
mod scan;
mod score;
mod selected;
mod smooth;
mod sort;
mod streams;
mod supers;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kernels::attention::{
    ATTEND, AttendFn, BLOCK, DOTS, DotsFn, MASSES, MERGE, MassesFn, MergeFn, PROMISE, PromiseFn,
    SCORE_SUMS, SCORES, ScoreSumsFn, ScoresFn,
};
use kernels::linear::{Activations, F32Rows, Q8Rows, QUANTIZE_Q8, QuantizeQ8};
use kernels::rows::{
    ACT, ADD, ADD_PRODUCT, ADD_WEIGHTED, ActFn, AddWeightedFn, BinaryFn, GATED, GatedFn,
    LAYER_NORM, NormFn, PEAKS, PeaksFn, RMS_NORM, ROTATE, RotateFn,
};
use kernels::scan::{SCAN, SELECTIVE_SCAN, ScanFn, SelectiveFn};
use kernels::{Isa, Kernel};
use program::{Meter, MeterReading, Rows};

pub(crate) use ahead::LastChoice;
pub(crate) use arrange::Arrangements;
pub(crate) use attention::{scratch_floats, split_floats};
pub(crate) use blocks::StepBlocks;
pub(crate) use choices::{ContextBuffers, ContextNeeds};
pub(crate) use experts::{ExpertsShape, MixScratch};
pub(crate) use indexer::{MOST_INDEX_HEADS, index_scores, index_scratch};
pub(crate) use latent::{
    LatentKernels, LatentMemory, LatentNeeds, LatentScratch, LatentWorkspace, StepRows,
};
pub(crate) use linear::{kernel_scratch, q8_stride, tile_floats};
use product::Products;
pub(crate) use scan::scan_floats;
pub(crate) use sort::BLOCK_ROWS;

use crate::cache::CacheShape;
use crate::memory::Shared;
use crate::mla::MlaForm;
use crate::plan::Operand;
use crate::pool::Worker;
use crate::schedule::{LoadedPhase, Schedule};
use crate::weights::WeightMemory;

/// The kernels chosen for this CPU, matrices apart.
pub(crate) struct Kernels {
    rms_norm: &'static Kernel<NormFn>,
    layer_norm: &'static Kernel<NormFn>,
    act: &'static Kernel<ActFn>,
    gated: &'static Kernel<GatedFn>,
    add_weighted: &'static Kernel<AddWeightedFn>,
    add: &'static Kernel<BinaryFn>,
    add_product: &'static Kernel<BinaryFn>,
    scan: &'static Kernel<ScanFn>,
    selective_scan: &'static Kernel<SelectiveFn>,
    rotate: &'static Kernel<RotateFn>,
    peaks: &'static Kernel<PeaksFn>,
    quantize_q8: &'static Kernel<QuantizeQ8>,
    attend: &'static Kernel<AttendFn>,
    merge: &'static Kernel<MergeFn>,
    promise: &'static Kernel<PromiseFn>,
    dots: &'static Kernel<DotsFn>,
    score_sums: &'static Kernel<ScoreSumsFn>,
    masses: &'static Kernel<MassesFn>,
    scores: &'static Kernel<ScoresFn>,
    latent: LatentKernels,
}

impl Kernels {
    pub(crate) fn pick(isa: Isa) -> Kernels {
        Kernels {
            rms_norm: RMS_NORM.pick(isa),
            layer_norm: LAYER_NORM.pick(isa),
            act: ACT.pick(isa),
            gated: GATED.pick(isa),
            add_weighted: ADD_WEIGHTED.pick(isa),
            add: ADD.pick(isa),
            add_product: ADD_PRODUCT.pick(isa),
            scan: SCAN.pick(isa),
            selective_scan: SELECTIVE_SCAN.pick(isa),
            rotate: ROTATE.pick(isa),
            peaks: PEAKS.pick(isa),
            quantize_q8: QUANTIZE_Q8.pick(isa),
            attend: ATTEND.pick(isa),
            merge: MERGE.pick(isa),
            promise: PROMISE.pick(isa),
            dots: DOTS.pick(isa),
            score_sums: SCORE_SUMS.pick(isa),
            masses: MASSES.pick(isa),
            scores: SCORES.pick(isa),
            latent: LatentKernels::pick(isa),
        }
    }

    /// See [`program::LogitRows::peaks`]; NaN where a logit is not finite.
    pub(crate) fn peaks(&self, logits: &[f32], out: &mut [f32]) {
        self.peaks.call(logits, out);
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

impl SequenceRows {
    /// Blocks of a cache that its rows fall into.
    fn blocks(&self) -> Range<usize> {
        self.start / BLOCK..(self.start + self.n).div_ceil(BLOCK)
    }
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

/// Columns of one row of [`Acts`].
#[derive(Clone, Copy)]
struct Columns {
    row: usize,
    /// Of the whole row.
    width: usize,
    /// The first of them.
    first: usize,
}

impl Columns {
    fn numbers(&self, n: usize) -> Range<usize> {
        let start = self.row * self.width + self.first;
        start..start + n
    }

    fn codes(&self, n: usize) -> Range<usize> {
        let start = self.row * q8_stride(self.width) + self.first;
        start..start + n
    }

    fn scales(&self, n: usize) -> Range<usize> {
        let all = self.numbers(n);
        all.start / 32..all.end / 32
    }

    fn sums(&self, n: usize) -> Range<usize> {
        let all = self.numbers(n);
        all.start / 16..all.end / 16
    }
}

impl Acts<'_> {
    /// Copy row `row` of `rows` to these columns.
    ///
    /// # Safety
    /// Nobody else reads or writes these columns before the section ends.
    unsafe fn put(&self, columns: Columns, rows: &Activations<'_>, row: usize) {
        match rows {
            Activations::F32(F32Rows { x, cols, stride, .. }) => {
                // SAFETY: the caller vouches for these columns.
                let place = unsafe { self.normed.slice_mut(columns.numbers(*cols)) };
                place.copy_from_slice(&x[row * stride..row * stride + cols]);
            }
            Activations::Q8(Q8Rows { codes, scales, sums, cols, stride, .. }) => {
                // SAFETY: as above.
                let place = unsafe { self.codes.slice_mut(columns.codes(*cols)) };
                place.copy_from_slice(&codes[row * stride..row * stride + cols]);
                let from = Columns { row, width: *cols, first: 0 };
                // SAFETY: as above.
                let place = unsafe { self.scales.slice_mut(columns.scales(*cols)) };
                place.copy_from_slice(&scales[from.scales(*cols)]);
                // SAFETY: as above.
                let place = unsafe { self.sums.slice_mut(columns.sums(*cols)) };
                place.copy_from_slice(&sums[from.sums(*cols)]);
            }
        }
    }
}

/// Memory of one worker.
pub(crate) struct Scratch<'a> {
    /// Outputs of an item: three times `[panels][n][16]`.
    pub(crate) tiles: &'a mut [f32],
    /// One row.
    pub(crate) row: &'a mut [f32],
    /// For linear kernels.
    products: Products<'a>,
    /// For attention.
    pub(crate) attention: &'a mut [f32],
    /// For latent attention.
    pub(crate) latent: LatentScratch<'a>,
}

/// Whether a step is still wanted.
pub(crate) type GoOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// Everything the workers share during one step.
pub(crate) struct Exec<'a> {
    pub(crate) schedule: &'a Schedule,
    /// Phases of outputs that the step does not ask for.
    pub(crate) skipped: [Option<usize>; 2],
    pub(crate) weights: &'a WeightMemory,
    pub(crate) kernels: &'a Kernels,
    pub(crate) tokens: &'a [u32],
    pub(crate) sequences: &'a [SequenceRows],
    /// `[sequence]`: how latent attention is computed.
    pub(crate) forms: &'a [MlaForm],
    /// Rows whose outputs are wanted.
    pub(crate) selected: &'a [usize],
    pub(crate) angles: &'a [Angles],
    /// By rotation, of a key and of a query that meet it from afar; empty where nothing is met so.
    pub(crate) far_angles: &'a [Angles],
    /// `[cache]`: how its heads lie.
    pub(crate) attention: &'a [CacheShape],
    pub(crate) blocks: &'a StepBlocks<'a>,
    /// `[sequence]`: empty where nothing lies on disk.
    pub(crate) last_choices: &'a [Arc<LastChoice>],
    /// Where policies are measured, and what came of it: of which sequence.
    pub(crate) meter: Option<&'a Meter>,
    pub(crate) readings: Mutex<Vec<(usize, MeterReading)>>,
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
    pub(crate) context: ContextBuffers<'a>,
    pub(crate) latent: LatentMemory<'a>,
    /// `[worker]`.
    pub(crate) scratch: &'a [ScratchParts<'a>],
    /// When the workers are called.
    pub(crate) started: Instant,
    /// Whether somebody still wants what comes of the step: asked by one worker.
    pub(crate) go_on: GoOn<'a>,
    /// Nobody does: workers leave before their next phase, and what they computed is worth nothing.
    pub(crate) stopped: AtomicBool,
    /// `[worker][phase]`: when it left the phase, from `started` on.
    pub(crate) ends: Shared<'a, Duration>,
    /// `[worker][phase]`: bytes of matrices that kernels read.
    pub(crate) reads: Shared<'a, u64>,
}

/// The memory [`Scratch`] is cut from.
pub(crate) struct ScratchParts<'a> {
    pub(crate) tiles: Shared<'a, f32>,
    pub(crate) row: Shared<'a, f32>,
    pub(crate) kernel: Shared<'a, u8>,
    pub(crate) attention: Shared<'a, f32>,
}

impl<'a> Exec<'a> {
    /// Run every phase as `worker`. Every worker calls the same sections, whatever of their work is left for it.
    pub(crate) fn run(&self, worker: &Worker<'_>) {
        let read = Cell::new(0);
        let mut scratch = self.scratch(worker, &read);
        let n_phases = self.schedule.phases.len();
        let own = worker.index * n_phases..(worker.index + 1) * n_phases;
        // SAFETY: each worker takes its own, once per step.
        let reads = unsafe { self.reads.slice_mut(own.clone()) };
        // SAFETY: as above.
        let ends = unsafe { self.ends.slice_mut(own) };
        // SAFETY: as above.
        let mixture = unsafe { self.mixtures.slice_mut(worker.index..worker.index + 1) };
        let mixture = &mut mixture[0];
        let mut end = self.started.elapsed();
        if worker.index == 0 {
            self.foresee(0);
        }
        for (index, phase) in self.schedule.phases.iter().enumerate() {
            ends[index] = end;
            if self.skipped.contains(&Some(index)) {
                continue;
            }
            if worker.index == 0 && !(self.go_on)() {
                self.stopped.store(true, Ordering::Relaxed);
            }
            if self.blocks.is_broken() {
                self.stopped.store(true, Ordering::Relaxed);
            }
            // who goes on meanwhile does all the work of the phase, as beside a worker that is late
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            match phase {
                LoadedPhase::Embed { table, by, out } => self.embed(worker, table, by, *out),
                LoadedPhase::Rows(ops) => self.row_ops(worker, ops, mixture),
                LoadedPhase::Linear(linear) => self.linear(worker, linear, &mut scratch),
                LoadedPhase::Attention(attention) => {
                    if worker.index == 0 {
                        self.foresee(index + 1);
                    }
                    self.attention(worker, attention, &mut scratch)
                }
                LoadedPhase::Conv(conv) => self.causal_conv(worker, conv),
                LoadedPhase::Scan(scan) => self.scan(worker, scan, &mut scratch),
                LoadedPhase::Indexer(indexer) => self.indexer(worker, indexer, &mut scratch),
                LoadedPhase::Latent(latent) => self.latent(worker, latent, &mut scratch),
                LoadedPhase::Expand(expand) => self.expand(worker, expand, &mut scratch),
                LoadedPhase::Experts(experts) => {
                    self.experts(worker, experts, &mut scratch, mixture)
                }
                LoadedPhase::SelectRows { x, out } => self.select_rows(worker, *x, *out),
                LoadedPhase::MeanRows { x, out } => self.mean_rows(worker, *x, *out),
            }
            reads[index] += read.take();
            end = self.started.elapsed();
            ends[index] = end;
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
        // SAFETY: an operand that a phase reads was written in a section before, or by this worker.
        unsafe { self.value(operand).slice(rows.start * operand.cols..rows.end * operand.cols) }
    }

    /// One row of an operand, to read.
    fn row(&self, operand: Operand, row: usize) -> &'a [f32] {
        self.operand_rows(operand, row..row + 1)
    }

    /// The memory of `worker`, who counts in `read`.
    fn scratch<'s>(&self, worker: &Worker<'_>, read: &'s Cell<u64>) -> Scratch<'s>
    where
        'a: 's,
    {
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
        let products = Products::new(kernel, read);
        Scratch { tiles, row, products, attention, latent }
    }
}

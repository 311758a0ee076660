//! Linear phases: prepare activations once, then units of panels dealt to the workers.

use std::ops::Range;

use kernels::linear::{ActFormat, Activations, F32Rows, PANEL_ROWS, Q8Rows};
use program::{Norm, PEAK};

use super::arrange::Arrangements;
use super::items::owner_of;
use super::{Acts, Columns, Exec, Scratch};
use crate::geometry::{LOCAL_ROWS, MANY_ROWS_PANELS, ROW_BLOCK, UNIT_PANELS};
use crate::plan::{Job, Link, Operand};
use crate::pool::Worker;
use crate::schedule::{LoadedJob, LoadedLinear};
use crate::tune::TunedKernel;
use crate::weights::PackedMatrix;

/// Rows that matrices read.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) x: Operand,
    pub(super) norm: Option<Norm>,
    /// Columns of the 8-bit blocks that kernels read of them, if any does.
    pub(super) q8: Option<usize>,
    /// Whether kernels read them as f32.
    pub(super) f32: bool,
    /// First row of the prepared input that belongs to this worker's view: its own copy, or the shared one.
    pub(super) base: usize,
}

impl Source {
    /// Of `n` rows for these matrices: few rows are prepared by every worker for itself.
    pub(super) fn new<'m>(
        x: Operand,
        norm: Option<Norm>,
        matrices: impl Iterator<Item = &'m PackedMatrix> + Clone,
        n: usize,
        worker: &Worker<'_>,
    ) -> Source {
        let base = if n <= LOCAL_ROWS { worker.index * LOCAL_ROWS } else { 0 };
        let f32 = matrices.clone().any(|m| m.kernel.act_format() == ActFormat::F32);
        Source { x, norm, q8: q8_block(matrices), f32, base }
    }
}

/// Columns of the 8-bit blocks that serve all kernels of these matrices: 256 if one of them needs that; `None` if all
/// read f32.
fn q8_block<'m>(matrices: impl Iterator<Item = &'m PackedMatrix>) -> Option<usize> {
    let blocks = matrices.filter_map(|m| match m.kernel.act_format() {
        ActFormat::Q8(block) => Some(block),
        ActFormat::F32 => None,
    });
    blocks.max()
}

/// The input of a linear phase, prepared.
struct Input {
    source: Source,
    arrangements: Arrangements,
}

impl<'a> Exec<'a> {
    pub(super) fn linear(
        &self,
        worker: &Worker<'_>,
        phase: &LoadedLinear,
        scratch: &mut Scratch<'_>,
    ) {
        let n = self.rows_of(phase.x.rows);
        if n == 0 {
            return;
        }
        let source = Source::new(phase.x, phase.norm, phase.matrices(), n, worker);
        let mut input = Input { source, arrangements: Arrangements::default() };
        if n > LOCAL_ROWS {
            input.arrangements = Arrangements::of(phase.matrices(), n);
            self.input(worker, &input, n, scratch);
        }
        worker.section(|section| {
            if n <= LOCAL_ROWS {
                (0..n).for_each(|row| self.prepare(&source, row, scratch));
            }
            let items = Items { jobs: &phase.jobs, n, workers: worker.n };
            for item in section.take(items.len()) {
                let (job, panels) = items.get(item);
                for first in (0..n).step_by(ROW_BLOCK) {
                    let rows = first..(first + ROW_BLOCK).min(n);
                    self.item(&input, job, panels.clone(), rows.clone(), scratch);
                    if let (Some(logits), true) = (self.schedule.logits, job.is_head) {
                        self.peaks(logits, panels.clone(), rows);
                    }
                }
            }
        });
    }

    /// Norm, quantize and rearrange many rows of input for all workers.
    fn input(&self, worker: &Worker<'_>, input: &Input, n: usize, scratch: &mut Scratch<'_>) {
        let Input { source, arrangements } = input;
        worker.section(|section| {
            section.take(n).for_each(|row| self.prepare(source, row, scratch));
        });
        if arrangements.is_empty() {
            return;
        }
        worker.section(|section| {
            for item in section.take(arrangements.n_tiles()) {
                let (part, tile) = arrangements.tile(item).expect("items count the tiles");
                let x = self.activations(source, part.rows.clone(), None, part.kernel.act_format());
                // SAFETY: tiles are dealt once each.
                let out = unsafe { self.acts.arranged.slice_mut(part.tile(tile)) };
                part.kernel.arrange(&x, tile, out);
            }
        });
    }

    /// Norm and quantize one row of the input.
    pub(super) fn prepare(&self, source: &Source, row: usize, scratch: &mut Scratch<'_>) {
        let (cols, base) = (source.x.cols, source.base);
        let x = self.row(source.x, row);
        let normed: &[f32] = match source.norm {
            None => x,
            Some(norm) => {
                let out = if source.f32 {
                    // SAFETY: rows of `normed` are dealt to one worker each, or `base` is its own.
                    unsafe {
                        self.acts.normed.slice_mut((base + row) * cols..(base + row + 1) * cols)
                    }
                } else {
                    &mut scratch.row[..cols]
                };
                self.norm(&norm, 0, x, out);
                out
            }
        };
        if let Some(block) = source.q8 {
            let columns = Columns { row: base + row, width: cols, first: 0 };
            // SAFETY: as above, each row has one writer.
            unsafe { self.quantize(&self.acts, columns, normed, block) }
        }
    }

    /// Quantize `x`, in blocks of `block` columns, to these columns of `acts`.
    ///
    /// # Safety
    /// Nobody else reads or writes these columns before the section ends.
    pub(super) unsafe fn quantize(
        &self,
        acts: &Acts<'_>,
        columns: Columns,
        x: &[f32],
        block: usize,
    ) {
        // SAFETY: the caller vouches for these columns.
        let codes = unsafe { acts.codes.slice_mut(columns.codes(x.len())) };
        // SAFETY: as above.
        let scales = unsafe { acts.scales.slice_mut(columns.scales(x.len())) };
        // SAFETY: as above.
        let sums = unsafe { acts.sums.slice_mut(columns.sums(x.len())) };
        self.kernels.quantize_q8.call(x, block, codes, scales, sums);
    }

    /// `rows` of the input, or those picked among them, as a kernel of this format reads them.
    pub(super) fn activations<'p>(
        &self,
        source: &Source,
        rows: Range<usize>,
        pick: Option<&'p [u32]>,
        format: ActFormat,
    ) -> Activations<'p>
    where
        'a: 'p,
    {
        let x = source.x;
        let (cols, n) = (x.cols, pick.map_or(rows.len(), <[u32]>::len));
        let (start, end) = (source.base + rows.start, source.base + rows.end);
        match format {
            ActFormat::F32 => {
                let x = if source.norm.is_some() {
                    // SAFETY: written in a section before, or by this worker in this one.
                    unsafe { self.acts.normed.slice(start * cols..end * cols) }
                } else {
                    self.operand_rows(x, rows)
                };
                Activations::F32(F32Rows { x, n, cols, stride: cols, pick })
            }
            ActFormat::Q8(_) => {
                let block = source.q8.expect("some kernel reads 8-bit blocks");
                let stride = q8_stride(cols);
                // SAFETY: written in a section before, or by this worker in this one.
                let codes = unsafe { self.acts.codes.slice(start * stride..end * stride) };
                // SAFETY: as above.
                let scales =
                    unsafe { self.acts.scales.slice(start * (cols / 32)..end * (cols / 32)) };
                // SAFETY: as above.
                let sums = unsafe { self.acts.sums.slice(start * (cols / 16)..end * (cols / 16)) };
                Activations::Q8(Q8Rows { codes, scales, sums, n, cols, block, stride, pick })
            }
        }
    }

    /// Multiply some panels with `rows` of the input and store the outputs.
    fn item(
        &self,
        input: &Input,
        job: &LoadedJob,
        panels: Range<usize>,
        rows: Range<usize>,
        scratch: &mut Scratch<'_>,
    ) {
        let LoadedJob { job, packed, .. } = job;
        let n = rows.len();
        let tile_len = panels.len() * n * PANEL_ROWS;
        let mut tiles = scratch.tiles.chunks_exact_mut(tile_len);
        let mut computed = [const { None }; 2];
        for (m, (matrix, parameters)) in packed.matrices.iter().zip(job.matrices()).enumerate() {
            let tile = tiles.next().expect("scratch holds three tiles");
            let x = self.activations(&input.source, rows.clone(), None, matrix.kernel.act_format());
            let arranged =
                input.arrangements.find(matrix.kernel, rows.start).map_or(&[][..], |part| {
                    // SAFETY: written in a section before.
                    unsafe { self.acts.arranged.slice(part.words()) }
                });
            let bytes = self.weights.panels(packed, 0, panels.clone(), m);
            scratch.products.run(matrix.kernel, bytes, &x, arranged, tile);
            if let Some(bias) = parameters.bias {
                add_bias(tile, self.weights.vector(bias), panels.start, n);
            }
            computed[m] = Some(tile);
        }
        match (job, computed) {
            (Job::Gated { act, out, .. }, [Some(gate), Some(up)]) => {
                let tile = tiles.next().expect("scratch holds three tiles");
                self.kernels.gated.call(*act, gate, up, tile);
                self.store(tile, *out, panels.start, rows, &[]);
            }
            (Job::One { links, out, .. }, [Some(tile), _]) => {
                self.store(tile, *out, panels.start, rows, links);
            }
            _ => unreachable!("a gated job has two matrices, any other has one"),
        }
    }

    /// Move a tile `[panels][rows][16]` to its place in `out`, through what is linked to it.
    pub(super) fn store(
        &self,
        tile: &mut [f32],
        out: Operand,
        first_panel: usize,
        rows: Range<usize>,
        links: &[Link],
    ) {
        // the sum that comes last is made on the way
        let (links, last) = match links {
            [links @ .., Link::Add(other)] => (links, Some(*other)),
            _ => (links, None),
        };
        let panel_len = rows.len() * PANEL_ROWS;
        let n_panels = tile.len() / panel_len;
        if !links.is_empty() {
            for (panel, tile) in tile.chunks_exact_mut(panel_len).enumerate() {
                let col = (first_panel + panel) * PANEL_ROWS;
                let cols = col..out.cols.min(col + PANEL_ROWS);
                links.iter().for_each(|link| self.link(link, tile, rows.clone(), cols.clone()));
            }
        }
        let lanes = tile.as_chunks::<PANEL_ROWS>().0;
        let cols = first_panel * PANEL_ROWS..out.cols.min((first_panel + n_panels) * PANEL_ROWS);
        // row by row: what is written together lies together
        for (i, row) in rows.clone().enumerate() {
            let start = row * out.cols;
            // SAFETY: a unit's columns have one writer, and no op of the phase reads the output.
            let place = unsafe { self.value(out).slice_mut(start + cols.start..start + cols.end) };
            let lanes = lanes[i..].iter().step_by(rows.len());
            match last {
                None => put(place, lanes, |place, lanes| *place = *lanes),
                Some(other) => {
                    place.copy_from_slice(&self.row(other, row)[cols.clone()]);
                    put(place, lanes, |place, lanes| {
                        place.iter_mut().zip(lanes).for_each(|(place, lane)| *place += lane);
                    });
                }
            }
        }
    }

    /// Find the peaks of logits that this worker just wrote: they are still in its caches.
    fn peaks(&self, out: Operand, panels: Range<usize>, rows: Range<usize>) {
        let n_peaks = out.cols.div_ceil(PEAK);
        let cols = panels.start * PANEL_ROWS..(panels.end * PANEL_ROWS).min(out.cols);
        for row in rows {
            let at = row * n_peaks;
            // SAFETY: items begin at multiples of `PEAK` columns, so each peak has one writer.
            let peaks = unsafe {
                self.peaks.slice_mut(at + cols.start / PEAK..at + cols.end.div_ceil(PEAK))
            };
            let start = row * out.cols;
            // SAFETY: this worker wrote these columns, and nobody else does.
            let logits = unsafe { self.value(out).slice(start + cols.start..start + cols.end) };
            self.kernels.peaks(logits, peaks);
        }
    }

    /// Apply a link to one panel's outputs `[rows][16]`, which stand in columns `cols`.
    fn link(&self, link: &Link, tile: &mut [f32], rows: Range<usize>, cols: Range<usize>) {
        match *link {
            Link::Add(other) => {
                for (row, lanes) in rows.zip(tile.chunks_exact_mut(PANEL_ROWS)) {
                    for (lane, other) in lanes.iter_mut().zip(&self.row(other, row)[cols.clone()]) {
                        *lane += other;
                    }
                }
            }
            Link::Act(act) => self.kernels.act.call(act, tile),
            Link::Gate { act, up } => {
                self.kernels.act.call(act, tile);
                for (row, lanes) in rows.zip(tile.chunks_exact_mut(PANEL_ROWS)) {
                    for (lane, up) in lanes.iter_mut().zip(&self.row(up, row)[cols.clone()]) {
                        *lane *= up;
                    }
                }
            }
            Link::Gated { act, gate } => {
                let mut factors = [0.0; PANEL_ROWS];
                let gates = self.operand_rows(gate, rows).chunks(PANEL_ROWS);
                for (gates, tile) in gates.zip(tile.chunks_mut(PANEL_ROWS * PANEL_ROWS)) {
                    let factors = &mut factors[..gates.len()];
                    factors.copy_from_slice(gates);
                    self.kernels.act.call(act, factors);
                    for (lanes, factor) in tile.chunks_exact_mut(PANEL_ROWS).zip(factors) {
                        lanes.iter_mut().for_each(|lane| *lane *= *factor);
                    }
                }
            }
        }
    }
}

/// What the workers of a linear phase take one by one.
struct Items<'a> {
    jobs: &'a [LoadedJob],
    /// Rows of the input.
    n: usize,
    workers: usize,
}

impl<'a> Items<'a> {
    fn cut(&self, job: &LoadedJob) -> usize {
        panels_per_item(job.packed.n_panels(), self.n, self.workers)
    }

    fn of(&self, job: &LoadedJob) -> usize {
        job.packed.n_panels().div_ceil(self.cut(job))
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.jobs.iter().map(|job| self.of(job)).sum()
    }

    /// The job and the panels of an item.
    fn get(&self, item: usize) -> (&'a LoadedJob, Range<usize>) {
        let (at, item) = owner_of(self.jobs, item, |job| self.of(job));
        let (job, size) = (&self.jobs[at], self.cut(&self.jobs[at]));
        (job, item * size..((item + 1) * size).min(job.packed.n_panels()))
    }
}

/// Panels a worker takes at a time: with many rows few, whose outputs stay in the second-level cache; with few rows as
/// many as the workers can share evenly, for each start costs as much as some kilobytes of weights.
fn panels_per_item(n_panels: usize, n: usize, workers: usize) -> usize {
    if n > LOCAL_ROWS { MANY_ROWS_PANELS } else { even_panels(n_panels, 1, workers) }
}

/// Panels of an item of few rows, where that many panels are to be shared `copies` times.
pub(super) fn even_panels(n_panels: usize, copies: usize, workers: usize) -> usize {
    let even = |size: &usize| {
        let items = copies * n_panels.div_ceil(*size);
        n_panels.is_multiple_of(*size) && items.is_multiple_of(workers) || items >= 16 * workers
    };
    [UNIT_PANELS, UNIT_PANELS / 2].into_iter().find(even).unwrap_or(MANY_ROWS_PANELS)
}

/// Floats of a worker's tiles for steps of up to `n` rows.
pub(crate) fn tile_floats(n: usize) -> usize {
    let few = UNIT_PANELS * n.min(LOCAL_ROWS);
    3 * PANEL_ROWS * few.max(MANY_ROWS_PANELS * n.min(ROW_BLOCK))
}

/// Bytes from one row of 8-bit codes to the next: whole cache lines, and no power of two.
pub(crate) fn q8_stride(cols: usize) -> usize {
    cols.next_multiple_of(64) + 64
}

/// Do with each 16 places what their lanes say; the last may be fewer.
#[inline(always)]
fn put<'a>(
    place: &mut [f32],
    lanes: impl Iterator<Item = &'a [f32; PANEL_ROWS]>,
    write: impl Fn(&mut [f32; PANEL_ROWS], &[f32; PANEL_ROWS]),
) {
    let mut lanes = lanes;
    let (whole, rest) = place.as_chunks_mut::<PANEL_ROWS>();
    for (place, lanes) in whole.iter_mut().zip(&mut lanes) {
        write(place, lanes);
    }
    if let (false, Some(lanes)) = (rest.is_empty(), lanes.next()) {
        let mut part = [0.0; PANEL_ROWS];
        part[..rest.len()].copy_from_slice(rest);
        write(&mut part, lanes);
        rest.copy_from_slice(&part[..rest.len()]);
    }
}

pub(super) fn add_bias(tile: &mut [f32], bias: &[f32], first_panel: usize, n: usize) {
    for (panel, tile) in tile.chunks_exact_mut(n * PANEL_ROWS).enumerate() {
        let col = (first_panel + panel) * PANEL_ROWS;
        let bias = &bias[col..bias.len().min(col + PANEL_ROWS)];
        for lanes in tile.chunks_exact_mut(PANEL_ROWS) {
            for (lane, bias) in lanes.iter_mut().zip(bias) {
                *lane += bias;
            }
        }
    }
}

/// Largest scratch any of these kernels asks for, in bytes.
pub(crate) fn kernel_scratch(kernels: impl Iterator<Item = TunedKernel>) -> usize {
    kernels.map(|kernel| kernel.scratch_bytes()).max().unwrap_or(0)
}

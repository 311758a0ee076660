//! Phases of experts: rows sorted by expert, then two rounds of work over all experts.
//!
//! ```text
//! norm, quantize, route | sort; arrange      few rows: by every worker for itself
//! gate, up, activation, quantize             an item: some panels of one expert, its rows (at most a block)
//! down, weighted sum                         an item: some panels of all experts, all rows
//! ```
//! A row adds its experts in ascending order of their ids, so nothing depends on how rows or panels are cut.

use std::ops::Range;

use kernels::linear::{ActFormat, Activations, F32Rows, PANEL_ROWS, Q8_WHOLE, Q8Rows};
use program::{Router, WeightId};

use super::linear::{Source, add_bias, even_panels, q8_stride};
use super::route::{RouteScratch, route};
use super::sort::{BLOCK_ROWS, ExpertRows, Routing};
use super::{Acts, Columns, Exec, Scratch};
use crate::geometry::{LOCAL_ROWS, MANY_ROWS_PANELS, UNIT_PANELS};
use crate::plan::{ExpertsPhase, Routes};
use crate::pool::Worker;
use crate::schedule::LoadedExperts;
use crate::tune::TunedKernel;
use crate::weights::{PackedJob, PackedMatrix};

/// Panels times rows of an item whose panels are cut to its rows: its three tiles stay in the second-level cache. Where
/// down reads blocks of 256, items have whole blocks instead, and tiles of up to 3 x 256 KB: little beside their products.
const ITEM_LINES: usize = 512;
/// Up to this many rows, items of the second round are long: their sums are few.
const LONG_ROWS: usize = 32;

/// What one worker needs for phases of experts; its memory is kept between steps.
#[derive(Default)]
pub(crate) struct MixScratch {
    pub(crate) route: RouteScratch,
    routing: Routing,
    /// Routes of few rows.
    routes: Vec<f32>,
    /// An item's outputs in 8-bit blocks, before they are arranged.
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

/// One phase in this step.
struct Mixture<'a> {
    phase: &'a ExpertsPhase,
    source: Source,
    /// Gates and ups.
    wide: &'a PackedJob,
    down: &'a PackedJob,
    /// Rows.
    n: usize,
    workers: usize,
    /// Once this worker has sorted the rows in its memory.
    sorted: Option<Sorted>,
}

/// How much work sorted rows are.
#[derive(Clone, Copy, Default)]
struct Sorted {
    n_items: usize,
    n_tiles: usize,
}

impl Mixture<'_> {
    fn hidden(&self) -> usize {
        self.phase.x.cols
    }

    fn width(&self) -> usize {
        self.down.matrices[0].cols
    }

    fn kernel(&self, m: usize) -> TunedKernel {
        self.wide.matrices[m].kernel
    }

    /// The matrices whose kernels want rows arranged in ways of their own.
    fn arranged(&self) -> Range<usize> {
        let alike = self.wide.matrices.len() == 1 || self.kernel(0) == self.kernel(1);
        0..if alike { 1 } else { 2 }
    }

    /// Tiles of a block's input for matrix `m`.
    fn tiles(&self, m: usize, n: usize) -> usize {
        self.kernel(m).tiling(n, self.hidden()).map_or(0, |tiling| tiling.n_tiles)
    }

    /// Panels of gate and up in an item of `n` rows.
    fn wide_panels(&self, n: usize) -> usize {
        if self.n <= LOCAL_ROWS {
            return even_panels(self.wide.n_panels(), self.n * self.phase.n_used, self.workers);
        }
        if self.down.reads(ActFormat::Q8(Q8_WHOLE)) {
            // the columns of an item are whole blocks
            return UNIT_PANELS;
        }
        let fits = |size: &usize| size * n <= ITEM_LINES;
        [UNIT_PANELS, UNIT_PANELS / 2].into_iter().find(fits).unwrap_or(MANY_ROWS_PANELS)
    }

    /// Whether inner rows are quantized after the first round, because its items have less than a block of them.
    fn later(&self) -> bool {
        quantized_later(self.down, self.n)
    }

    /// Panels of down in an item.
    fn down_panels(&self) -> usize {
        if self.n > LONG_ROWS {
            return MANY_ROWS_PANELS;
        }
        even_panels(self.down.n_panels(), 1, self.workers)
    }

    /// Number items and tiles, and give arranged rows their places.
    fn place(&self, blocks: &mut [ExpertRows]) -> Sorted {
        let mut sorted = Sorted::default();
        let (mut words, mut inner_words) = (0, 0);
        let down = &self.down.matrices[0];
        for block in blocks {
            (block.first_item, block.first_tile) = (sorted.n_items, sorted.n_tiles);
            block.words = [words, words, inner_words];
            sorted.n_items += self.wide.n_panels().div_ceil(self.wide_panels(block.n));
            for m in self.arranged() {
                block.words[m] = words;
                if let Some(tiling) = self.kernel(m).tiling(block.n, self.hidden()) {
                    sorted.n_tiles += tiling.n_tiles;
                    words += tiling.words();
                }
            }
            if let Some(tiling) = down.kernel.tiling(block.n, down.cols) {
                inner_words += tiling.words();
            }
        }
        sorted
    }
}

/// Some columns of a block's inner rows.
struct InnerRows<'a> {
    /// `[n][cols]`.
    x: &'a [f32],
    cols: Range<usize>,
}

impl<'a> Exec<'a> {
    pub(super) fn experts(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedExperts,
        scratch: &mut Scratch<'_>,
        mixture: &mut MixScratch,
    ) {
        let LoadedExperts { phase, wide, down } = loaded;
        let n = self.rows_of(phase.x.rows);
        if n == 0 {
            return;
        }
        let source = Source::new(phase.x, phase.norm, wide.matrices.iter(), n, worker);
        let workers = worker.n;
        let mut mix = Mixture { phase, source, wide, down, n, workers, sorted: None };
        if n > LOCAL_ROWS {
            worker.section(|section| {
                for row in section.take(n) {
                    self.prepare(&source, row, scratch);
                    self.route_row(&mix, row, &mut mixture.route);
                }
            });
            worker.section(|section| {
                let sorted = self.sorted(&mut mix, mixture);
                for tile in section.take(sorted.n_tiles) {
                    self.arrange_tile(&mix, &mixture.routing, tile);
                }
            });
        }
        worker.section(|section| {
            let sorted = self.sorted(&mut mix, mixture);
            if n <= LOCAL_ROWS {
                (0..n).for_each(|row| self.prepare(&source, row, scratch));
            }
            section.take(sorted.n_items).for_each(|item| self.widen(&mix, item, scratch, mixture));
        });
        if mix.later() {
            worker.section(|section| {
                let rows = section.take(n * phase.n_used);
                rows.for_each(|row| self.quantize_inner(&mix, row));
            });
        }
        worker.section(|section| {
            self.sorted(&mut mix, mixture);
            let size = mix.down_panels();
            for item in section.take(down.n_panels().div_ceil(size)) {
                let panels = item * size..((item + 1) * size).min(down.n_panels());
                self.narrow(&mix, &mixture.routing, panels, scratch);
            }
        });
    }

    /// Choose the experts of a row by its scores.
    pub(super) fn route(
        &self,
        scores: &[f32],
        router: &Router,
        out: &mut [f32],
        scratch: &mut RouteScratch,
    ) {
        let [bias, factors] =
            [router.bias, router.factors].map(|id| id.map(|id| self.weights.vector(id)));
        route(scores, router, [bias, factors], out, scratch);
    }

    /// Route one of many rows, where that is left to this phase.
    fn route_row(&self, mix: &Mixture<'_>, row: usize, scratch: &mut RouteScratch) {
        if let Routes::Scores { scores, router, routes } = &mix.phase.routes {
            let place = row * 2 * mix.phase.n_used..(row + 1) * 2 * mix.phase.n_used;
            // SAFETY: rows are dealt to one worker each, and read in later sections.
            let out = unsafe { self.value(*routes).slice_mut(place) };
            self.route(self.row(*scores, row), router, out, scratch);
        }
    }

    /// Sort the rows by expert in this worker's memory, if it has not yet. It can do so in any section, for the others may
    /// have ended those before without it.
    fn sorted(&self, mix: &mut Mixture<'_>, mixture: &mut MixScratch) -> Sorted {
        if let Some(sorted) = mix.sorted {
            return sorted;
        }
        let ExpertsPhase { n_experts, n_used, ref routes, .. } = *mix.phase;
        let MixScratch { route: scratch, routing, routes: own, .. } = mixture;
        let routes = match routes {
            Routes::Scores { scores, router, .. } if mix.n <= LOCAL_ROWS => {
                own.resize(mix.n * 2 * n_used, 0.0);
                for (row, out) in own.chunks_exact_mut(2 * n_used).enumerate() {
                    self.route(self.row(*scores, row), router, out, scratch);
                }
                &own[..]
            }
            Routes::Given(routes) | Routes::Scores { routes, .. } => {
                self.operand_rows(*routes, 0..mix.n)
            }
        };
        routing.sort(routes, n_experts, n_used);
        *mix.sorted.insert(mix.place(&mut routing.blocks))
    }

    /// Arrange some rows of one expert for its gate or up.
    fn arrange_tile(&self, mix: &Mixture<'_>, routing: &Routing, number: usize) {
        let block = routing.block_of_tile(number);
        let (mut tile, mut m) = (number - block.first_tile, 0);
        if tile >= mix.tiles(0, block.n) {
            (tile, m) = (tile - mix.tiles(0, block.n), 1);
        }
        let kernel = mix.kernel(m);
        let tiling = kernel.tiling(block.n, mix.hidden()).expect("items count the tiles");
        let pick = Some(&routing.rows[block.places()]);
        let x = self.activations(&mix.source, 0..mix.n, pick, kernel.act_format());
        let start = block.words[m] + tile * tiling.tile_words;
        // SAFETY: tiles are dealt once each.
        let out = unsafe { self.acts.arranged.slice_mut(start..start + tiling.tile_words) };
        kernel.arrange(&x, tile, out);
    }

    /// First round: some columns of one expert's inner rows.
    fn widen(
        &self,
        mix: &Mixture<'_>,
        item: usize,
        scratch: &mut Scratch<'_>,
        mixture: &mut MixScratch,
    ) {
        let block = *mixture.routing.block_of_item(item);
        let (n, size) = (block.n, mix.wide_panels(block.n));
        let first = (item - block.first_item) * size;
        let panels = first..(first + size).min(mix.wide.n_panels());
        let len = panels.len() * n * PANEL_ROWS;
        let (gate, rest) = scratch.tiles.split_at_mut(len);
        let (up, rest) = rest.split_at_mut(len);
        let pick = Some(&mixture.routing.rows[block.places()]);
        let tiles = [&mut *gate, &mut *up].into_iter().take(mix.wide.matrices.len());
        for (m, tile) in tiles.enumerate() {
            let kernel = mix.kernel(m);
            let x = self.activations(&mix.source, 0..mix.n, pick, kernel.act_format());
            let place = block.words[if mix.arranged().len() == 1 { 0 } else { m }];
            let words = kernel.tiling(n, mix.hidden()).map_or(0, |tiling| tiling.words());
            // SAFETY: written in a section before.
            let arranged = unsafe { self.acts.arranged.slice(place..place + words) };
            let bytes = self.weights.panels(mix.wide, block.expert, panels.clone(), m);
            scratch.products.run(kernel, bytes, &x, arranged, tile);
            if let Some(biases) = &mix.phase.biases {
                let bias = self.expert_bias([biases.gate, biases.up][m], block.expert, mix.width());
                add_bias(tile, bias, panels.start, n);
            }
            if mix.phase.weighs_inputs {
                let weights = &mixture.routing.weights[block.places()];
                for rows in tile.chunks_exact_mut(n * PANEL_ROWS) {
                    for (lanes, weight) in rows.chunks_exact_mut(PANEL_ROWS).zip(weights) {
                        lanes.iter_mut().for_each(|lane| *lane *= weight);
                    }
                }
            }
        }
        let act = &mut rest[..len];
        match mix.phase.alone {
            None => self.kernels.gated.call(mix.phase.act, gate, up, act),
            Some(alone) => {
                act.copy_from_slice(gate);
                self.kernels.act.call(alone, act);
            }
        }
        let cols = panels.start * PANEL_ROWS..mix.width().min(panels.end * PANEL_ROWS);
        let rows = &mut gate[..n * cols.len()];
        for (panel, tile) in act.chunks_exact(n * PANEL_ROWS).enumerate() {
            let at = panel * PANEL_ROWS;
            let width = PANEL_ROWS.min(cols.len() - at);
            for (row, lanes) in rows.chunks_exact_mut(cols.len()).zip(tile.chunks_exact(PANEL_ROWS))
            {
                row[at..at + width].copy_from_slice(&lanes[..width]);
            }
        }
        self.store_inner(mix, &block, InnerRows { x: rows, cols }, mixture);
    }

    /// Keep columns `cols` of a block's inner rows, `[n][cols]`, as the kernel of down reads them.
    fn store_inner(
        &self,
        mix: &Mixture<'_>,
        block: &ExpertRows,
        inner: InnerRows<'_>,
        mixture: &mut MixScratch,
    ) {
        let ExpertRows { n, start, words: [.., words], .. } = *block;
        let InnerRows { x, cols } = inner;
        let (kernel, width, part) = (mix.down.matrices[0].kernel, mix.width(), cols.len());
        let format = if mix.later() { ActFormat::F32 } else { kernel.act_format() };
        let rows = match format {
            ActFormat::F32 => {
                Activations::F32(F32Rows { x, n, cols: part, stride: part, pick: None })
            }
            ActFormat::Q8(block) => {
                let MixScratch { codes, scales, sums, .. } = mixture;
                codes.resize(n * part, 0);
                scales.resize(n * part / 32, 0.0);
                sums.resize(n * part / 16, 0);
                // blocks do not see each other: all rows are one
                self.kernels.quantize_q8.call(x, block, codes, scales, sums);
                let stride = part;
                Activations::Q8(Q8Rows {
                    codes,
                    scales,
                    sums,
                    n,
                    cols: part,
                    block,
                    stride,
                    pick: None,
                })
            }
        };
        let (Some(all), Some(some)) = (kernel.tiling(n, width), kernel.tiling(n, part)) else {
            let columns = Columns { row: start, width, first: cols.start };
            for row in 0..n {
                // SAFETY: columns of a block belong to one item.
                unsafe { self.inner.put(Columns { row: start + row, ..columns }, &rows, row) }
            }
            return;
        };
        for tile in 0..all.n_tiles {
            // columns stand one after another in a tile
            let at = words + tile * all.tile_words + all.tile_words * cols.start / width;
            // SAFETY: as above.
            let out = unsafe { self.inner.arranged.slice_mut(at..at + some.tile_words) };
            kernel.arrange(&rows, tile, out);
        }
    }

    /// Quantize one of the few inner rows that the first round left in f32.
    fn quantize_inner(&self, mix: &Mixture<'_>, row: usize) {
        let width = mix.width();
        // SAFETY: written in a section before.
        let x = unsafe { self.inner.normed.slice(row * width..(row + 1) * width) };
        let columns = Columns { row, width, first: 0 };
        // SAFETY: each row has one writer.
        unsafe { self.quantize(&self.inner, columns, x, Q8_WHOLE) }
    }

    /// A block's inner rows as the kernel of down reads them.
    fn inner_rows(&self, mix: &Mixture<'_>, block: &ExpertRows) -> Activations<'a> {
        let (n, cols) = (block.n, mix.width());
        let at = block.places();
        let Acts { normed, codes, scales, sums, .. } = self.inner;
        match mix.down.matrices[0].kernel.act_format() {
            ActFormat::F32 => {
                // SAFETY: written in a section before.
                let x = unsafe { normed.slice(at.start * cols..at.end * cols) };
                Activations::F32(F32Rows { x, n, cols, stride: cols, pick: None })
            }
            ActFormat::Q8(block) => {
                let stride = q8_stride(cols);
                // SAFETY: as above.
                let codes = unsafe { codes.slice(at.start * stride..at.end * stride) };
                // SAFETY: as above.
                let scales = unsafe { scales.slice(at.start * cols / 32..at.end * cols / 32) };
                // SAFETY: as above.
                let sums = unsafe { sums.slice(at.start * cols / 16..at.end * cols / 16) };
                Activations::Q8(Q8Rows { codes, scales, sums, n, cols, block, stride, pick: None })
            }
        }
    }

    /// One expert's part of a bias.
    fn expert_bias(&self, id: WeightId, expert: usize, len: usize) -> &'a [f32] {
        &self.weights.vector(id)[expert * len..(expert + 1) * len]
    }

    /// Second round: some columns of the outputs.
    fn narrow(
        &self,
        mix: &Mixture<'_>,
        routing: &Routing,
        panels: Range<usize>,
        scratch: &mut Scratch<'_>,
    ) {
        let kernel = mix.down.matrices[0].kernel;
        let panel_len = mix.n * PANEL_ROWS;
        let (sums, rest) = scratch.tiles.split_at_mut(panels.len() * panel_len);
        sums.fill(0.0);
        for block in &routing.blocks {
            let x = self.inner_rows(mix, block);
            let words = kernel.tiling(block.n, mix.width()).map_or(0, |tiling| tiling.words());
            // SAFETY: written in a section before.
            let arranged =
                unsafe { self.inner.arranged.slice(block.words[2]..block.words[2] + words) };
            let tile = &mut rest[..panels.len() * block.n * PANEL_ROWS];
            let bytes = self.weights.panels(mix.down, block.expert, panels.clone(), 0);
            scratch.products.run(kernel, bytes, &x, arranged, tile);
            if let Some(biases) = &mix.phase.biases {
                let bias = self.expert_bias(biases.down, block.expert, mix.hidden());
                add_bias(tile, bias, panels.start, block.n);
            }
            let rows = &routing.rows[block.places()];
            let weights = match mix.phase.weighs_inputs {
                true => self.weights.ones(rows.len()),
                false => &routing.weights[block.places()],
            };
            let tiles = tile.chunks_exact(block.n * PANEL_ROWS);
            for (tile, sums) in tiles.zip(sums.chunks_exact_mut(panel_len)) {
                self.kernels.add_weighted.call(tile, rows, weights, sums);
            }
        }
        self.store(sums, mix.phase.out, panels.start, 0..mix.n, &mix.phase.links);
    }
}

/// What a phase of experts wants of the workspace.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExpertsShape {
    /// Rows of experts: the step's, as often as each uses experts.
    pub(crate) inner_rows: usize,
    /// Columns of inner rows.
    pub(crate) width: usize,
    /// Whether inner rows are kept as 8-bit blocks and as f32.
    pub(crate) q8: bool,
    pub(crate) f32: bool,
    /// Words of arranged inputs and of arranged inner rows.
    pub(crate) words: usize,
    pub(crate) inner_words: usize,
    /// Floats of a worker's tiles.
    pub(crate) tile_floats: usize,
}

impl ExpertsShape {
    /// For `n` rows of `hidden` columns.
    pub(crate) fn new(loaded: &LoadedExperts, n: usize) -> ExpertsShape {
        let LoadedExperts { phase, wide, down, .. } = loaded;
        let inner_rows = n * phase.n_used;
        let words = |m: &PackedMatrix| most_words(m.kernel, inner_rows, m.cols);
        let [gate, up] = [0, wide.matrices.len() - 1].map(|m| &wide.matrices[m]);
        let alike = gate.kernel == up.kernel;
        let few = n <= LOCAL_ROWS;
        let whole = down.reads(ActFormat::Q8(Q8_WHOLE));
        let most = if whole { UNIT_PANELS * BLOCK_ROWS } else { MANY_ROWS_PANELS * BLOCK_ROWS };
        let lines = ITEM_LINES.max(most).min(UNIT_PANELS * n);
        let panels = if n > LONG_ROWS { MANY_ROWS_PANELS } else { UNIT_PANELS };
        let sums = panels * (n + n.min(BLOCK_ROWS));
        ExpertsShape {
            inner_rows,
            width: down.matrices[0].cols,
            q8: !down.reads(ActFormat::F32),
            f32: down.reads(ActFormat::F32) || quantized_later(down, n),
            words: if few { 0 } else { words(gate) + if alike { 0 } else { words(up) } },
            inner_words: if few { 0 } else { words(&down.matrices[0]) },
            tile_floats: PANEL_ROWS * (3 * lines).max(sums),
        }
    }

    /// Enough for both.
    pub(crate) fn or(self, other: ExpertsShape) -> ExpertsShape {
        ExpertsShape {
            inner_rows: self.inner_rows.max(other.inner_rows),
            width: self.width.max(other.width),
            q8: self.q8 || other.q8,
            f32: self.f32 || other.f32,
            words: self.words.max(other.words),
            inner_words: self.inner_words.max(other.inner_words),
            tile_floats: self.tile_floats.max(other.tile_floats),
        }
    }
}

/// Whether the inner rows of `n` rows are quantized after the first round: few rows are shared in items that are smaller
/// than a block.
fn quantized_later(down: &PackedJob, n: usize) -> bool {
    n <= LOCAL_ROWS && down.reads(ActFormat::Q8(Q8_WHOLE))
}

/// Words that `n` rows of `cols` columns take at most once arranged, however experts share them: in each block of
/// `b` rows, at most `b / rows of a tile` of them stand twice.
fn most_words(kernel: TunedKernel, n: usize, cols: usize) -> usize {
    kernel.tiling(BLOCK_ROWS, cols).map_or(0, |tiling| {
        (n + n.div_ceil(BLOCK_ROWS) * tiling.n_tiles) * (tiling.tile_words / tiling.tile_rows)
    })
}

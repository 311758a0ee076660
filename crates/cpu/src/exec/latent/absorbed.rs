//! Queries brought to the latents: `q_abs = k_b q_nope`, attention over cached rows, `out = v_b z`.
//!
//! Elided: query rows of all heads go over the cached rows as they are. Absorbed: each head copies the rows `[c | k_pe]`
//! and the values `c` of a block for itself and attends to them as to any keys and values.

use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, Partials};
use kernels::latent::{LATENT_TILE, LatentQueries, LatentRows, LatentShape, latent_scratch_floats};
use kernels::linear::{F32Rows, PANEL_ROWS};

use super::super::chosen::ChosenRow;
use super::super::score::HeadRow;
use super::super::{Exec, Scratch};
use super::StepRows;
use super::cut::{self, Batch, Item, Run, batches, partial_floats};
use super::heads::{HeadInput, HeadProduct, ProductScratch, tile_floats};
use crate::cache::LatentCache;
use crate::geometry::TILE_ROWS;
use crate::mla::{MlaDims, MlaForm};
use crate::plan::{Chosen, LatentInputs, LatentPhase};
use crate::pool::Worker;
use crate::schedule::LoadedLatent;
use crate::weights::HeadMatrix;

/// Floats a worker needs to attend with up to `rows` query rows.
pub(super) fn elided_floats(shape: &LatentShape, rows: usize) -> usize {
    2 * rows * partial_floats(shape.rank) + latent_scratch_floats(rows, shape)
}

/// Floats of the rows of a call, where they have to be brought together.
pub(super) fn gathered_floats(shape: &LatentShape) -> usize {
    LATENT_TILE * shape.row_bytes().div_ceil(size_of::<f32>())
}

/// Floats a worker needs to attend with copied rows.
pub(super) fn absorbed_floats(shape: &LatentShape) -> usize {
    let head = shape.head();
    let copies = (head.key_bytes() + head.value_bytes()) / size_of::<f32>() + shape.width();
    let attention = kernels::attention::scratch_floats(TILE_ROWS, &head);
    copies + TILE_ROWS * (shape.width() + 2 * partial_floats(shape.rank)) + attention
}

impl Exec<'_> {
    /// Store all rows in the cache, and attend with all sequences whose queries are absorbed.
    pub(super) fn store_and_absorb(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedLatent,
        scratch: &mut Scratch<'_>,
    ) {
        let LoadedLatent { phase, matrices } = loaded;
        let (inputs, dims) = (&phase.inputs, &phase.inputs.dims);
        let rows = StepRows { sequences: self.sequences, forms: self.forms };
        let chosen = phase.chosen.map(|chosen| chosen.select.limit());
        let mut batches = batches(dims, rows, chosen, worker.n, self.partials.len());
        if batches.is_empty() {
            batches.push(Batch::default());
        }
        for (number, batch) in batches.iter().enumerate() {
            // beside the first batch, be it empty, the rows go into the cache
            let n_rows = if number == 0 { self.tokens.len() } else { 0 };
            let parts = HeadParts::new(dims, matrices.absorb.as_ref(), batch, worker);
            worker.section(|section| {
                for item in section.take(n_rows + parts.n_items()) {
                    match item.checked_sub(n_rows) {
                        None => self.store_latent(inputs, item, scratch),
                        Some(item) => self.absorb(phase, batch, &parts.get(item), scratch),
                    }
                }
            });
            if batch.runs.is_empty() {
                return;
            }
            self.attend_batch(worker, phase, batch, scratch);
            let parts = HeadParts::new(dims, Some(&matrices.value), batch, worker);
            worker.section(|section| {
                let items = section.take(parts.n_items());
                items.for_each(|item| self.leave_latents(phase, batch, &parts.get(item), scratch));
            });
        }
    }

    /// Attend with all queries of a batch, which are absorbed.
    fn attend_batch(
        &self,
        worker: &Worker<'_>,
        phase: &LatentPhase,
        batch: &Batch,
        scratch: &mut Scratch<'_>,
    ) {
        let copied: Vec<_> = copying(batch, &phase.inputs).collect();
        worker.section(|section| {
            let n_items = batch.n_items();
            for item in section.take(n_items + copied.len()) {
                match item.checked_sub(n_items) {
                    None => self.attend_item(phase, batch, &batch.item(item), scratch),
                    Some(item) => {
                        let (run, tokens, head) = copied[item].clone();
                        self.attend_copied(phase, run, tokens, head, scratch);
                    }
                }
            }
        });
        if batch.by_span {
            worker.section(|section| {
                let rows = section.take(batch.n_rows);
                rows.for_each(|row| self.fold_spans(phase, batch, row, scratch));
            });
        }
    }

    /// Absorbed, rotated and scaled queries of one head of a batch, or of a part of its panels.
    fn absorb(
        &self,
        phase: &LatentPhase,
        batch: &Batch,
        part: &HeadPart<'_>,
        scratch: &mut Scratch<'_>,
    ) {
        let (inputs, dims) = (&phase.inputs, &phase.inputs.dims);
        let HeadPart { matrix, head, ref panels } = *part;
        let width = dims.rank + dims.rope_dim;
        let score = self.score(&phase.score, dims.n_heads);
        let queries = &self.latent.queries;
        for run in &batch.runs {
            let (floats, [input, _]) = scratch.latent.split();
            let (tile, floats) = floats.split_at_mut(tile_floats(run.n_tokens));
            let x = inputs.q_nope;
            let rows = run.first_row..run.first_row + run.n_tokens;
            let all = &self.operand_rows(x.operand, rows)[x.start + head * x.step..];
            let x = F32Rows {
                x: all,
                n: run.n_tokens,
                cols: dims.nope_dim,
                stride: x.operand.cols,
                pick: None,
            };
            let input = HeadInput::new(self.kernels, matrix.kernel, x, input);
            let place = |token: usize| run.query(token * dims.n_heads + head, width);
            let mut sink = |panel: usize, outputs: &[f32]| {
                for (token, lanes) in outputs.chunks_exact(PANEL_ROWS).enumerate() {
                    let factor = score.factor(run.start + token);
                    let start = place(token) + panel * PANEL_ROWS * run.tile_rows;
                    let lanes = &lanes[..PANEL_ROWS.min(dims.rank - panel * PANEL_ROWS)];
                    for (i, x) in lanes.iter().enumerate() {
                        // SAFETY: each element has one writer, and nobody reads it in this section.
                        unsafe { queries.write(start + i * run.tile_rows, x * factor) };
                    }
                }
            };
            let product = HeadProduct { matrix, head, panels: panels.clone() };
            let memory = ProductScratch { tile, products: scratch.products.reborrow() };
            self.multiply(product, &input, memory, &mut sink);
            if panels.start > 0 {
                continue;
            }
            let query = &mut floats[..dims.key_dim()];
            for token in 0..run.n_tokens {
                self.query(inputs, run.first_row + token, head, query);
                let factor = score.factor(run.start + token);
                let start = place(token) + dims.rank * run.tile_rows;
                for (i, x) in query[dims.nope_dim..].iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { queries.write(start + i * run.tile_rows, x * factor) };
                }
            }
        }
    }

    /// One tile of query rows over some of its spans.
    fn attend_item(
        &self,
        phase: &LatentPhase,
        batch: &Batch,
        item: &Item<'_>,
        scratch: &mut Scratch<'_>,
    ) {
        let (run, rows) = (item.run, item.run.rows(item.tile));
        if run.form != MlaForm::Elided {
            return;
        }
        let shape = self.attention[phase.inputs.cache.0 as usize].latent().shape;
        let (n, head) = (rows.len(), shape.head());
        let size = Partials::floats(n, &head);
        let (floats, _) = scratch.latent.split();
        let (state, floats) = floats.split_at_mut(size);
        let (partial, kernel) = floats.split_at_mut(size);
        if batch.by_span {
            let start = run.partials(item.tile, item.spans.start, partial_floats(shape.rank));
            // SAFETY: items are dealt once each, and each has its own part.
            let out = unsafe { self.partials.slice_mut(start..start + size) };
            let mut out = Partials::new(out, n, &head);
            out.clear();
            self.attend_span(phase, item, item.spans.start, &mut out, kernel);
            return;
        }
        let mut state = Partials::new(state, n, &head);
        let n_heads = phase.inputs.dims.n_heads;
        let score = self.score(&phase.score, n_heads);
        score.begin(&mut state, rows.clone().map(|row| row % n_heads));
        let mut partial = Partials::new(partial, n, &head);
        for span in item.spans.clone() {
            partial.clear();
            self.attend_span(phase, item, span, &mut partial, kernel);
            self.kernels.merge.call(&mut state, &partial);
        }
        for (i, row) in rows.enumerate() {
            state.finish(i, self.gathered_mut(run.row + row, shape.rank));
        }
    }

    /// Outputs of one query row of a batch, before they leave the latents.
    #[expect(clippy::mut_from_ref, reason = "each query row belongs to one worker")]
    fn gathered_mut(&self, row: usize, rank: usize) -> &mut [f32] {
        // SAFETY: each query row has one writer, and nobody reads it in this section.
        unsafe { self.latent.gathered.slice_mut(row * rank..(row + 1) * rank) }
    }

    /// One tile of query rows over one span of an item, from a fresh state on.
    fn attend_span(
        &self,
        phase: &LatentPhase,
        item: &Item<'_>,
        span: usize,
        state: &mut Partials<'_>,
        scratch: &mut [f32],
    ) {
        let Item { run, tile, .. } = *item;
        let (cache, rows) = (phase.inputs.cache.0 as usize, run.rows(tile));
        let shape = self.attention[cache].latent().shape;
        // SAFETY: written in a section before, and not again in this one.
        let q = unsafe { self.latent.queries.slice(run.queries(tile, shape.width())) };
        let positions = run.positions(span);
        if let (Some(_), Some(chosen)) = (run.chosen, &phase.chosen) {
            let token = rows.start / phase.inputs.dims.n_heads;
            let row = self.chosen_row(chosen, run.first_row + token, run.start + token);
            let queries = LatentQueries { q, lanes: run.tile_rows, visible: &[] };
            return self.attend_gathered(phase, item, (&row, positions, queries), state, scratch);
        }
        let end = positions.end.min(run.visible(rows.end - 1));
        let mut visible = [0; cut::MAX_ROWS];
        let visible = &mut visible[..rows.len()];
        for first in (positions.start..end).step_by(LATENT_TILE) {
            let n = LATENT_TILE.min(end - first);
            for (visible, row) in visible.iter_mut().zip(rows.clone()) {
                *visible = run.visible(row).saturating_sub(first).min(n) as u32;
            }
            let start = first % BLOCK * shape.row_bytes();
            let block = self.blocks.get(cache, run.sequence, first / BLOCK);
            // SAFETY: the cache is not written after the section in which the rows went in.
            let bytes = unsafe { block.slice(start..start + n * shape.row_bytes()) };
            let queries = LatentQueries { q, lanes: run.tile_rows, visible };
            self.kernels.latent.attend.call(&LatentRows { shape, bytes }, &queries, state, scratch);
        }
    }

    /// What was chosen for a row.
    fn chosen_row<'s>(&'s self, chosen: &Chosen, row: usize, position: usize) -> ChosenRow<'s> {
        let units = self.row(chosen.units, row);
        ChosenRow::new(units, chosen.select.unit as usize, position)
    }

    /// The same over some of what was chosen for the tile's token, brought together tile by tile.
    fn attend_gathered(
        &self,
        phase: &LatentPhase,
        item: &Item<'_>,
        (row, span, queries): (&ChosenRow<'_>, Range<usize>, LatentQueries<'_>),
        state: &mut Partials<'_>,
        scratch: &mut [f32],
    ) {
        let Item { run, tile, .. } = *item;
        let cache = phase.inputs.cache.0 as usize;
        let shape = self.attention[cache].latent().shape;
        let (gathered, kernel) = scratch.split_at_mut(gathered_floats(&shape));
        let gathered = bytemuck::cast_slice_mut::<f32, u8>(gathered);
        let end = span.end.min(row.n);
        for first in (span.start..end).step_by(LATENT_TILE) {
            let n = LATENT_TILE.min(end - first);
            let places = gathered.chunks_exact_mut(shape.row_bytes());
            for (i, place) in (first..first + n).zip(places) {
                let position = row.position(i);
                let start = position % BLOCK * shape.row_bytes();
                let block = self.blocks.get(cache, run.sequence, position / BLOCK);
                // SAFETY: the cache is not written after the section in which the rows went in.
                place.copy_from_slice(unsafe { block.slice(start..start + shape.row_bytes()) });
            }
            let visible = [n as u32; cut::MAX_ROWS];
            let queries = LatentQueries { visible: &visible[..run.rows(tile).len()], ..queries };
            let rows = LatentRows { shape, bytes: &gathered[..n * shape.row_bytes()] };
            self.kernels.latent.attend.call(&rows, &queries, state, kernel);
        }
    }

    /// Fold what the spans of query row `number` gave.
    fn fold_spans(
        &self,
        phase: &LatentPhase,
        batch: &Batch,
        number: usize,
        scratch: &mut Scratch<'_>,
    ) {
        let (run, row) = batch.locate(number);
        if run.form != MlaForm::Elided {
            return;
        }
        let shape = self.attention[phase.inputs.cache.0 as usize].latent().shape;
        let (head, stride) = (shape.head(), shape.stride());
        let (floats, _) = scratch.latent.split();
        let mut state = Partials::new(&mut floats[..Partials::floats(1, &head)], 1, &head);
        let n_heads = phase.inputs.dims.n_heads;
        let score = self.score(&phase.score, n_heads);
        let (tile, at) = run.place(row);
        let n = run.rows(tile).len();
        score.begin(&mut state, std::iter::once(row % n_heads));
        for span in 0..run.n_spans() {
            let start = run.partials(tile, span, partial_floats(shape.rank));
            let numbers = start + n * stride;
            // SAFETY: each row is read by one worker here, and was written in the section before.
            let out =
                unsafe { self.partials.slice_mut(start + at * stride..start + (at + 1) * stride) };
            // SAFETY: as above.
            let max = unsafe { self.partials.slice_mut(numbers + at..numbers + at + 1) };
            // SAFETY: as above.
            let sum = unsafe { self.partials.slice_mut(numbers + n + at..numbers + n + at + 1) };
            self.kernels.merge.call(&mut state, &Partials { max, sum, out });
        }
        state.finish(0, self.gathered_mut(number, shape.rank));
    }

    /// One head of some tokens of a run against its own copies of the cached rows.
    fn attend_copied(
        &self,
        phase: &LatentPhase,
        run: &Run,
        tokens: Range<usize>,
        head: usize,
        scratch: &mut Scratch<'_>,
    ) {
        let (cache, dims) = (phase.inputs.cache.0 as usize, &phase.inputs.dims);
        let LatentCache { shape, .. } = self.attention[cache].latent();
        let (one, n, width) = (shape.head(), tokens.len(), shape.width());
        let (floats, _) = scratch.latent.split();
        let (keys, floats) = floats.split_at_mut(one.key_bytes() / size_of::<f32>());
        let (values, floats) = floats.split_at_mut(one.value_bytes() / size_of::<f32>());
        let (q, floats) = floats.split_at_mut(n * width);
        let (row, floats) = floats.split_at_mut(width);
        let (state, floats) = floats.split_at_mut(Partials::floats(n, &one));
        let (partial, attention) = floats.split_at_mut(Partials::floats(n, &one));
        for (q, token) in q.chunks_exact_mut(width).zip(tokens.clone()) {
            let start = run.query(token * dims.n_heads + head, width);
            for (i, q) in q.iter_mut().enumerate() {
                let at = start + i * run.tile_rows;
                // SAFETY: written in a section before, and not again in this one.
                *q = unsafe { self.latent.queries.slice(at..at + 1) }[0];
            }
        }
        let mut state = Partials::new(state, n, &one);
        let score = self.score(&phase.score, dims.n_heads);
        score.begin(&mut state, std::iter::repeat(head));
        let mut partial = Partials::new(partial, n, &one);
        // the run is a part of its sequence: tokens count from the run's first
        let rows = self.sequences[run.sequence];
        let skipped = run.start - rows.start;
        let of_sequence = tokens.start + skipped..tokens.end + skipped;
        let end = score.seen(&rows, of_sequence.end - 1).end;
        for block in score.blocks(&rows, &of_sequence) {
            let first = block * BLOCK;
            let bytes = self.blocks.get(cache, run.sequence, block);
            for position in 0..BLOCK.min(end - first) {
                let start = position * shape.row_bytes();
                // SAFETY: the cache is not written after the section in which the rows went in.
                let bytes = unsafe { bytes.slice(start..start + shape.row_bytes()) };
                let (latent, rope) = row.split_at_mut(shape.rank);
                shape.load(bytes, latent, rope);
                one.store_value(bytemuck::cast_slice_mut(values), position, latent);
                one.store_key(bytemuck::cast_slice_mut(keys), position, row);
            }
            let of = score.of_block(
                &rows,
                of_sequence.clone().map(|token| HeadRow { head, token }),
                block,
            );
            let block = HeadBlock {
                shape: one,
                keys: bytemuck::cast_slice(keys),
                values: bytemuck::cast_slice(values),
            };
            self.kernels.attend.call(&block, &score.queries(q, &of), &mut partial, attention);
            self.kernels.merge.call(&mut state, &partial);
        }
        for (i, token) in tokens.enumerate() {
            let row = run.row + token * dims.n_heads + head;
            state.finish(i, self.gathered_mut(row, shape.rank));
        }
    }

    /// A head's outputs from what it gathered of the latents.
    fn leave_latents(
        &self,
        phase: &LatentPhase,
        batch: &Batch,
        part: &HeadPart<'_>,
        scratch: &mut Scratch<'_>,
    ) {
        let dims = &phase.inputs.dims;
        let HeadPart { matrix, head, ref panels } = *part;
        for run in &batch.runs {
            let (floats, [input, _]) = scratch.latent.split();
            let (n, stride) = (run.n_tokens, dims.n_heads * dims.rank);
            let start = (run.row + head) * dims.rank;
            let len = (n - 1) * stride + dims.rank;
            // SAFETY: written in a section before, and not again in this one.
            let x = unsafe { self.latent.gathered.slice(start..start + len) };
            let x = F32Rows { x, n, cols: dims.rank, stride, pick: None };
            let input = HeadInput::new(self.kernels, matrix.kernel, x, input);
            let (first, end) = (head * dims.value_dim, (head + 1) * dims.value_dim);
            let mut sink = |panel: usize, outputs: &[f32]| {
                let cols = first + panel * PANEL_ROWS..end;
                self.store_panel(phase.out, run.first_row, cols, outputs);
            };
            let product = HeadProduct { matrix, head, panels: panels.clone() };
            let memory = ProductScratch { tile: floats, products: scratch.products.reborrow() };
            self.multiply(product, &input, memory, &mut sink);
        }
    }
}

/// Some panels of one head's matrix.
struct HeadPart<'a> {
    matrix: &'a HeadMatrix,
    head: usize,
    panels: Range<usize>,
}

/// What is dealt of a product of every head: the heads, or with few heads parts of their panels.
struct HeadParts<'a> {
    /// None where a batch is empty.
    matrix: Option<&'a HeadMatrix>,
    n_heads: usize,
    /// Of each head.
    parts: usize,
}

impl<'a> HeadParts<'a> {
    fn new(
        dims: &MlaDims,
        matrix: Option<&'a HeadMatrix>,
        batch: &Batch,
        worker: &Worker<'_>,
    ) -> HeadParts<'a> {
        let matrix = matrix.filter(|_| !batch.runs.is_empty());
        let n_panels = matrix.map_or(1, HeadMatrix::n_panels);
        let parts = worker.n.div_ceil(dims.n_heads).min(n_panels);
        HeadParts { matrix, n_heads: dims.n_heads, parts }
    }

    fn n_items(&self) -> usize {
        self.matrix.map_or(0, |_| self.n_heads * self.parts)
    }

    fn get(&self, item: usize) -> HeadPart<'a> {
        let matrix = self.matrix.expect("an empty batch has no items");
        let (head, part, n) = (item / self.parts, item % self.parts, matrix.n_panels());
        let panels = part * n / self.parts..(part + 1) * n / self.parts;
        HeadPart { matrix, head, panels }
    }
}

/// The heads that copy rows, for up to [`TILE_ROWS`] tokens at a time.
fn copying<'b>(
    batch: &'b Batch,
    inputs: &LatentInputs,
) -> impl Iterator<Item = (&'b Run, Range<usize>, usize)> {
    let heads = 0..inputs.dims.n_heads;
    let runs = batch.runs.iter().filter(|run| run.form == MlaForm::Absorbed);
    runs.flat_map(move |run| {
        let tokens = (0..run.n_tokens).step_by(TILE_ROWS);
        let heads = heads.clone();
        tokens.flat_map(move |first| {
            let tokens = first..(first + TILE_ROWS).min(run.n_tokens);
            heads.clone().map(move |head| (run, tokens.clone(), head))
        })
    })
}

//! Keys and values of every head made of the cached latents, a block at a time, for all rows of the step.
//!
//! A worker takes a few heads of a sequence. It reads a block of latents once for all of them, makes the keys and values
//! of one head in memory of its own, and lets every token attend to them while they are in cache.

use std::ops::Range;

use kernels::attention::{BLOCK, ElemType, HeadBlock, HeadShape, Partials, TILE};
use kernels::linear::{F32Rows, PANEL_ROWS};

use super::super::chosen::reading_all;
use super::super::product::Products;
use super::super::score::{HeadRow, RowScore};
use super::super::{Exec, Scratch, SequenceRows};
use super::heads::{HeadInput, HeadProduct, ProductScratch, tile_floats};
use crate::cache::LatentCache;
use crate::geometry::TILE_ROWS;
use crate::mla::{MlaDims, MlaForm};
use crate::plan::LatentPhase;
use crate::pool::Worker;
use crate::schedule::LoadedLatent;

/// Most heads that share a reading of the latents.
const MAX_HEADS: usize = 4;
/// Tokens of a sequence that share the keys and values of a block.
const MAX_TOKENS: usize = 512;

/// Keys and values of one head, in f32.
fn shape(dims: &MlaDims) -> HeadShape {
    let (k, v) = (ElemType::F32, ElemType::F32);
    HeadShape { key_dim: dims.key_dim(), value_dim: dims.value_dim, k, v }
}

fn heads_per_item(n_heads: usize, workers: usize) -> usize {
    (n_heads / (2 * workers)).clamp(1, MAX_HEADS)
}

/// Floats of the states of one head and `n` tokens.
fn state_floats(head: &HeadShape, n: usize) -> usize {
    n.div_ceil(TILE_ROWS) * Partials::floats(TILE_ROWS, head)
}

/// Floats a worker needs, for sequences of up to `n` tokens.
pub(super) fn compressed_floats(dims: &MlaDims, n: usize, workers: usize) -> usize {
    let (n, head) = (n.min(MAX_TOKENS), shape(dims));
    let latents = BLOCK * (dims.rank + dims.rope_dim);
    let region = (head.key_bytes() + head.value_bytes()) / size_of::<f32>();
    let per_head = n * head.key_dim + state_floats(&head, n);
    let attention = kernels::attention::scratch_floats(TILE_ROWS, &head);
    latents
        + region
        + tile_floats(BLOCK)
        + heads_per_item(dims.n_heads, workers) * per_head
        + Partials::floats(TILE_ROWS, &head)
        + attention
}

/// Some heads of some tokens of a sequence.
struct Item {
    sequence: usize,
    tokens: Range<usize>,
    heads: Range<usize>,
}

/// The first `n` rows of a block of a sequence's cache.
#[derive(Clone, Copy)]
struct BlockRows {
    sequence: usize,
    block: usize,
    n: usize,
}

/// One block of a sequence's cache, and how rows attend to it.
struct OfBlock<'a> {
    score: RowScore<'a>,
    head: HeadShape,
    rows: SequenceRows,
    block: usize,
}

/// A matrix of one head and the latents it is multiplied with.
struct HeadOf<'a> {
    product: HeadProduct<'a>,
    input: &'a HeadInput<'a>,
}

/// One block of latents.
struct Latents<'s> {
    /// `[BLOCK][rank]`.
    c: &'s mut [f32],
    /// `[BLOCK][rope_dim]`.
    k_pe: &'s mut [f32],
}

/// What an item makes of them.
struct Parts<'s> {
    keys: &'s mut [f32],
    values: &'s mut [f32],
    /// Outputs of panels.
    tile: &'s mut [f32],
    products: Products<'s>,
    /// `[heads][tokens][key_dim]`.
    queries: &'s mut [f32],
    /// `[heads]`: [`state_floats`].
    states: &'s mut [f32],
    partial: &'s mut [f32],
    attention: &'s mut [f32],
}

impl<'s> Parts<'s> {
    fn new(
        floats: &'s mut [f32],
        products: Products<'s>,
        dims: &MlaDims,
        item: &Item,
    ) -> (Latents<'s>, Parts<'s>) {
        let (head, n, heads) = (shape(dims), item.tokens.len(), item.heads.len());
        let (c, floats) = floats.split_at_mut(BLOCK * dims.rank);
        let (k_pe, floats) = floats.split_at_mut(BLOCK * dims.rope_dim);
        let (keys, floats) = floats.split_at_mut(head.key_bytes() / size_of::<f32>());
        let (values, floats) = floats.split_at_mut(head.value_bytes() / size_of::<f32>());
        let (tile, floats) = floats.split_at_mut(tile_floats(BLOCK));
        let (queries, floats) = floats.split_at_mut(heads * n * head.key_dim);
        let (states, floats) = floats.split_at_mut(heads * state_floats(&head, n));
        let (partial, attention) = floats.split_at_mut(Partials::floats(TILE_ROWS, &head));
        let latents = Latents { c, k_pe };
        (latents, Parts { keys, values, tile, products, queries, states, partial, attention })
    }
}

impl Exec<'_> {
    /// All sequences in compressed form.
    pub(super) fn compressed(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedLatent,
        scratch: &mut Scratch<'_>,
    ) {
        let dims = &loaded.phase.inputs.dims;
        let step = heads_per_item(dims.n_heads, worker.n);
        let mut items = Vec::new();
        for (sequence, (at, form)) in self.sequences.iter().zip(self.forms).enumerate() {
            if *form != MlaForm::Compressed {
                continue;
            }
            let n = reading_all(at, loaded.phase.chosen.map(|chosen| chosen.select.limit()));
            // the last tokens see most: they go first
            for first in (0..n).step_by(MAX_TOKENS).rev() {
                let tokens = first..(first + MAX_TOKENS).min(n);
                for head in (0..dims.n_heads).step_by(step) {
                    let heads = head..(head + step).min(dims.n_heads);
                    items.push(Item { sequence, tokens: tokens.clone(), heads });
                }
            }
        }
        worker.section(|section| {
            let items = section.take(items.len()).map(|item| &items[item]);
            items.for_each(|item| self.compressed_item(loaded, item, scratch));
        });
    }

    fn compressed_item(&self, loaded: &LoadedLatent, item: &Item, scratch: &mut Scratch<'_>) {
        let LoadedLatent { phase, matrices: layer, .. } = loaded;
        let (dims, head) = (&phase.inputs.dims, shape(&phase.inputs.dims));
        let rows = self.sequences[item.sequence];
        let expand = layer.expand.as_ref().expect("`load` packed what the form needs");
        let (floats, [mut for_keys, mut for_values]) = scratch.latent.split();
        let (mut latents, mut parts) = Parts::new(floats, scratch.products.reborrow(), dims, item);
        self.item_queries(phase, item, parts.queries);
        let score = self.score(&phase.score, dims.n_heads);
        let size = state_floats(&head, item.tokens.len());
        for (number, states) in item.heads.clone().zip(parts.states.chunks_exact_mut(size)) {
            for_states(states, &head, item.tokens.len(), |state| {
                score.begin(state, std::iter::repeat(number));
            });
        }
        let end = score.seen(&rows, item.tokens.end - 1).end;
        for block in score.blocks(&rows, &item.tokens) {
            let n = BLOCK.min(end - block * BLOCK);
            self.read_block(phase, BlockRows { sequence: item.sequence, block, n }, &mut latents);
            let (cols, c) = (dims.rank, &latents.c[..n * dims.rank]);
            let x = F32Rows { x: c, n, cols, stride: cols, pick: None };
            let keys = HeadInput::new(self.kernels, expand.kernel, x, for_keys.reborrow());
            let other = (!keys.serves(&layer.value)).then(|| {
                HeadInput::new(self.kernels, layer.value.kernel, x, for_values.reborrow())
            });
            let values = other.as_ref().unwrap_or(&keys);
            // all heads share the rotated part
            let k_pe = &latents.k_pe[..n * dims.rope_dim];
            store_ropes(parts.keys, head.key_dim, dims.nope_dim..head.key_dim, k_pe);
            for (i, number) in item.heads.clone().enumerate() {
                let for_keys = HeadOf { product: HeadProduct::whole(expand, number), input: &keys };
                let product = HeadProduct::whole(&layer.value, number);
                let for_values = HeadOf { product, input: values };
                self.expand_head(dims, for_keys, for_values, &mut parts);
                let of = OfBlock { score, head, rows, block };
                self.attend_expanded(&of, item, i, &mut parts);
            }
        }
        self.finish_item(phase, item, parts.states);
    }

    /// The first `n` cached rows of a block, as f32.
    fn read_block(&self, phase: &LatentPhase, rows: BlockRows, latents: &mut Latents<'_>) {
        let BlockRows { sequence, block, n } = rows;
        let cache = phase.inputs.cache.0 as usize;
        let LatentCache { shape, .. } = self.attention[cache].latent();
        let memory = self.blocks.get(cache, sequence, block);
        // SAFETY: the cache is not written after the section in which the rows went in.
        let bytes = unsafe { memory.slice(0..n * shape.row_bytes()) };
        let c = latents.c.chunks_exact_mut(shape.rank);
        let outs = c.zip(latents.k_pe.chunks_exact_mut(shape.rope_dim));
        for (bytes, (c, k_pe)) in bytes.chunks_exact(shape.row_bytes()).zip(outs) {
            shape.load(bytes, c, k_pe);
        }
    }

    /// Keys, but for their rotated part, and values of one head and block.
    fn expand_head(
        &self,
        dims: &MlaDims,
        for_keys: HeadOf<'_>,
        for_values: HeadOf<'_>,
        parts: &mut Parts<'_>,
    ) {
        let (keys, values) = (&mut *parts.keys, &mut *parts.values);
        let (width, stride) = (dims.key_dim(), dims.value_dim.next_multiple_of(PANEL_ROWS));
        let mut sink = |panel: usize, outputs: &[f32]| {
            store_keys(keys, width, panel * PANEL_ROWS..dims.nope_dim, outputs);
        };
        let memory = ProductScratch { tile: parts.tile, products: parts.products.reborrow() };
        self.multiply(for_keys.product, for_keys.input, memory, &mut sink);
        let mut sink = |panel: usize, outputs: &[f32]| {
            let outputs = outputs.chunks_exact(PANEL_ROWS);
            for (value, lanes) in values.chunks_exact_mut(stride).zip(outputs) {
                value[panel * PANEL_ROWS..][..PANEL_ROWS].copy_from_slice(lanes);
            }
        };
        let memory = ProductScratch { tile: parts.tile, products: parts.products.reborrow() };
        self.multiply(for_values.product, for_values.input, memory, &mut sink);
    }

    /// Store the outputs of an item.
    fn finish_item(&self, phase: &LatentPhase, item: &Item, states: &mut [f32]) {
        let (dims, head) = (&phase.inputs.dims, shape(&phase.inputs.dims));
        let (n, first_row) = (item.tokens.len(), self.sequences[item.sequence].first_row);
        let states = states.chunks_exact_mut(state_floats(&head, n));
        for (number, states) in item.heads.clone().zip(states) {
            let cols = number * dims.value_dim..(number + 1) * dims.value_dim;
            let mut row = first_row + item.tokens.start;
            for_states(states, &head, n, |state| {
                for i in 0..state.sum.len() {
                    // SAFETY: an item's tokens and heads belong to one worker, and nobody reads the output here.
                    state.finish(i, unsafe { self.part_mut(phase.out, row, cols.clone()) });
                    row += 1;
                }
            });
        }
    }

    /// Rotated and scaled queries of an item.
    fn item_queries(&self, phase: &LatentPhase, item: &Item, queries: &mut [f32]) {
        let SequenceRows { first_row, start, .. } = self.sequences[item.sequence];
        let score = self.score(&phase.score, phase.inputs.dims.n_heads);
        let mut queries = queries.chunks_exact_mut(phase.inputs.dims.key_dim());
        for head in item.heads.clone() {
            for (token, query) in item.tokens.clone().zip(&mut queries) {
                self.query(&phase.inputs, first_row + token, head, query);
                let factor = score.factor(start + token);
                for x in query {
                    *x *= factor;
                }
            }
        }
    }

    /// All tokens of an item's head `i` attend to the keys and values of one block.
    fn attend_expanded(&self, of: &OfBlock<'_>, item: &Item, i: usize, parts: &mut Parts<'_>) {
        let (n, head) = (item.tokens.len(), &of.head);
        let of_block = HeadBlock {
            shape: *head,
            keys: bytemuck::cast_slice(parts.keys),
            values: bytemuck::cast_slice(parts.values),
        };
        let queries = &parts.queries[i * n * head.key_dim..(i + 1) * n * head.key_dim];
        let states = &mut parts.states[i * state_floats(head, n)..];
        let mut queries = queries.chunks(TILE_ROWS * head.key_dim);
        let mut token = item.tokens.start;
        let (partial, attention) = (&mut *parts.partial, &mut *parts.attention);
        for_states(&mut states[..state_floats(head, n)], head, n, |state| {
            let rows = state.sum.len();
            let q = queries.next().expect("queries and states in the same tiles");
            let tokens = token..token + rows;
            token += rows;
            if !of.score.blocks(&of.rows, &tokens).contains(&of.block) {
                return;
            }
            let head_row = |token| HeadRow { head: item.heads.start + i, token };
            let seen = of.score.of_block(&of.rows, tokens.map(head_row), of.block);
            let rows_in = of.score.queries(q, &seen);
            let mut partial =
                Partials::new(&mut partial[..Partials::floats(rows, head)], rows, head);
            self.kernels.attend.call(&of_block, &rows_in, &mut partial, attention);
            self.kernels.merge.call(state, &partial);
        });
    }
}

/// Visit the states of `n` tokens, tile by tile.
fn for_states(
    states: &mut [f32],
    head: &HeadShape,
    n: usize,
    mut visit: impl FnMut(&mut Partials<'_>),
) {
    let size = Partials::floats(TILE_ROWS, head);
    let tiles = n.div_ceil(TILE_ROWS);
    for (number, state) in states.chunks_exact_mut(size).enumerate() {
        let rows = TILE_ROWS.min(n - number % tiles * TILE_ROWS);
        visit(&mut Partials::new(&mut state[..Partials::floats(rows, head)], rows, head));
    }
}

/// A panel's outputs `[n][16]` as elements `cols` of keys, as far as they go; keys lie as `[tile][width][TILE]`.
fn store_keys(keys: &mut [f32], width: usize, cols: Range<usize>, outputs: &[f32]) {
    let tiles = keys.chunks_exact_mut(width * TILE);
    for (tile, outputs) in tiles.zip(outputs.chunks(PANEL_ROWS * TILE)) {
        let rows = tile[cols.start * TILE..].chunks_exact_mut(TILE).take(cols.len());
        for (lane, row) in rows.take(PANEL_ROWS).enumerate() {
            for (key, outputs) in row.iter_mut().zip(outputs.chunks_exact(PANEL_ROWS)) {
                *key = outputs[lane];
            }
        }
    }
}

/// Rotated parts `[n][len]` as elements `cols` of keys.
fn store_ropes(keys: &mut [f32], width: usize, cols: Range<usize>, ropes: &[f32]) {
    let len = cols.len();
    let tiles = keys.chunks_exact_mut(width * TILE);
    for (tile, ropes) in tiles.zip(ropes.chunks(len * TILE)) {
        for (i, row) in tile[cols.start * TILE..].chunks_exact_mut(TILE).enumerate() {
            for (key, rope) in row.iter_mut().zip(ropes.chunks_exact(len)) {
                *key = rope[i];
            }
        }
    }
}

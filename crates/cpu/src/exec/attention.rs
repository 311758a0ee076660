//! Attention phases: rotate and store | attend | fold.
//!
//! Work is cut by key-value head and by tiles of tokens, whose query heads share each cached row they read. With few
//! tiles (steps) it is cut by block of the cache too. A block's partial result is always computed alone and folded in
//! ascending order, so no cut changes a bit.

use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, Partials, QueryRows};
use kernels::rows::Pairs;

use super::{Exec, Scratch, SequenceRows, split};
use crate::cache::HeadsCache;
use crate::geometry::{MAX_PARTIAL_FLOATS, TILE_ROWS};
use crate::plan::{AttentionPhase, Operand};
use crate::pool::Worker;
use crate::schedule::LoadedAttention;

/// Floats of scratch a worker needs for this cache.
pub(crate) fn scratch_floats(shape: &HeadsCache) -> usize {
    let rows = shape.max_rows();
    let kernel = kernels::attention::scratch_floats(rows, &shape.head);
    rows * shape.head.key_dim + 2 * shape.partial_floats() + kernel
}

fn tiles_of(shape: &HeadsCache, sequence: &SequenceRows) -> usize {
    sequence.n.div_ceil(shape.tile_tokens()) * shape.layout.n_kv_heads()
}

/// Tiles of all sequences, and the most blocks any of them reads.
fn extent(shape: &HeadsCache, sequences: &[SequenceRows]) -> (usize, usize) {
    let tiles = sequences.iter().map(|s| tiles_of(shape, s)).sum();
    (tiles, sequences.iter().map(|s| (s.start + s.n).div_ceil(BLOCK)).max().unwrap_or(0))
}

/// Floats of the results of all tiles and blocks if blocks are items of their own, folded afterwards: with few tiles,
/// as long as the results find room. Else 0.
pub(crate) fn split_floats(
    shape: &HeadsCache,
    sequences: &[SequenceRows],
    workers: usize,
) -> usize {
    let (n_tiles, n_blocks) = extent(shape, sequences);
    let floats = n_tiles * n_blocks * shape.partial_floats();
    let split = n_blocks > 1 && n_tiles < 4 * workers && floats <= MAX_PARTIAL_FLOATS;
    if split { floats } else { 0 }
}

/// Tokens of one sequence, one key-value head.
#[derive(Clone)]
struct Tile {
    sequence: usize,
    /// Tokens within the sequence.
    tokens: Range<usize>,
    head: usize,
}

/// How one attention phase is cut in this step.
struct Cut<'a> {
    phase: &'a AttentionPhase,
    shape: &'a HeadsCache,
    sequences: &'a [SequenceRows],
    n_tiles: usize,
    /// Most blocks any tile reads.
    n_blocks: usize,
}

impl Cut<'_> {
    fn tile(&self, mut number: usize) -> Tile {
        let mut index = 0;
        while number >= tiles_of(self.shape, &self.sequences[index]) {
            number -= tiles_of(self.shape, &self.sequences[index]);
            index += 1;
        }
        let heads = self.shape.layout.n_kv_heads();
        let first = number / heads * self.shape.tile_tokens();
        let tokens = first..(first + self.shape.tile_tokens()).min(self.sequences[index].n);
        Tile { sequence: index, tokens, head: number % heads }
    }

    /// Blocks that the last token of a tile sees.
    fn blocks(&self, tile: &Tile) -> usize {
        (self.sequences[tile.sequence].start + tile.tokens.end).div_ceil(BLOCK)
    }

    fn rows(&self, tile: &Tile) -> usize {
        tile.tokens.len() * self.shape.group
    }
}

impl Exec<'_> {
    pub(super) fn attention(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedAttention,
        scratch: &mut Scratch<'_>,
    ) {
        let LoadedAttention { phase, shares } = loaded;
        let shape = self.attention[phase.cache.0 as usize].heads();
        let mut cut = Cut { phase, shape, sequences: self.sequences, n_tiles: 0, n_blocks: 0 };
        (cut.n_tiles, cut.n_blocks) = extent(shape, self.sequences);
        self.rotate_and_store(worker, &cut);
        worker.sync();
        let tile_len = shape.partial_floats();
        if split_floats(shape, self.sequences, worker.n) == 0 {
            for number in shares.main.take(worker, cut.n_tiles) {
                self.attend_tile(&cut, &cut.tile(number), scratch);
            }
            return;
        }
        for item in shares.main.take(worker, cut.n_tiles * cut.n_blocks) {
            let (tile, block) = (cut.tile(item / cut.n_blocks), item % cut.n_blocks);
            if block < cut.blocks(&tile) {
                let len = Partials::floats(cut.rows(&tile), &shape.head);
                // SAFETY: items are dealt once each, and each has its own part.
                let out =
                    unsafe { self.partials.slice_mut(item * tile_len..item * tile_len + len) };
                self.attend_block(&cut, &tile, block, out, scratch.attention);
            }
        }
        worker.sync();
        for number in shares.side.take(worker, cut.n_tiles) {
            self.fold_tile(&cut, number, scratch);
        }
    }

    /// Rotate q and k, scale q, and write k and v into the cache. One item is one head in one block of the cache.
    fn rotate_and_store(&self, worker: &Worker<'_>, cut: &Cut<'_>) {
        let heads = cut.shape.layout.n_kv_heads();
        let touched = |s: &SequenceRows| s.start / BLOCK..(s.start + s.n).div_ceil(BLOCK);
        let total = self.sequences.iter().map(|s| touched(s).len() * heads).sum();
        for mut item in split(total, worker) {
            let mut index = 0;
            while item >= touched(&self.sequences[index]).len() * heads {
                item -= touched(&self.sequences[index]).len() * heads;
                index += 1;
            }
            let block = touched(&self.sequences[index]).start + item / heads;
            self.store_head(cut, index, block, item % heads);
        }
    }

    /// The new rows of one sequence that fall into one block, for one key-value head and its query heads.
    fn store_head(&self, cut: &Cut<'_>, sequence: usize, block: usize, head: usize) {
        let (phase, shape) = (cut.phase, cut.shape);
        let (key_dim, value_dim) = (shape.head.key_dim, shape.head.value_dim);
        let SequenceRows { first_row, n, start } = self.sequences[sequence];
        let memory = self.blocks.get(phase.cache.0 as usize, sequence, block);
        // SAFETY: this head of this block belongs to one item, and nobody reads it before the barrier.
        let keys = unsafe { memory.slice_mut(shape.layout.keys(head)) };
        // SAFETY: as above.
        let values = unsafe { memory.slice_mut(shape.layout.values(head)) };
        for position in start.max(block * BLOCK)..(start + n).min((block + 1) * BLOCK) {
            let row = first_row + position - start;
            // SAFETY: this row's head belongs to one item, and others read it after the barrier.
            let key = unsafe { self.part_mut(phase.k, row, head * key_dim..(head + 1) * key_dim) };
            self.rotate(phase, row, key, shape.pairs);
            shape.head.store_key(keys, position % BLOCK, key);
            let value = &self.row(phase.v, row)[head * value_dim..(head + 1) * value_dim];
            shape.head.store_value(values, position % BLOCK, value);
            for query in head * shape.group..(head + 1) * shape.group {
                // SAFETY: as above.
                let query =
                    unsafe { self.part_mut(phase.q, row, query * key_dim..(query + 1) * key_dim) };
                self.rotate(phase, row, query, shape.pairs);
                for x in query {
                    *x *= phase.scale;
                }
            }
        }
    }

    fn rotate(&self, phase: &AttentionPhase, row: usize, head: &mut [f32], pairs: Pairs) {
        if let Some(rope) = phase.rope {
            let angles = &self.angles[rope];
            let at = row * angles.n_pairs..(row + 1) * angles.n_pairs;
            self.kernels.rotate.call(head, &angles.cos[at.clone()], &angles.sin[at], pairs);
        }
    }

    /// Columns of a row of q, k or the output, to write: `lower` made sure that this phase alone uses them.
    ///
    /// # Safety
    /// Until the workers next meet, no other reference to these columns of this row may be used.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(super) unsafe fn part_mut(
        &self,
        operand: Operand,
        row: usize,
        cols: Range<usize>,
    ) -> &mut [f32] {
        let start = row * operand.cols;
        // SAFETY: the caller's promise.
        unsafe { self.value(operand).slice_mut(start + cols.start..start + cols.end) }
    }

    /// Attend to all blocks a tile sees and store the outputs.
    fn attend_tile(&self, cut: &Cut<'_>, tile: &Tile, scratch: &mut Scratch<'_>) {
        let (shape, rows) = (&cut.shape.head, cut.rows(tile));
        let floats = Partials::floats(rows, shape);
        let (state, rest) = scratch.attention.split_at_mut(floats);
        let (partial, rest) = rest.split_at_mut(floats);
        let mut state = Partials::new(state, rows, shape);
        state.clear();
        for block in 0..cut.blocks(tile) {
            self.attend_block(cut, tile, block, partial, rest);
            self.kernels.merge.call(&mut state, &Partials::new(partial, rows, shape));
        }
        self.finish_tile(cut, tile, &state);
    }

    /// Fold the partials that [`attend_block`](Self::attend_block) left for a tile and store the outputs.
    fn fold_tile(&self, cut: &Cut<'_>, number: usize, scratch: &mut Scratch<'_>) {
        let tile = cut.tile(number);
        let (shape, rows) = (&cut.shape.head, cut.rows(&tile));
        let floats = Partials::floats(rows, shape);
        let (state, rest) = scratch.attention.split_at_mut(floats);
        let mut state = Partials::new(state, rows, shape);
        state.clear();
        for block in 0..cut.blocks(&tile) {
            let start = (number * cut.n_blocks + block) * cut.shape.partial_floats();
            // SAFETY: written before the last barrier; nobody writes partials in this part of the phase.
            let partial = unsafe { self.partials.slice(start..start + floats) };
            rest[..floats].copy_from_slice(partial);
            self.kernels.merge.call(&mut state, &Partials::new(&mut rest[..floats], rows, shape));
        }
        self.finish_tile(cut, &tile, &state);
    }

    /// One tile against one block: partials into `out`.
    fn attend_block(
        &self,
        cut: &Cut<'_>,
        tile: &Tile,
        block: usize,
        out: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (phase, shape, rows) = (cut.phase, cut.shape, cut.rows(tile));
        let sequence = &self.sequences[tile.sequence];
        let key_dim = shape.head.key_dim;
        let memory = self.blocks.get(phase.cache.0 as usize, tile.sequence, block);
        // SAFETY: the cache is not written between the barrier after `rotate_and_store` and the end of the phase.
        let keys = unsafe { memory.slice(shape.layout.keys(tile.head)) };
        // SAFETY: as above.
        let values = unsafe { memory.slice(shape.layout.values(tile.head)) };
        let (q, scratch) = scratch.split_at_mut(rows * key_dim);
        let mut visible = [0; TILE_ROWS];
        let visible = &mut visible[..rows];
        let queries = tile.head * shape.group * key_dim..(tile.head + 1) * shape.group * key_dim;
        let per_token =
            q.chunks_exact_mut(shape.group * key_dim).zip(visible.chunks_exact_mut(shape.group));
        for (token, (q, visible)) in tile.tokens.clone().zip(per_token) {
            q.copy_from_slice(&self.row(phase.q, sequence.first_row + token)[queries.clone()]);
            let seen = (sequence.start + token + 1).saturating_sub(block * BLOCK).min(BLOCK);
            visible.fill(seen as u32);
        }
        let head = HeadBlock { shape: shape.head, keys, values };
        let rows_in = QueryRows { q, visible };
        self.kernels.attend.call(
            &head,
            &rows_in,
            &mut Partials::new(out, rows, &shape.head),
            scratch,
        );
    }

    fn finish_tile(&self, cut: &Cut<'_>, tile: &Tile, state: &Partials<'_>) {
        let (out, group, value_dim) = (cut.phase.out, cut.shape.group, cut.shape.head.value_dim);
        let first_row = self.sequences[tile.sequence].first_row;
        for (i, token) in tile.tokens.clone().enumerate() {
            for member in 0..group {
                let col = (tile.head * group + member) * value_dim;
                // SAFETY: a tile's rows and heads belong to one worker, and nobody reads the output in this phase.
                let place = unsafe { self.part_mut(out, first_row + token, col..col + value_dim) };
                state.finish(i * group + member, place);
            }
        }
    }
}

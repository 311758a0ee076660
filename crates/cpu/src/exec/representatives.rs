//! Which keys of a block stand for it: those that later queries multiply to most, or give most of their attention to.
//!
//! Sums of queries are kept by position, each from the start of its block of positions on, so that what follows from the
//! first positions is there however a session came to its length. What queries give to keys would be a number for each pair:
//! instead the queries of a block of positions are kept until it ends, and then added to what those before gave. As rows
//! choose by what rows before them gave, a step's rows attend in waves, each up to where a block ends.

use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, Partials, ScoreSum};
use program::BlockAnchor;

use super::attention::{Cut, Tile};
use super::context::HeadOf;
use super::items::owner_of;
use super::score::HeadRow;
use super::{Exec, SequenceRows};
use crate::cache::{HeadsCache, MemoryTables};
use crate::geometry::TILE_ROWS;
use crate::plan::AttentionPhase;
use crate::pool::Worker;

/// The rows of a step that attend together, where some wait for what others give to keys: up to the ends of blocks.
pub(super) fn waves(
    phase: &AttentionPhase,
    cache: &HeadsCache,
    sequences: &[SequenceRows],
) -> Option<Vec<Vec<SequenceRows>>> {
    phase.new?;
    let memory = cache.memory.filter(|memory| memory.queries.is_some())?;
    let size = memory.settings.block as usize;
    let first = |s: &SequenceRows| s.start / size;
    let n_blocks = |s: &SequenceRows| (s.start + s.n).div_ceil(size) - first(s);
    let part = |s: &SequenceRows, wave: usize| {
        let (start, end) = (s.start, s.start + s.n);
        let edge = |number: usize| ((first(s) + number) * size).clamp(start, end);
        let (from, to) = (edge(wave), edge(wave + 1));
        SequenceRows { first_row: s.first_row + from - start, n: to - from, start: from }
    };
    let n_waves = sequences.iter().map(n_blocks).max().unwrap_or(0);
    Some((0..n_waves).map(|wave| sequences.iter().map(|s| part(s, wave)).collect()).collect())
}

/// Where a table of queries has one: its elements, and what its scores come to.
struct Kept {
    query: Range<usize>,
    sum: Range<usize>,
}

/// Of a query head at a position.
fn kept(shape: &HeadsCache, head: usize, position: usize) -> Kept {
    let (dim, at) = (shape.head.key_dim, head * BLOCK + position % BLOCK);
    let sums = shape.n_heads * BLOCK * dim;
    Kept { query: at * dim..(at + 1) * dim, sum: sums + 2 * at..sums + 2 * at + 2 }
}

impl Exec<'_> {
    /// The sum of the queries of a key-value head from the start of the block of a position, its own still to be added;
    /// empty where nobody asks for it.
    #[expect(clippy::mut_from_ref, reason = "a head of a block belongs to one item of a section")]
    pub(super) fn heard_row(&self, cut: &Cut<'_>, of: &HeadOf, position: usize) -> &mut [f32] {
        let Some((memory, table)) = cut.shape.memory.and_then(|m| Some((m, m.heard?))) else {
            return &mut [];
        };
        if cut.phase.new.is_none() || memory.settings.anchor != BlockAnchor::Products {
            return &mut [];
        }
        let dim = cut.shape.head.key_dim;
        let block = self.blocks.get(table, of.sequence, position / BLOCK).floats();
        let at = (of.head * BLOCK + position % BLOCK) * dim;
        // SAFETY: this head of this block belongs to one item of the section.
        let row = unsafe { block.slice_mut(at..at + dim) };
        if position.is_multiple_of(memory.settings.block as usize) {
            row.fill(0.0);
        } else {
            // SAFETY: as above; the row before is another one of the same block.
            row.copy_from_slice(unsafe { block.slice(at - dim..at) });
        }
        row
    }

    /// For each key of a block: its product with the sum of the queries after the block, until it is finished.
    pub(super) fn products(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        of: &HeadOf,
        block: usize,
    ) -> Vec<f32> {
        let (shape, size) = (&cut.shape.head, memory.settings.block as usize);
        let (dim, heard) = (shape.key_dim, memory.heard.unwrap_or(memory.index));
        let mut asked = vec![0.0; dim];
        for later in block + 1..=block + memory.settings.anchor_lag() {
            let last = (later + 1) * size - 1;
            let rows = self.blocks.get(heard, of.sequence, last / BLOCK).floats();
            let at = (of.head * BLOCK + last % BLOCK) * dim;
            // SAFETY: written in a section before.
            let said = unsafe { rows.slice(at..at + dim) };
            asked.iter_mut().zip(said).for_each(|(sum, q)| *sum += q);
        }
        let number = block * size / BLOCK;
        let Some(keys) = self.blocks.take(cut.table(false), of.sequence, number) else {
            return vec![0.0; size];
        };
        // SAFETY: keys are not written from here to the end of the phase.
        let keys = unsafe { keys.slice(cut.shape.layout.keys(of.head)) };
        let first = block * size % BLOCK;
        let product = |position: usize| {
            let elements = asked.iter().enumerate();
            elements.fold(0.0, |sum, (d, q)| q.mul_add(shape.key_at(keys, position, d), sum))
        };
        (first..first + size).map(product).collect()
    }

    /// Keep the queries that read a key-value head of a position, which are rotated, where they are wanted later.
    pub(super) fn keep_queries(&self, cut: &Cut<'_>, of: &HeadOf, position: usize) {
        let Some(table) = cut.shape.memory.and_then(|memory| memory.queries) else { return };
        if cut.phase.new.is_none() {
            return;
        }
        let (group, dim) = (cut.phase.group, cut.shape.head.key_dim);
        let SequenceRows { first_row, start, .. } = cut.sequences[of.sequence];
        let block = self.blocks.get(table, of.sequence, position / BLOCK).floats();
        for head in of.head * group..(of.head + 1) * group {
            let Kept { query, .. } = kept(cut.shape, head, position);
            let cols = head * dim..(head + 1) * dim;
            // SAFETY: these heads of this row belong to this item, and nobody writes them now.
            let q = unsafe { self.part_mut(cut.phase.q, first_row + position - start, cols) };
            // SAFETY: these heads of this block belong to one item.
            unsafe { block.slice_mut(query) }.copy_from_slice(q);
        }
    }

    /// Keep what the scores of a tile's rows came to, beside their queries.
    pub(super) fn keep_sums(&self, cut: &Cut<'_>, tile: &Tile, state: &Partials<'_>) {
        let Some(table) = cut.shape.memory.and_then(|memory| memory.queries) else { return };
        if cut.phase.new.is_none() {
            return;
        }
        let start = cut.sequences[tile.sequence].start;
        for (i, HeadRow { head, token }) in cut.rows(tile).enumerate() {
            let position = start + token;
            let block = self.blocks.get(table, tile.sequence, position / BLOCK).floats();
            let Kept { sum, .. } = kept(cut.shape, head, position);
            // SAFETY: a tile's rows and heads belong to one item.
            unsafe { block.slice_mut(sum) }.copy_from_slice(&[state.max[i], state.sum[i]]);
        }
    }

    /// Blocks of positions that end with a wave: what their queries give to keys, then what stands for the blocks that are
    /// finished with them.
    pub(super) fn hear(&self, worker: &Worker<'_>, cut: &Cut<'_>, scratch: &mut [f32]) {
        let Some((memory, table)) = cut.shape.memory.and_then(|m| Some((m, m.heard?))) else {
            return;
        };
        let (size, heads) = (memory.settings.block as usize, cut.shape.layout.n_kv_heads());
        let near = memory.near_positions();
        let ends = |s: &SequenceRows| s.n > 0 && (s.start + s.n).is_multiple_of(size);
        // blocks of keys that have positions that were near
        let keys = |s: &SequenceRows| {
            let end = s.start + s.n;
            if ends(s) { end.saturating_sub(near) / BLOCK..end.div_ceil(BLOCK) } else { 0..0 }
        };
        let total: usize = cut.sequences.iter().map(|s| keys(s).len() * heads).sum();
        if total == 0 {
            return;
        }
        worker.section(|section| {
            for item in section.take(total) {
                let (sequence, item) = owner_of(cut.sequences, item, |s| keys(s).len() * heads);
                let rows = &cut.sequences[sequence];
                let (number, head) = (keys(rows).start + item / heads, item % heads);
                let end = rows.start + rows.n;
                let of = HeadOf { sequence, head };
                let positions =
                    (number * BLOCK).max(end.saturating_sub(near))..((number + 1) * BLOCK).min(end);
                let mut masses = [0.0; BLOCK];
                // what the queries before this block gave; its own keys are new
                let known = positions.start..positions.end.min(end - size);
                if !known.is_empty() {
                    let before = self.blocks.get(table, sequence, end / size - 2).floats();
                    let at = |position: usize| head * near + position + near - (end - size);
                    // SAFETY: written in a section or a step before.
                    let before = unsafe { before.slice(at(known.start)..at(known.end)) };
                    masses[known.start - number * BLOCK..][..known.len()].copy_from_slice(before);
                }
                self.give(cut, &of, end - size..end, number, (&mut masses, &mut *scratch));
                let at = |position: usize| head * near + position + near - end;
                let after = self.blocks.get(table, sequence, end / size - 1).floats();
                // SAFETY: these positions of this head belong to one item.
                let after = unsafe { after.slice_mut(at(positions.start)..at(positions.end)) };
                after.copy_from_slice(&masses[positions.start - number * BLOCK..][..after.len()]);
            }
        });
        self.index_blocks(worker, cut, &memory);
    }

    /// Add what queries at these positions give to the near positions of a block of keys, one query after the other.
    fn give(
        &self,
        cut: &Cut<'_>,
        of: &HeadOf,
        asking: Range<usize>,
        number: usize,
        (masses, scratch): (&mut [f32; BLOCK], &mut [f32]),
    ) {
        let Some(memory) = cut.shape.memory else { return };
        let Some(table) = memory.queries else { return };
        let (shape, group) = (&cut.shape.head, cut.phase.group);
        let Some(keys) = self.blocks.take(cut.table(false), of.sequence, number) else { return };
        // SAFETY: keys are not written from here to the end of the phase.
        let keys = unsafe { keys.slice(cut.shape.layout.keys(of.head)) };
        let block = HeadBlock { shape: *shape, keys, values: &[] };
        let rows = SequenceRows { first_row: 0, n: asking.len(), start: asking.start };
        let step = cut.phase.tile_tokens();
        for first in asking.clone().step_by(step) {
            let positions = first..(first + step).min(asking.end);
            let tokens = positions.start - asking.start..positions.end - asking.start;
            let heads = of.head * group..(of.head + 1) * group;
            let each =
                tokens.flat_map(|token| heads.clone().map(move |head| HeadRow { head, token }));
            let (q, scratch) = scratch.split_at_mut(positions.len() * group * shape.key_dim);
            let mut sums = [ScoreSum::NOTHING; TILE_ROWS];
            for ((row, q), of_row) in
                each.clone().zip(q.chunks_exact_mut(shape.key_dim)).zip(&mut sums)
            {
                let position = asking.start + row.token;
                let block = self.blocks.get(table, of.sequence, position / BLOCK).floats();
                let Kept { query, sum } = kept(cut.shape, row.head, position);
                // SAFETY: written in a section or a step before.
                q.copy_from_slice(unsafe { block.slice(query) });
                // SAFETY: as above.
                let sum = unsafe { block.slice(sum) };
                *of_row = ScoreSum { max: sum[0], sum: sum[1] };
            }
            let near = |row: HeadRow| {
                let position = asking.start + row.token;
                memory.settings.first_near(position)..position + 1
            };
            let of_block = cut.score.of_seen(&rows, each, number, near);
            let queries = cut.score.queries(q, &of_block);
            let sums = &sums[..positions.len() * group];
            self.kernels.masses.call(&block, &queries, sums, masses, scratch);
        }
    }

    /// For each key of a block that is being finished: what queries gave it while it was near.
    pub(super) fn masses(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        of: &HeadOf,
        block: usize,
    ) -> Vec<f32> {
        let (near, size) = (memory.near_positions(), memory.settings.block as usize);
        let table = memory.heard.unwrap_or(memory.index);
        let last = block + memory.settings.anchor_lag();
        let given = self.blocks.get(table, of.sequence, last).floats();
        debug_assert_eq!(near, cut.shape.memory.map_or(0, |memory| memory.near_positions()));
        // it is the first of those that were near. SAFETY: written in a section before.
        unsafe { given.slice(of.head * near..of.head * near + size) }.to_vec()
    }
}

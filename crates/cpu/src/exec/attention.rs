//! Attention phases: rotate and store | attend | fold.
//!
//! Work is cut by key-value head and by tiles of tokens, whose query heads share each cached row they read. With few
//! tiles (steps) it is cut by block of the cache too. A block's partial result is always computed alone and folded in
//! ascending order, so no cut changes a bit.

use std::cell::Cell;
use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, Partials};
use program::WeightId;

use super::context::{HeadOf, RowReads, Segment, Segments, most_segments, segments};
use super::far::HeadRows;
use super::items::owner_of;
use super::representatives::waves;
use super::score::{BlockRows, HeadRow, RowScore, blocks};
use super::selected::reading_all;
use super::{Angles, Exec, Scratch, SequenceRows};
use crate::cache::{Asks, HeadsCache, MemoryTables, pairs};
use crate::geometry::MAX_PARTIAL_FLOATS;
use crate::plan::{AttentionPhase, NewRows, Operand};
use crate::pool::Worker;

/// Floats of scratch a worker needs for this cache.
pub(crate) fn scratch_floats(shape: &HeadsCache) -> usize {
    let rows = shape.tile_rows;
    let kernel = kernels::attention::scratch_floats(rows, &shape.head);
    rows * shape.head.key_dim + 2 * shape.partial_floats() + kernel
}

fn tiles_of(phase: &AttentionPhase, shape: &HeadsCache, sequence: &SequenceRows) -> usize {
    sequence.n.div_ceil(phase.tile_tokens()) * shape.layout.n_kv_heads()
}

/// Tiles of all sequences, and the most blocks any of them may read.
fn extent(
    phase: &AttentionPhase,
    shape: &HeadsCache,
    sequences: &[SequenceRows],
) -> (usize, usize) {
    let tiles = sequences.iter().map(|s| tiles_of(phase, shape, s)).sum();
    let blocks = sequences.iter().filter(|s| s.n > 0).map(|s| match &shape.memory {
        None => blocks(phase.score.mask, s, &(0..s.n)).len(),
        Some(memory) => most_segments(&memory.settings, s, phase.tile_tokens().min(s.n)),
    });
    (tiles, blocks.max().unwrap_or(0))
}

/// Floats of the results of all tiles and blocks if blocks are items of their own, folded afterwards: with few tiles,
/// as long as the results find room. Else 0.
pub(crate) fn split_floats(
    phase: &AttentionPhase,
    shape: &HeadsCache,
    sequences: &[SequenceRows],
    workers: usize,
) -> usize {
    let once = |rows: &[SequenceRows]| split_once(phase, shape, rows, workers);
    if let Some(chosen) = &phase.chosen {
        return once(&reading_all(chosen, sequences));
    }
    match waves(phase, shape, sequences) {
        None => once(sequences),
        Some(waves) => waves.iter().map(|wave| once(wave)).max().unwrap_or(0),
    }
}

/// The same for rows that attend together.
fn split_once(
    phase: &AttentionPhase,
    shape: &HeadsCache,
    sequences: &[SequenceRows],
    workers: usize,
) -> usize {
    let (n_tiles, n_blocks) = extent(phase, shape, sequences);
    let floats = n_tiles.saturating_mul(n_blocks).saturating_mul(shape.partial_floats());
    let split = n_blocks > 1 && n_tiles < 4 * workers && floats <= MAX_PARTIAL_FLOATS;
    if split { floats } else { 0 }
}

/// Tokens of one sequence, one key-value head.
#[derive(Clone)]
pub(super) struct Tile {
    pub(super) sequence: usize,
    /// Tokens within the sequence.
    pub(super) tokens: Range<usize>,
    pub(super) head: usize,
}

/// How one attention phase is cut in this step.
pub(super) struct Cut<'a> {
    pub(super) phase: &'a AttentionPhase,
    pub(super) shape: &'a HeadsCache,
    pub(super) score: RowScore<'a>,
    pub(super) sequences: &'a [SequenceRows],
    pub(super) n_tiles: usize,
    /// Most blocks any tile reads.
    n_blocks: usize,
}

impl Cut<'_> {
    /// What a row asks of blocks.
    pub(super) fn asks(&self, memory: &MemoryTables) -> Asks {
        memory.asks(self.shape.layout.n_kv_heads(), self.score.n_heads())
    }

    /// The table that has a segment.
    pub(super) fn table(&self, is_far: bool) -> usize {
        let far = self.shape.memory.filter(|_| is_far).and_then(|memory| memory.far);
        far.unwrap_or(self.phase.cache.0 as usize)
    }

    pub(super) fn tile(&self, number: usize) -> Tile {
        let tiles = |rows: &SequenceRows| tiles_of(self.phase, self.shape, rows);
        let (index, number) = owner_of(self.sequences, number, tiles);
        let heads = self.shape.layout.n_kv_heads();
        let first = number / heads * self.phase.tile_tokens();
        let tokens = first..(first + self.phase.tile_tokens()).min(self.sequences[index].n);
        Tile { sequence: index, tokens, head: number % heads }
    }

    /// Number of a tile's rows.
    pub(super) fn n_rows(&self, tile: &Tile) -> usize {
        tile.tokens.len() * self.phase.group
    }

    /// Rows of a tile: for each token the heads of its group.
    pub(super) fn rows(&self, tile: &Tile) -> impl Iterator<Item = HeadRow> + use<> {
        let heads = tile.head * self.phase.group..(tile.head + 1) * self.phase.group;
        let tokens = tile.tokens.clone();
        tokens.flat_map(move |token| heads.clone().map(move |head| HeadRow { head, token }))
    }

    /// A fresh state of a tile's rows in `memory`.
    pub(super) fn begin<'m>(&self, tile: &Tile, memory: &'m mut [f32]) -> Partials<'m> {
        let mut state = Partials::new(memory, self.n_rows(tile), &self.shape.head);
        self.score.begin(&mut state, self.rows(tile).map(|row| row.head));
        state
    }
}

impl Exec<'_> {
    /// What some token of a tile sees something of.
    fn segments(&self, cut: &Cut<'_>, tile: &Tile) -> Segments {
        let sequence = &cut.sequences[tile.sequence];
        match &cut.shape.memory {
            None => Segments::Run(cut.score.blocks(sequence, &tile.tokens)),
            Some(memory) => {
                let row = |token| -> RowReads<'_> {
                    self.reads(memory, tile.sequence, sequence.start + token, tile.head)
                };
                Segments::List(segments(tile.tokens.clone().map(row), memory.is_split()))
            }
        }
    }

    pub(super) fn attention(
        &self,
        worker: &Worker<'_>,
        phase: &AttentionPhase,
        scratch: &mut Scratch<'_>,
    ) {
        let shape = self.attention[phase.cache.0 as usize].heads();
        let score = self.score(&phase.score, phase.group * shape.layout.n_kv_heads());
        let cut = |sequences| {
            let (n_tiles, n_blocks) = extent(phase, shape, sequences);
            Cut { phase, shape, score, sequences, n_tiles, n_blocks }
        };
        let all = cut(self.sequences);
        self.rotate_and_store(worker, &all, scratch);
        if let Some(chosen) = &phase.chosen {
            let dense = reading_all(chosen, self.sequences);
            self.attend(worker, &cut(&dense), scratch);
            return self.attend_chosen(worker, &all, chosen, scratch);
        }
        let Some(waves) = waves(phase, shape, self.sequences) else {
            return self.attend(worker, &all, scratch);
        };
        for wave in &waves {
            let cut = cut(wave);
            self.attend(worker, &cut, scratch);
            self.hear(worker, &cut, scratch.attention);
        }
    }

    /// Rows attend that are stored, and what stands for blocks before them is known, but for those that end with them.
    fn attend(&self, worker: &Worker<'_>, cut: &Cut<'_>, scratch: &mut Scratch<'_>) {
        let (phase, shape) = (cut.phase, cut.shape);
        if let Some(memory) = &shape.memory {
            self.choose_blocks(worker, cut, memory, scratch.attention);
            if !self.last_choices.is_empty() {
                // an item: outside a section nobody waits, and the next layer's choices would be written meanwhile
                worker.section(|section| {
                    section.take(1).for_each(|_| self.read_chosen(cut, memory));
                });
            }
        }
        if split_once(phase, shape, cut.sequences, worker.n) == 0 {
            worker.section(|section| {
                for number in section.take(cut.n_tiles) {
                    self.attend_tile(cut, &cut.tile(number), scratch);
                }
            });
        } else {
            self.attend_split(worker, cut, scratch);
        }
        if let Some(memory) = &shape.memory {
            self.measure(worker, cut, memory, scratch.attention);
        }
    }

    /// The same where blocks are items of their own, folded afterwards.
    fn attend_split(&self, worker: &Worker<'_>, cut: &Cut<'_>, scratch: &mut Scratch<'_>) {
        let shape = cut.shape;
        let tile_len = shape.partial_floats();
        worker.section(|section| {
            // what a tile reads is found once for the items of it that come in a row
            let mut last: Option<(usize, Tile, Segments)> = None;
            for item in section.take(cut.n_tiles * cut.n_blocks) {
                let number = item / cut.n_blocks;
                if last.as_ref().is_none_or(|(last, ..)| *last != number) {
                    let tile = cut.tile(number);
                    let segments = self.segments(cut, &tile);
                    last = Some((number, tile, segments));
                }
                let Some((_, tile, segments)) = &last else { continue };
                // what is near comes last in the list and first here: it is in memory, the rest perhaps on its way there
                let i = cut.n_blocks - 1 - item % cut.n_blocks;
                if let Some(segment) = segments.get(i) {
                    let len = Partials::floats(cut.n_rows(tile), &shape.head);
                    let start = (number * cut.n_blocks + i) * tile_len;
                    let place = start..start + len;
                    // SAFETY: items are dealt once each, and each has its own part.
                    let out = unsafe { self.partials.slice_mut(place) };
                    self.attend_block(cut, tile, segment, out, scratch.attention);
                }
            }
        });
        worker.section(|section| {
            section.take(cut.n_tiles).for_each(|number| self.fold_tile(cut, number, scratch));
        });
    }

    /// Rotate q and k, scale q, and write k and v into the cache, if this layer does. One item is one head in one block of
    /// the cache.
    fn rotate_and_store(&self, worker: &Worker<'_>, cut: &Cut<'_>, scratch: &mut Scratch<'_>) {
        let heads = cut.shape.layout.n_kv_heads();
        let items = |rows: &SequenceRows| rows.blocks().len() * heads;
        let total = self.sequences.iter().map(items).sum();
        worker.section(|section| {
            for item in section.take(total) {
                let (index, item) = owner_of(self.sequences, item, items);
                let block = self.sequences[index].blocks().start + item / heads;
                self.store_head(cut, index, block, item % heads, scratch.attention);
            }
        });
    }

    /// The new rows of one sequence that fall into one block, for one key-value head and its query heads.
    fn store_head(
        &self,
        cut: &Cut<'_>,
        sequence: usize,
        block: usize,
        head: usize,
        scratch: &mut [f32],
    ) {
        let (phase, shape) = (cut.phase, cut.shape);
        let (key_dim, value_dim) = (shape.head.key_dim, shape.head.value_dim);
        let SequenceRows { first_row, n, start } = self.sequences[sequence];
        let positions = start.max(block * BLOCK)..(start + n).min((block + 1) * BLOCK);
        if let Some(memory) = &shape.memory {
            self.store_far(
                cut,
                memory,
                &HeadRows { sequence, positions: positions.clone(), head },
                scratch,
            );
        }
        if let Some(NewRows { k, v }) = phase.new {
            let memory = self.blocks.get(phase.cache.0 as usize, sequence, block);
            // SAFETY: this head of this block belongs to one item, and nobody reads it in this section.
            let keys = unsafe { memory.slice_mut(shape.layout.keys(head)) };
            // SAFETY: as above.
            let values = unsafe { memory.slice_mut(shape.layout.values(head)) };
            for position in positions.clone() {
                let row = first_row + position - start;
                // SAFETY: this row's head belongs to one item, and others read it in later sections.
                let key = unsafe { self.part_mut(k, row, head * key_dim..(head + 1) * key_dim) };
                self.rotate(phase, row, key);
                self.norm_rotated(phase.norm.map(|norm| (norm.k, norm.eps)), key);
                shape.head.store_key(keys, position % BLOCK, key);
                let value = &self.row(v, row)[head * value_dim..(head + 1) * value_dim];
                shape.head.store_value(values, position % BLOCK, value);
            }
        }
        for position in positions {
            let row = first_row + position - start;
            let factor = cut.score.factor(position);
            let of = HeadOf { sequence, head };
            let heard = self.heard_row(cut, &of, position);
            for query in head * phase.group..(head + 1) * phase.group {
                // SAFETY: as above.
                let query =
                    unsafe { self.part_mut(phase.q, row, query * key_dim..(query + 1) * key_dim) };
                self.rotate(phase, row, query);
                self.norm_rotated(phase.norm.map(|norm| (norm.q, norm.eps)), query);
                for x in &mut *query {
                    *x *= factor;
                }
                heard.iter_mut().zip(&*query).for_each(|(sum, q)| *sum += q);
            }
            self.keep_queries(cut, &of, position);
        }
    }

    pub(super) fn rotate(&self, phase: &AttentionPhase, row: usize, head: &mut [f32]) {
        if let Some(rope) = phase.rope {
            self.turn(rope, &self.angles[rope], row, head);
        }
    }

    pub(super) fn turn(&self, rope: usize, angles: &Angles, row: usize, head: &mut [f32]) {
        let at = row * angles.n_pairs..(row + 1) * angles.n_pairs;
        let pairs = pairs(&self.schedule.ropes[rope].rope);
        self.kernels.rotate.call(head, &angles.cos[at.clone()], &angles.sin[at], pairs);
    }

    pub(super) fn norm_rotated(&self, norm: Option<(Option<WeightId>, f32)>, head: &mut [f32]) {
        let Some((weight, eps)) = norm else { return };
        const WIDE: usize = 512;
        let (mut copy, mut wide) = ([0.0; WIDE], Vec::new());
        let copy = match copy.get_mut(..head.len()) {
            Some(copy) => copy,
            None => {
                wide.resize(head.len(), 0.0);
                &mut wide[..]
            }
        };
        copy.copy_from_slice(head);
        let ones = || self.weights.ones(copy.len());
        let weight = weight.map_or_else(ones, |id| self.weights.vector(id));
        self.kernels.rms_norm.call(copy, weight, eps, head);
    }

    /// Columns of a row of q, k or the output, to write: `lower` made sure that this phase alone uses them.
    ///
    /// # Safety
    /// Until the section ends, no other reference to these columns of this row may be used.
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
        let (shape, rows) = (&cut.shape.head, cut.n_rows(tile));
        let floats = Partials::floats(rows, shape);
        let (state, rest) = scratch.attention.split_at_mut(floats);
        let (partial, rest) = rest.split_at_mut(floats);
        let mut state = cut.begin(tile, state);
        let segments = self.segments(cut, tile);
        if !self.last_choices.is_empty() {
            let far = segments.iter().filter(|s| s.is_far || cut.table(true) == cut.table(false));
            let far: Vec<u32> = far.map(|segment| segment.number as u32).collect();
            self.blocks.read_ahead(cut.table(true), tile.sequence, &far);
        }
        for segment in segments.iter() {
            self.attend_block(cut, tile, segment, partial, rest);
            self.kernels.merge.call(&mut state, &Partials::new(partial, rows, shape));
        }
        self.finish_tile(cut, tile, &state);
    }

    /// Fold the partials that [`attend_block`](Self::attend_block) left for a tile and store the outputs.
    fn fold_tile(&self, cut: &Cut<'_>, number: usize, scratch: &mut Scratch<'_>) {
        let tile = cut.tile(number);
        let (shape, rows) = (&cut.shape.head, cut.n_rows(&tile));
        let floats = Partials::floats(rows, shape);
        let (state, rest) = scratch.attention.split_at_mut(floats);
        let mut state = cut.begin(&tile, state);
        for i in 0..self.segments(cut, &tile).len() {
            let start = (number * cut.n_blocks + i) * cut.shape.partial_floats();
            // SAFETY: written in the section before; nobody writes partials in this one.
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
        segment: Segment,
        out: &mut [f32],
        scratch: &mut [f32],
    ) {
        let sequence = &cut.sequences[tile.sequence];
        let last = Cell::new((usize::MAX, 0, 0));
        let seen = |row: HeadRow| match &cut.shape.memory {
            None => cut.score.seen(sequence, row.token),
            Some(memory) => {
                // the heads of a token read alike, and come in a row
                let (token, start, end) = last.get();
                if token == row.token {
                    return start..end;
                }
                let position = sequence.start + row.token;
                let reads = self.reads(memory, tile.sequence, position, tile.head);
                let seen = reads.of(segment, memory.is_split());
                last.set((row.token, seen.start, seen.end));
                seen
            }
        };
        let of_block = cut.score.of_seen(sequence, cut.rows(tile), segment.number, seen);
        self.attend_seen(cut, (tile, segment), &of_block, out, scratch);
    }

    /// The same where it is known what the tile's rows see.
    pub(super) fn attend_seen(
        &self,
        cut: &Cut<'_>,
        (tile, segment): (&Tile, Segment),
        seen: &BlockRows,
        out: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (shape, rows) = (cut.shape, cut.n_rows(tile));
        let width = cut.phase.group * shape.head.key_dim;
        let table = cut.table(segment.is_far);
        let Some(memory) = self.blocks.take(table, tile.sequence, segment.number) else { return };
        // SAFETY: the cache is not written between `rotate_and_store` and the end of the phase.
        let keys = unsafe { memory.slice(shape.layout.keys(tile.head)) };
        // SAFETY: as above.
        let values = unsafe { memory.slice(shape.layout.values(tile.head)) };
        let (q, scratch) = scratch.split_at_mut(tile.tokens.len() * width);
        self.tile_queries(cut, tile, segment.is_far, q);
        let head = HeadBlock { shape: shape.head, keys, values };
        let queries = cut.score.queries(q, seen);
        let mut out = Partials::new(out, rows, &shape.head);
        self.kernels.attend.call(&head, &queries, &mut out, scratch);
    }

    /// The queries of a tile's rows, `[n_rows, key_dim]`, as they meet what is near or what is not.
    pub(super) fn tile_queries(&self, cut: &Cut<'_>, tile: &Tile, is_far: bool, q: &mut [f32]) {
        let width = cut.phase.group * cut.shape.head.key_dim;
        let first_row = cut.sequences[tile.sequence].first_row;
        for (token, q) in tile.tokens.clone().zip(q.chunks_exact_mut(width)) {
            let cols = tile.head * width..(tile.head + 1) * width;
            q.copy_from_slice(self.met_query(cut, first_row + token, cols, is_far));
        }
    }

    /// Columns of a row of queries, as they meet what is near or what is not.
    pub(super) fn met_query(
        &self,
        cut: &Cut<'_>,
        row: usize,
        cols: Range<usize>,
        is_far: bool,
    ) -> &[f32] {
        let is_fixed = cut.shape.memory.is_some_and(|memory| memory.settings.keeps_far_keys());
        if !(is_far && is_fixed) {
            return &self.row(cut.phase.q, row)[cols];
        }
        let start = row * cut.phase.q.cols;
        // SAFETY: written in a section before.
        unsafe { self.context.far.slice(start + cols.start..start + cols.end) }
    }

    pub(super) fn finish_tile(&self, cut: &Cut<'_>, tile: &Tile, state: &Partials<'_>) {
        let (out, group, value_dim) = (cut.phase.out, cut.phase.group, cut.shape.head.value_dim);
        let first_row = cut.sequences[tile.sequence].first_row;
        for (i, token) in tile.tokens.clone().enumerate() {
            for member in 0..group {
                let col = (tile.head * group + member) * value_dim;
                // SAFETY: a tile's rows and heads belong to one worker, and nobody reads the output in this phase.
                let place = unsafe { self.part_mut(out, first_row + token, col..col + value_dim) };
                state.finish(i * group + member, place);
            }
        }
        self.keep_sums(cut, tile, state);
    }
}

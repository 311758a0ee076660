//! Context memory: anchors of blocks that came to an end | what blocks promise each row | which of them it reads.
//!
//! Every section's items own what they write, and what a row chooses follows from its position and what is before it.

use std::ops::Range;

use kernels::attention::{ANCHORS, BLOCK};
use program::{BlockAnchor, ContextMemory};

use super::attention::Cut;
use super::certificate::Asking;
use super::choices::{ChoiceOf, batches, padded};
use super::items::owner_of;
use super::supers::{few_from, promise_len};
use super::{Exec, SequenceRows};
use crate::cache::MemoryTables;
use crate::pool::Worker;

/// Rows of an item of promises.
const ROWS: usize = 32;
/// Index blocks of an item of promises.
const SPAN: usize = 8;

/// Add what a query asks for to its row's.
pub(super) fn ask(anchor: BlockAnchor, asked: &mut [f32], query: &[f32]) {
    match anchor {
        BlockAnchor::Bounds => {
            let (greatest, least) = asked.split_at_mut(query.len());
            for ((most, least), q) in greatest.iter_mut().zip(least).zip(query) {
                *most += q.max(0.0);
                *least += q.min(0.0);
            }
        }
        BlockAnchor::Mean
        | BlockAnchor::Greatest
        | BlockAnchor::Fixed
        | BlockAnchor::Products
        | BlockAnchor::Mass
        | BlockAnchor::All => {
            asked.iter_mut().zip(query).for_each(|(asked, q)| *asked += q);
        }
    }
}

/// The blocks that a row reads.
#[derive(Clone, Copy)]
enum Picked<'a> {
    /// All that are finished.
    All,
    /// These, in ascending order.
    Few(&'a [u32]),
    /// Those whose bits are set.
    Marked(&'a [u32]),
}

impl Picked<'_> {
    fn has(&self, block: usize) -> bool {
        match self {
            Picked::All => true,
            Picked::Few(blocks) => blocks.binary_search(&(block as u32)).is_ok(),
            Picked::Marked(bits) => bits[block / 32] >> (block % 32) & 1 == 1,
        }
    }
}

/// What a row reads of a cache with a memory.
#[derive(Clone, Copy)]
pub(super) struct RowReads<'a> {
    settings: &'a ContextMemory,
    position: usize,
    picked: Picked<'a>,
}

impl<'a> RowReads<'a> {
    /// What a row at `position` reads whatever it chooses.
    pub(super) fn always(settings: &'a ContextMemory, position: usize) -> RowReads<'a> {
        RowReads { settings, position, picked: Picked::Few(&[]) }
    }

    /// The positions that it reads of the 128 of block `number`, near ones apart. They are neighbours: what lies between
    /// a part of a block that is always read and one that is chosen is less than a block.
    fn far(&self, number: usize) -> Range<usize> {
        let (start, end) = (number * BLOCK, (number + 1) * BLOCK);
        let mut read = end..start;
        let mut add = |range: Range<usize>| {
            let part = range.start.max(start)..range.end.min(end);
            if !part.is_empty() {
                read = read.start.min(part.start)..read.end.max(part.end);
            }
        };
        self.settings.always_far(self.position).into_iter().for_each(&mut add);
        let size = self.settings.block as usize;
        let finished = self.settings.finished(self.position);
        for block in start / size..end / size {
            if finished.contains(&block) && self.picked.has(block) {
                add(block * size..(block + 1) * size);
            }
        }
        read
    }

    fn near(&self) -> Range<usize> {
        self.settings.first_near(self.position)..self.position + 1
    }

    /// The positions that it reads of what a segment has.
    pub(super) fn of(&self, segment: Segment, is_split: bool) -> Range<usize> {
        let far = || self.far(segment.number);
        if segment.is_far {
            return far();
        }
        if is_split {
            return self.near();
        }
        // both are of one table: where a block has some of both, what is not near ends where the near begins
        let (far, near) = (far(), self.near());
        let is_near = near.start < (segment.number + 1) * BLOCK;
        match (far.is_empty(), is_near) {
            (true, _) => near,
            (false, true) => far.start..near.end,
            (false, false) => far,
        }
    }

    /// Whether it chose a finished block.
    pub(super) fn reads_block(&self, block: usize) -> bool {
        self.picked.has(block)
    }

    /// Numbers of the blocks of 128 that it reads of what is not near.
    pub(super) fn far_numbers(&self, out: &mut Vec<u32>) {
        let numbers = |range: &Range<usize>| range.start / BLOCK..range.end.div_ceil(BLOCK);
        for range in self.settings.always_far(self.position).iter().filter(|r| !r.is_empty()) {
            out.extend(numbers(range).map(|number| number as u32));
        }
        let size = self.settings.block as usize;
        let finished = self.settings.finished(self.position);
        match self.picked {
            Picked::All => {
                let Range { start, end } = finished;
                if start < end {
                    out.extend(numbers(&(start * size..end * size)).map(|number| number as u32));
                }
            }
            Picked::Few(blocks) => {
                out.extend(blocks.iter().map(|block| (*block as usize * size / BLOCK) as u32));
            }
            Picked::Marked(_) => {
                let read = finished.filter(|block| self.picked.has(*block));
                out.extend(read.map(|block| (block * size / BLOCK) as u32));
            }
        }
    }
}

/// A block of a table that a tile reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Of the positions from 128 times this on.
    pub(super) number: usize,
    /// Whether it is of the table of what is not near.
    pub(super) is_far: bool,
}

/// What a tile reads, in ascending order.
pub(super) enum Segments {
    /// Blocks without gaps.
    Run(Range<usize>),
    /// Some blocks.
    List(Vec<Segment>),
}

impl Segments {
    pub(super) fn len(&self) -> usize {
        match self {
            Segments::Run(run) => run.len(),
            Segments::List(list) => list.len(),
        }
    }

    pub(super) fn get(&self, i: usize) -> Option<Segment> {
        match self {
            Segments::Run(run) => {
                let number = Some(run.start + i).filter(|number| run.contains(number));
                number.map(|number| Segment { number, is_far: false })
            }
            Segments::List(list) => list.get(i).copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Segment> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

/// What some rows read, in ascending order.
pub(super) fn segments<'a>(
    rows: impl Iterator<Item = RowReads<'a>> + Clone,
    is_split: bool,
) -> Vec<Segment> {
    let mut far = Vec::new();
    rows.clone().for_each(|row| row.far_numbers(&mut far));
    let near = rows.map(|row| row.near()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
    let near = near.map_or(0..0, |near| near.start / BLOCK..near.end.div_ceil(BLOCK));
    if !is_split {
        far.extend(near.clone().map(|number| number as u32));
    }
    far.sort_unstable();
    far.dedup();
    let far = far.into_iter().map(|number| Segment { number: number as usize, is_far: is_split });
    let near = near.filter(|_| is_split).map(|number| Segment { number, is_far: false });
    far.chain(near).collect()
}

/// Most segments of a tile of `tokens` rows of a sequence.
pub(super) fn most_segments(
    settings: &ContextMemory,
    sequence: &SequenceRows,
    tokens: usize,
) -> usize {
    let last = sequence.start + sequence.n - 1;
    let blocks = |positions: usize| positions.div_ceil(BLOCK) + 1;
    let all = blocks(last + 1);
    let near = blocks(settings.n_local as usize + tokens);
    let always = blocks(settings.n_init as usize) + blocks(2 * settings.block as usize + tokens);
    let each = if settings.certificate.is_some() { usize::MAX } else { settings.n_blocks as usize };
    let chosen = each.saturating_mul(tokens);
    all.min(always.saturating_add(chosen)) + near.min(all)
}

/// A key-value head of a sequence.
#[derive(Clone, Copy)]
pub(super) struct HeadOf {
    pub(super) sequence: usize,
    pub(super) head: usize,
}

impl Exec<'_> {
    /// What the row at a position of a sequence reads for a key-value head.
    pub(super) fn reads<'s>(
        &'s self,
        memory: &'s MemoryTables,
        sequence: usize,
        position: usize,
        head: usize,
    ) -> RowReads<'s> {
        let settings = &memory.settings;
        if !settings.chooses(position) {
            return RowReads { settings, position, picked: Picked::All };
        }
        let choice = if memory.n_choices == 1 { 0 } else { head };
        let of = ChoiceOf { sequence, position: settings.chosen_at(position), choice };
        // SAFETY: written in a section or a step before.
        let chosen = unsafe { self.chosen(memory, of) };
        let is_marked = settings.certificate.is_some();
        let picked = if is_marked { Picked::Marked(chosen) } else { Picked::Few(chosen) };
        RowReads { settings, position, picked }
    }

    /// What a head of an [asking row](Self::asking_row) asks for, one of key-value heads or, for a certificate, of query heads: nothing yet.
    ///
    /// # Safety
    /// Until the section ends, nobody else may use it.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(super) unsafe fn asked(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        row: usize,
        head: usize,
    ) -> &mut [f32] {
        let width = memory.anchor_width;
        let is_joint = memory.n_choices == 1 && memory.settings.certificate.is_none();
        let place = if is_joint {
            row * cut.shape.layout.n_kv_heads() + head
        } else {
            head * self.tokens.len() + row
        };
        // SAFETY: the caller's promise.
        let asked = unsafe { self.context.asked.slice_mut(place * width..(place + 1) * width) };
        asked.fill(0.0);
        asked
    }

    /// Which blocks each row reads.
    pub(super) fn choose_blocks(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        scratch: &mut [f32],
    ) {
        if !memory.chooses_for(cut.phase.new.is_some()) {
            return;
        }
        // else they are known after rows have attended
        if memory.queries.is_none() {
            self.index_blocks(worker, cut, memory);
        }
        if memory.settings.certificate.is_some() {
            self.sum_always(worker, cut, memory, scratch);
        }
        for sequence in 0..cut.sequences.len() {
            let rows = &cut.sequences[sequence];
            let (settings, asks) = (&memory.settings, cut.asks(memory));
            let all = rows.choosers(settings);
            let chooses = |number: &usize| settings.chooses(settings.chooser_position(*number));
            // those of early positions read everything
            let Some(first) = all.clone().find(chooses) else { continue };
            let few = few_from(settings, &(first..all.end));
            for numbers in batches(settings, first..few, asks, padded) {
                let asking = Asking { sequence, numbers };
                if settings.anchor == BlockAnchor::All {
                    self.promise_all(worker, cut, memory, &asking, scratch);
                } else {
                    self.promise(worker, cut, memory, &asking);
                }
                if settings.certificate.is_some() {
                    self.certify(worker, cut, memory, &asking, scratch);
                } else {
                    self.pick(worker, memory, &asking);
                }
            }
            for numbers in batches(settings, few..all.end, asks, promise_len) {
                self.choose_in_few(worker, cut, memory, &Asking { sequence, numbers });
            }
        }
    }

    /// Anchors of the blocks that came to an end in this step. An item is one head of one block of the index.
    pub(super) fn index_blocks(&self, worker: &Worker<'_>, cut: &Cut<'_>, memory: &MemoryTables) {
        let size = memory.settings.block as usize;
        let heads = cut.shape.layout.n_kv_heads();
        let ended = |s: &SequenceRows| s.start / size..(s.start + s.n) / size;
        let tiles = |s: &SequenceRows| {
            let ended = ended(s);
            if ended.is_empty() { 0..0 } else { ended.start / ANCHORS..ended.end.div_ceil(ANCHORS) }
        };
        let total: usize = cut.sequences.iter().map(|s| tiles(s).len() * heads).sum();
        let keeps_anchors = memory.settings.has_blocks() && memory.anchor_width > 0;
        if total == 0 || cut.phase.new.is_none() || !keeps_anchors {
            return;
        }
        worker.section(|section| {
            for item in section.take(total) {
                let (index, item) = owner_of(cut.sequences, item, |s| tiles(s).len() * heads);
                let sequence = &cut.sequences[index];
                let (tile, head) = (tiles(sequence).start + item / heads, item % heads);
                let ended = ended(sequence);
                let blocks = ended.start.max(tile * ANCHORS)..ended.end.min((tile + 1) * ANCHORS);
                for lane in blocks {
                    let Some(block) = lane.checked_sub(memory.settings.anchor_lag()) else {
                        continue;
                    };
                    self.index_block(cut, memory, &HeadOf { sequence: index, head }, block);
                }
            }
        });
        self.index_supers(worker, cut, memory);
    }

    fn index_block(&self, cut: &Cut<'_>, memory: &MemoryTables, of: &HeadOf, block: usize) {
        let HeadOf { sequence, head } = *of;
        let (shape, size) = (&cut.shape.head, memory.settings.block as usize);
        let number = block * size / BLOCK;
        let table = memory.far.unwrap_or(cut.phase.cache.0 as usize);
        let Some(keys) = self.blocks.take(table, sequence, number) else { return };
        // SAFETY: keys are not written from here to the end of the phase.
        let keys = unsafe { keys.slice(cut.shape.layout.keys(head)) };
        let positions = block * size % BLOCK..block * size % BLOCK + size;
        let floats = memory.anchor_width * ANCHORS;
        let place = block + memory.settings.anchor_lag();
        let index = self.blocks.get(memory.index, sequence, place / ANCHORS).floats();
        // SAFETY: this head of this block of the index belongs to one item.
        let index = unsafe { index.slice_mut(head * floats..(head + 1) * floats) };
        let (lane, dim) = (place % ANCHORS, shape.key_dim);
        let mut chosen = Vec::new();
        if memory.settings.anchor.has_representatives() {
            let scores = match memory.settings.anchor {
                BlockAnchor::Mass => self.masses(cut, memory, of, block),
                _ => self.products(cut, memory, of, block),
            };
            memory.settings.represent(&scores, &mut chosen);
        } else if memory.settings.anchor.is_of_few_keys() {
            chosen.extend(memory.settings.spaced().map(|at| at as u32));
        }
        for d in 0..dim {
            let all = positions.clone().map(|position| shape.key_at(keys, position, d));
            let at = |vector: usize| (vector * dim + d) * ANCHORS + lane;
            match memory.settings.anchor {
                BlockAnchor::Bounds => {
                    let bounds = all
                        .fold((f32::NEG_INFINITY, f32::INFINITY), |(most, least), x| {
                            (most.max(x), least.min(x))
                        });
                    (index[at(0)], index[at(1)]) = bounds;
                }
                BlockAnchor::All => {}
                BlockAnchor::Greatest => index[at(0)] = all.fold(f32::NEG_INFINITY, f32::max),
                BlockAnchor::Mean => index[at(0)] = all.sum::<f32>() / size as f32,
                BlockAnchor::Fixed | BlockAnchor::Products | BlockAnchor::Mass => {
                    let key = |at: &u32| shape.key_at(keys, positions.start + *at as usize, d);
                    index[at(0)] = chosen.iter().map(key).sum::<f32>() / chosen.len() as f32;
                }
            }
        }
    }

    /// What blocks promise these rows. An item is some rows and some blocks of the index.
    fn promise(&self, worker: &Worker<'_>, cut: &Cut<'_>, memory: &MemoryTables, asking: &Asking) {
        let (sequence, numbers, settings) = (asking.sequence, &asking.numbers, &memory.settings);
        let padded = padded(settings, asking.last(settings));
        let (tiles, asks) = (padded / ANCHORS, cut.asks(memory));
        let (groups, spans) = (numbers.len().div_ceil(ROWS), tiles.div_ceil(SPAN));
        worker.section(|section| {
            for item in section.take(groups * spans) {
                let first = numbers.start + item / spans * ROWS;
                let n = ROWS.min(numbers.end - first);
                let first_row = self.asking_row(settings, sequence, first);
                let span = item % spans * SPAN..(item % spans * SPAN + SPAN).min(tiles);
                for tile in span {
                    let index = self.blocks.get(memory.index, sequence, tile).floats();
                    for ask in 0..asks.n {
                        let (width, part) = (asks.width, ask / asks.alike * asks.width * ANCHORS);
                        // SAFETY: nobody writes the index in this section.
                        let anchors = unsafe { index.slice(part..part + width * ANCHORS) };
                        let row = ask * self.tokens.len() + first_row;
                        // SAFETY: nor what rows ask.
                        let asked =
                            unsafe { self.context.asked.slice(row * width..(row + n) * width) };
                        let mut out = [[0.0; ANCHORS]; ROWS];
                        let out = &mut out[..n];
                        self.kernels.promise.call(asked, anchors.as_chunks().0, out);
                        for (i, out) in out.iter().enumerate() {
                            let row = ask * numbers.len() + first - numbers.start + i;
                            let at = row * padded + tile * ANCHORS;
                            // SAFETY: these rows and blocks belong to one item.
                            unsafe { self.context.promises.slice_mut(at..at + ANCHORS) }
                                .copy_from_slice(out);
                        }
                    }
                }
            }
        });
    }

    /// The blocks that promise these rows most.
    fn pick(&self, worker: &Worker<'_>, memory: &MemoryTables, asking: &Asking) {
        let (sequence, numbers, settings) = (asking.sequence, &asking.numbers, &memory.settings);
        let padded = padded(settings, asking.last(settings));
        worker.section(|section| {
            let mut chosen = Vec::new();
            for item in section.take(numbers.len() * memory.n_choices) {
                let (place, choice) = (item / memory.n_choices, item % memory.n_choices);
                let position = settings.chooser_position(numbers.start + place);
                let finished = settings.finished(position);
                let row = (choice * numbers.len() + place) * padded;
                let lag = settings.anchor_lag();
                let range = row + finished.start + lag..row + finished.end + lag;
                // SAFETY: written in the section before.
                let promises = unsafe { self.context.promises.slice(range) };
                settings.choose(finished.start, promises, &mut chosen);
                let of = ChoiceOf { sequence, position, choice };
                // SAFETY: each query's choice belongs to one item.
                unsafe { self.chosen_mut(memory, of) }.copy_from_slice(&chosen);
            }
        });
    }
}

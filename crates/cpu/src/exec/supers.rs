//! Super-blocks of a context memory: what stands for them | what they promise rows | which of them rows look at | what their
//! blocks promise | which of these rows read.
//!
//! What stands for a super-block lies beside the anchors of the blocks that came to an end when its last one was known.

use std::ops::Range;

use kernels::attention::ANCHORS;
use program::{BlockAnchor, ContextMemory};

use super::attention::Cut;
use super::certificate::Asking;
use super::choices::ChoiceOf;
use super::items::owner_of;
use super::{Exec, SequenceRows};
use crate::cache::MemoryTables;
use crate::memory::Shared;
use crate::pool::Worker;

/// Rows of an item of promises.
const ROWS: usize = 32;
/// Super-blocks of an item of promises.
const SPAN: usize = 64;
/// Super-blocks of an item whose blocks are looked at.
const LOOKED: usize = 8;

// super-blocks are as long as what an index block has anchors of
const _: () = assert!(ContextMemory::SUPER == ANCHORS);

/// Queries among these that look at few super-blocks: the last ones, from this on.
pub(super) fn few_from(settings: &ContextMemory, numbers: &Range<usize>) -> usize {
    let looks = |number: &usize| settings.looks_at_few(settings.chooser_position(*number));
    numbers.clone().find(looks).unwrap_or(numbers.end)
}

/// Numbers that are kept of the promises to a row that looks at few super-blocks, the last one of these.
pub(super) fn promise_len(settings: &ContextMemory, last: usize) -> usize {
    settings.supers(last).end.max(settings.most_looked_at() * ContextMemory::SUPER)
}

/// For a list of super-blocks: there are no more.
const NONE: u32 = u32::MAX;

impl Exec<'_> {
    /// What stands for the super-blocks of which the last block's anchor came with this step. An item is one head of one.
    pub(super) fn index_supers(&self, worker: &Worker<'_>, cut: &Cut<'_>, memory: &MemoryTables) {
        let (settings, heads) = (&memory.settings, cut.shape.layout.n_kv_heads());
        let size = settings.block as usize;
        let new = |s: &SequenceRows| {
            settings.known_supers(s.start / size)..settings.known_supers((s.start + s.n) / size)
        };
        let total: usize = cut.sequences.iter().map(|s| new(s).len() * heads).sum();
        if total == 0 || memory.super_width == 0 {
            return;
        }
        let (dim, n_vectors) = (cut.shape.head.key_dim, settings.anchor.n_vectors());
        let floats = memory.anchor_width * ANCHORS;
        worker.section(|section| {
            for item in section.take(total) {
                let (sequence, item) = owner_of(cut.sequences, item, |s| new(s).len() * heads);
                let number = new(&cut.sequences[sequence]).start + item / heads;
                let head = item % heads;
                // SAFETY: this head of this super-block belongs to one item.
                let place = unsafe {
                    self.super_place(memory, sequence, number)
                        .slice_mut(at_head(memory, heads, head))
                };
                let (greatest, least) = place.split_at_mut(dim);
                greatest.fill(f32::NEG_INFINITY);
                least.fill(f32::INFINITY);
                let first = number * ContextMemory::SUPER + settings.anchor_lag();
                for place in first..first + ContextMemory::SUPER {
                    let index = self.blocks.get(memory.index, sequence, place / ANCHORS).floats();
                    // SAFETY: anchors were written in a section before, or in a step.
                    let anchors = unsafe { index.slice(head * floats..(head + 1) * floats) };
                    for vector in 0..n_vectors {
                        for d in 0..dim {
                            let x = anchors[(vector * dim + d) * ANCHORS + place % ANCHORS];
                            greatest[d] = greatest[d].max(x);
                            least[d] = least[d].min(x);
                        }
                    }
                }
            }
        });
    }

    /// The block of the index that has what stands for a super-block.
    fn super_place(
        &self,
        memory: &MemoryTables,
        sequence: usize,
        number: usize,
    ) -> Shared<'_, f32> {
        let last = (number + 1) * ContextMemory::SUPER - 1 + memory.settings.anchor_lag();
        self.blocks.get(memory.index, sequence, last / ANCHORS).floats()
    }

    /// Which blocks rows read that look at few super-blocks.
    pub(super) fn choose_in_few(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        asking: &Asking,
    ) {
        self.promise_supers(worker, cut, memory, asking);
        self.pick_supers(worker, memory, asking);
        self.promise_looked(worker, cut, memory, asking);
        self.pick_looked(worker, memory, asking);
    }

    /// What super-blocks promise these rows. An item is some rows and some super-blocks.
    fn promise_supers(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        asking: &Asking,
    ) {
        let (settings, numbers) = (&memory.settings, &asking.numbers);
        let heads = cut.shape.layout.n_kv_heads();
        let (n_supers, asks) = (settings.supers(asking.last(settings)).end, cut.asks(memory));
        let (dim, width) = (cut.shape.head.key_dim, memory.super_width * heads / memory.n_choices);
        let (groups, spans) = (numbers.len().div_ceil(ROWS), n_supers.div_ceil(SPAN));
        worker.section(|section| {
            let (mut doubled, mut out) = (Vec::new(), [0.0; ROWS]);
            for item in section.take(groups * spans * asks.n) {
                let (ask, item) = (item / (groups * spans), item % (groups * spans));
                let first = numbers.start + item / spans * ROWS;
                let n = ROWS.min(numbers.end - first);
                let first_row = self.asking_row(settings, asking.sequence, first);
                let row = ask * self.tokens.len() + first_row;
                // SAFETY: nobody writes what rows ask in this section.
                let asked =
                    unsafe { self.context.asked.slice(row * asks.width..(row + n) * asks.width) };
                let asked = match settings.anchor {
                    BlockAnchor::Bounds => asked,
                    _ => {
                        by_sign(asked, dim, &mut doubled);
                        &doubled[..]
                    }
                };
                for number in item % spans * SPAN..(item % spans * SPAN + SPAN).min(n_supers) {
                    let place = self.super_place(memory, asking.sequence, number);
                    let start = at_head(memory, heads, 0).start + ask * width;
                    // SAFETY: nobody writes the index in this section.
                    let vector = unsafe { place.slice(start..start + width) };
                    self.kernels.dots.call(asked, vector, &mut out[..n]);
                    for (i, promise) in out[..n].iter().enumerate() {
                        let row = ask * numbers.len() + first - numbers.start + i;
                        let at = row * n_supers + number;
                        // SAFETY: these rows and super-blocks belong to one item.
                        unsafe { self.context.promises.slice_mut(at..at + 1) }.fill(*promise);
                    }
                }
            }
        });
    }

    /// Where it is kept which super-blocks a row looks at for a choice.
    fn looked_at(&self, memory: &MemoryTables, row: usize, choice: usize) -> Range<usize> {
        let (n, at) = (memory.settings.most_looked_at(), row * memory.n_choices + choice);
        at * n..(at + 1) * n
    }

    /// The super-blocks that these rows look at.
    fn pick_supers(&self, worker: &Worker<'_>, memory: &MemoryTables, asking: &Asking) {
        let (settings, numbers) = (&memory.settings, &asking.numbers);
        let n_supers = settings.supers(asking.last(settings)).end;
        worker.section(|section| {
            let mut looked = Vec::new();
            for item in section.take(numbers.len() * memory.n_choices) {
                let (i, choice) = (item / memory.n_choices, item % memory.n_choices);
                let position = settings.chooser_position(numbers.start + i);
                let whole = settings.supers(position);
                let row = (choice * numbers.len() + i) * n_supers;
                // SAFETY: written in the section before.
                let promises =
                    unsafe { self.context.promises.slice(row + whole.start..row + whole.end) };
                settings.look_at(position, promises, &mut looked);
                let row = self.asking_row(settings, asking.sequence, numbers.start + i);
                let at = self.looked_at(memory, row, choice);
                // SAFETY: each row's choice belongs to one item.
                let place = unsafe { self.context.looked.slice_mut(at) };
                place.fill(NONE);
                place[..looked.len()].copy_from_slice(&looked);
            }
        });
    }

    /// What the blocks of these super-blocks promise: 16 numbers for each. An item is a choice of a row and some super-blocks.
    fn promise_looked(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        asking: &Asking,
    ) {
        let (settings, numbers) = (&memory.settings, &asking.numbers);
        let (slots, lag) = (settings.most_looked_at(), settings.anchor_lag());
        let (spans, asks) = (slots.div_ceil(LOOKED), cut.asks(memory));
        worker.section(|section| {
            for item in section.take(numbers.len() * memory.n_choices * spans) {
                let (i, choice) =
                    (item / spans / memory.n_choices, item / spans % memory.n_choices);
                let row = self.asking_row(settings, asking.sequence, numbers.start + i);
                let position = settings.chooser_position(numbers.start + i);
                let asked = (choice * self.tokens.len() + row) * asks.width;
                // SAFETY: nobody writes what rows ask in this section.
                let asked = unsafe { self.context.asked.slice(asked..asked + asks.width) };
                // SAFETY: written in the section before.
                let looked =
                    unsafe { self.context.looked.slice(self.looked_at(memory, row, choice)) };
                let place = (choice * numbers.len() + i) * slots;
                let span = item % spans * LOOKED..(item % spans * LOOKED + LOOKED).min(slots);
                for (slot, number) in span.clone().zip(&looked[span]) {
                    if *number == NONE {
                        continue;
                    }
                    let blocks = settings.blocks_of(position, *number as usize);
                    let at = (place + slot) * ContextMemory::SUPER;
                    // SAFETY: what a super-block's blocks promise a choice of a row belongs to one item.
                    let promises =
                        unsafe { self.context.promises.slice_mut(at..at + ContextMemory::SUPER) };
                    let places = blocks.start + lag..blocks.end + lag;
                    for tile in places.start / ANCHORS..places.end.div_ceil(ANCHORS) {
                        let index = self.blocks.get(memory.index, asking.sequence, tile).floats();
                        let part = choice * asks.width * ANCHORS;
                        // SAFETY: nobody writes the index in this section.
                        let anchors = unsafe { index.slice(part..part + asks.width * ANCHORS) };
                        let mut out = [[0.0; ANCHORS]];
                        self.kernels.promise.call(asked, anchors.as_chunks().0, &mut out);
                        let ours =
                            places.start.max(tile * ANCHORS)..places.end.min((tile + 1) * ANCHORS);
                        for place in ours {
                            promises[(place - lag) % ContextMemory::SUPER] =
                                out[0][place % ANCHORS];
                        }
                    }
                }
            }
        });
    }

    /// The blocks among those looked at that promise these rows most.
    fn pick_looked(&self, worker: &Worker<'_>, memory: &MemoryTables, asking: &Asking) {
        let (settings, numbers) = (&memory.settings, &asking.numbers);
        let slots = settings.most_looked_at();
        worker.section(|section| {
            let (mut blocks, mut promises, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
            for item in section.take(numbers.len() * memory.n_choices) {
                let (i, choice) = (item / memory.n_choices, item % memory.n_choices);
                let row = self.asking_row(settings, asking.sequence, numbers.start + i);
                let position = settings.chooser_position(numbers.start + i);
                // SAFETY: written in a section before.
                let looked =
                    unsafe { self.context.looked.slice(self.looked_at(memory, row, choice)) };
                blocks.clear();
                promises.clear();
                for (slot, number) in
                    looked.iter().take_while(|number| **number != NONE).enumerate()
                {
                    let at = ((choice * numbers.len() + i) * slots + slot) * ContextMemory::SUPER;
                    // SAFETY: written in the section before.
                    let found =
                        unsafe { self.context.promises.slice(at..at + ContextMemory::SUPER) };
                    for block in settings.blocks_of(position, *number as usize) {
                        blocks.push(block as u32);
                        promises.push(found[block % ContextMemory::SUPER]);
                    }
                }
                settings.choose_among(&blocks, &promises, &mut chosen);
                let of = ChoiceOf { sequence: asking.sequence, position, choice };
                // SAFETY: each query's choice belongs to one item.
                unsafe { self.chosen_mut(memory, of) }.copy_from_slice(&chosen);
            }
        });
    }
}

/// Where a block of the index has what stands for its super-block and a head: after all anchors.
fn at_head(memory: &MemoryTables, heads: usize, head: usize) -> Range<usize> {
    let start = heads * memory.anchor_width * ANCHORS + head * memory.super_width;
    start..start + memory.super_width
}

/// Of rows of heads, `dim` numbers each: of each head what is positive, then what is negative.
fn by_sign(rows: &[f32], dim: usize, out: &mut Vec<f32>) {
    out.clear();
    for head in rows.chunks_exact(dim) {
        out.extend(head.iter().map(|x| x.max(0.0)));
        out.extend(head.iter().map(|x| x.min(0.0)));
    }
}

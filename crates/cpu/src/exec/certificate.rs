//! Certificates of a context memory: what the scores come to of all that rows read whatever they choose | blocks are added
//! until what is left out is proven to be little.
//!
//! Sums are folded in an order that follows from the row's position: what is always read, ascending; the blocks that
//! promise most, ascending; then block after block as it is added. Values are read once the choice is made.

use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, ScoreSum, weight_at_most};
use program::{Certificate, ContextMemory};

use super::attention::Cut;
use super::choices::{ChoiceOf, padded};
use super::context::{RowReads, Segment, segments};
use super::meter::QueryAt;
use super::score::HeadRow;
use super::{Exec, SequenceRows};
use crate::cache::MemoryTables;
use crate::geometry::TILE_ROWS;
use crate::pool::Worker;

/// Queries of a sequence that choose, whose promises are at hand.
pub(super) struct Asking {
    pub(super) sequence: usize,
    /// See [`ContextMemory::choosers`].
    pub(super) numbers: Range<usize>,
}

impl Asking {
    /// Where the last of them stands.
    pub(super) fn last(&self, settings: &ContextMemory) -> usize {
        settings.chooser_position(self.numbers.end - 1)
    }
}

/// A row that chooses.
#[derive(Clone, Copy)]
struct Choosing<'a> {
    cut: &'a Cut<'a>,
    settings: &'a ContextMemory,
    certificate: Certificate,
    sequence: usize,
    /// Within the sequence's rows.
    token: usize,
}

/// A block that is not read, and the most that a score of it can be.
#[derive(Clone, Copy)]
struct Unread {
    block: usize,
    bound: f32,
}

impl Exec<'_> {
    /// For each query head of the rows that choose: what its scores come to of what it always reads.
    pub(super) fn sum_always(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        scratch: &mut [f32],
    ) {
        let chooses =
            |s: &SequenceRows, tokens: usize| memory.settings.chooses(s.start + tokens - 1);
        if !cut.sequences.iter().any(|s| s.n > 0 && chooses(s, s.n)) {
            return;
        }
        let (shape, group) = (&cut.shape.head, cut.phase.group);
        worker.section(|section| {
            for number in section.take(cut.n_tiles) {
                let tile = cut.tile(number);
                let sequence = &cut.sequences[tile.sequence];
                if !chooses(sequence, tile.tokens.end) {
                    continue;
                }
                let always =
                    |token: usize| RowReads::always(&memory.settings, sequence.start + token);
                let n_rows = tile.tokens.len() * group;
                let mut found = [ScoreSum::NOTHING; TILE_ROWS];
                let mut sums = [ScoreSum::NOTHING; TILE_ROWS];
                for (sum, row) in sums.iter_mut().zip(cut.rows(&tile)) {
                    *sum = cut.score.start(row.head);
                }
                let (q, scratch) = scratch.split_at_mut(n_rows * shape.key_dim);
                for segment in segments(tile.tokens.clone().map(always), memory.is_split()) {
                    self.tile_queries(cut, &tile, segment.is_far, q);
                    let table = cut.table(segment.is_far);
                    let taken = self.blocks.take(table, tile.sequence, segment.number);
                    let Some(block) = taken else { continue };
                    // SAFETY: the cache is not written between `rotate_and_store` and the end of the phase.
                    let keys = unsafe { block.slice(cut.shape.layout.keys(tile.head)) };
                    let block = HeadBlock { shape: *shape, keys, values: &[] };
                    let seen = |row: HeadRow| always(row.token).of(segment, memory.is_split());
                    let of = cut.score.of_seen(sequence, cut.rows(&tile), segment.number, seen);
                    let (queries, found) = (cut.score.queries(q, &of), &mut found[..n_rows]);
                    self.kernels.score_sums.call(&block, &queries, found, scratch);
                    sums.iter_mut().zip(found).for_each(|(sum, found)| *sum = sum.plus(*found));
                }
                for (sum, HeadRow { head, token }) in sums.iter().zip(cut.rows(&tile)) {
                    let at = self.sum_at(cut, sequence.first_row + token, head);
                    // SAFETY: each head of each row belongs to one item.
                    let place = unsafe { self.context.sums.slice_mut(at) };
                    place.copy_from_slice(&[sum.max, sum.sum]);
                }
            }
        });
    }

    fn sum_at(&self, cut: &Cut<'_>, row: usize, head: usize) -> Range<usize> {
        let at = row * cut.score.n_heads() + head;
        2 * at..2 * at + 2
    }

    /// The blocks that these rows read. An item is one choice of a row.
    pub(super) fn certify(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        asking: &Asking,
        scratch: &mut [f32],
    ) {
        let (settings, n_heads) = (&memory.settings, cut.score.n_heads());
        let Some(certificate) = settings.certificate else { return };
        let rows = &cut.sequences[asking.sequence];
        let (n, padded) = (asking.numbers.len(), padded(settings, asking.last(settings)));
        worker.section(|section| {
            let (mut chosen, mut promised) = (Vec::new(), Vec::new());
            for item in section.take(n * memory.n_choices) {
                let (place, choice) = (item / memory.n_choices, item % memory.n_choices);
                let position = settings.chooser_position(asking.numbers.start + place);
                let (token, finished) = (position - rows.start, settings.finished(position));
                let each = n_heads / memory.n_choices;
                let promises = |head: usize| {
                    let row = (head * n + place) * padded;
                    // SAFETY: written in the section before.
                    unsafe { self.context.promises.slice(row + finished.start..row + finished.end) }
                };
                promised.clear();
                promised.resize(finished.len(), 0.0);
                for head in choice * each..(choice + 1) * each {
                    promised.iter_mut().zip(promises(head)).for_each(|(sum, p)| *sum += p);
                }
                settings.choose(finished.start, &promised, &mut chosen);
                let of = ChoiceOf { sequence: asking.sequence, position, choice };
                // SAFETY: each row's choice belongs to one item.
                let bits = unsafe { self.chosen_mut(memory, of) };
                bits.fill(0);
                chosen.iter().for_each(|block| bits[*block as usize / 32] |= 1 << (block % 32));
                let sequence = asking.sequence;
                let choosing = Choosing { cut, settings, certificate, sequence, token };
                for head in choice * each..(choice + 1) * each {
                    self.certify_head(choosing, head, promises(head), bits, scratch);
                }
            }
        });
    }

    /// Mark more blocks until a query head leaves out little. `promises` are those of the finished blocks.
    fn certify_head(
        &self,
        choosing: Choosing<'_>,
        head: usize,
        promises: &[f32],
        bits: &mut [u32],
        scratch: &mut [f32],
    ) {
        let Choosing { cut, settings, certificate, sequence, token } = choosing;
        let (rows, size) = (&cut.sequences[sequence], settings.block as usize);
        let position = rows.start + token;
        let finished = settings.finished(position);
        // SAFETY: written in a section before.
        let sum =
            unsafe { self.context.sums.slice(self.sum_at(cut, rows.first_row + token, head)) };
        let mut read = ScoreSum { max: sum[0], sum: sum[1] };
        let mut unread = Vec::with_capacity(promises.len());
        for (block, promise) in finished.zip(promises) {
            if bits[block / 32] >> (block % 32) & 1 == 1 {
                read = read.plus(self.block_sum(choosing, head, block, scratch));
            } else {
                let nearest = position - ((block + 1) * size - 1);
                unread.push(Unread { block, bound: cut.score.at_most(head, *promise, nearest) });
            }
        }
        unread.sort_unstable_by(|a, b| b.bound.total_cmp(&a.bound).then(a.block.cmp(&b.block)));
        // what the blocks from each on come to at most, beside this
        let reference = read.max;
        let mut left = vec![0.0; unread.len() + 1];
        for (i, Unread { bound, .. }) in unread.iter().enumerate().rev() {
            left[i] = left[i + 1] + size as f64 * f64::from(weight_at_most(*bound, reference));
        }
        for (Unread { block, .. }, left) in unread.iter().zip(&left) {
            let left = left * f64::from(weight_at_most(reference, read.max));
            if certificate.holds(left, f64::from(read.sum)) {
                break;
            }
            bits[block / 32] |= 1 << (block % 32);
            read = read.plus(self.block_sum(choosing, head, *block, scratch));
        }
    }

    /// What a query head's scores of a finished block come to.
    fn block_sum(
        &self,
        choosing: Choosing<'_>,
        head: usize,
        block: usize,
        scratch: &mut [f32],
    ) -> ScoreSum {
        let Choosing { cut, settings, sequence, token, .. } = choosing;
        let size = settings.block as usize;
        let segment = Segment { number: block * size / BLOCK, is_far: true };
        let at = QueryAt { sequence, token, head };
        self.score_sum(cut, at, segment, block * size..(block + 1) * size, scratch)
    }
}

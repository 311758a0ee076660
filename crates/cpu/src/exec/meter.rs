//! The meter: what rows left out whose readings are due. An item is one query head of such a row.
//!
//! Sums are folded in the order of positions, first what is always read, then block after block, so cuts change no bit.

use std::ops::Range;
use std::sync::PoisonError;

use kernels::attention::{BLOCK, HeadBlock, ScoreSum};
use program::MeterReading;

use super::attention::Cut;
use super::context::{RowReads, Segment, segments};
use super::score::HeadRow;
use super::{Exec, SequenceRows};
use crate::cache::MemoryTables;
use crate::pool::Worker;

/// A row of a sequence, and one of its query heads.
#[derive(Clone, Copy)]
pub(super) struct QueryAt {
    pub(super) sequence: usize,
    /// Within the sequence's rows.
    pub(super) token: usize,
    pub(super) head: usize,
}

impl Exec<'_> {
    /// Measure what the rows of this cut left out, where that is due. They have attended.
    pub(super) fn measure(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        scratch: &mut [f32],
    ) {
        let Some(meter) = self.meter.filter(|_| cut.phase.new.is_some()) else { return };
        let due = |(sequence, rows): (usize, &SequenceRows)| {
            let start = rows.start;
            (0..rows.n).filter_map(move |token| {
                let (cache, head) = meter.at(start + token)?;
                (cache == cut.phase.cache).then_some(QueryAt { sequence, token, head })
            })
        };
        let due: Vec<QueryAt> = cut.sequences.iter().enumerate().flat_map(due).collect();
        if due.is_empty() {
            return;
        }
        let group = cut.phase.group;
        worker.section(|section| {
            for item in section.take(due.len() * group) {
                let of = due[item / group];
                let at = QueryAt { head: of.head * group + item % group, ..of };
                let missed = self.missed(cut, memory, at, scratch);
                let position = (cut.sequences[at.sequence].start + at.token) as u32;
                let (cache, head) = (cut.phase.cache, at.head as u32);
                let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
                readings.push((at.sequence, MeterReading { position, cache, head, missed }));
            }
        });
    }

    /// The share of its attention that a query head of a row left out.
    fn missed(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        at: QueryAt,
        scratch: &mut [f32],
    ) -> f32 {
        let (settings, rows) = (&memory.settings, &cut.sequences[at.sequence]);
        let (position, is_split) = (rows.start + at.token, memory.is_split());
        let always = RowReads::always(settings, position);
        let mut read = cut.score.start(at.head);
        for segment in segments(std::iter::once(always), is_split) {
            let positions = always.of(segment, is_split);
            read = read.plus(self.score_sum(cut, at, segment, positions, scratch));
        }
        let reads = self.reads(memory, at.sequence, position, at.head / cut.phase.group);
        let mut left = ScoreSum::NOTHING;
        let size = settings.block as usize;
        for block in settings.finished(position) {
            let segment = Segment { number: block * size / BLOCK, is_far: is_split };
            let positions = block * size..(block + 1) * size;
            let sum = self.score_sum(cut, at, segment, positions, scratch);
            if reads.reads_block(block) {
                read = read.plus(sum);
            } else {
                left = left.plus(sum);
            }
        }
        let most = f64::from(read.max.max(left.max));
        let weight = |sum: ScoreSum| f64::from(sum.sum) * (f64::from(sum.max) - most).exp();
        let (left, read) = (if left.sum > 0.0 { weight(left) } else { 0.0 }, weight(read));
        (left / (left + read)) as f32
    }

    /// What a query head's scores of some positions of a block of 128 come to.
    pub(super) fn score_sum(
        &self,
        cut: &Cut<'_>,
        at: QueryAt,
        segment: Segment,
        positions: Range<usize>,
        scratch: &mut [f32],
    ) -> ScoreSum {
        let QueryAt { sequence, token, head } = at;
        let (rows, shape) = (&cut.sequences[sequence], cut.shape.head);
        let table = cut.table(segment.is_far);
        let Some(memory) = self.blocks.look(table, sequence, segment.number) else {
            return ScoreSum::NOTHING;
        };
        // SAFETY: the cache is not written between `rotate_and_store` and the end of the phase.
        let keys = unsafe { memory.slice(cut.shape.layout.keys(head / cut.phase.group)) };
        let block = HeadBlock { shape, keys, values: &[] };
        let row = std::iter::once(HeadRow { head, token });
        let of = cut.score.of_seen(rows, row, segment.number, |_| positions.clone());
        let cols = head * shape.key_dim..(head + 1) * shape.key_dim;
        let q = self.met_query(cut, rows.first_row + token, cols, segment.is_far);
        let mut found = [ScoreSum::NOTHING];
        self.kernels.score_sums.call(&block, &cut.score.queries(q, &of), &mut found, scratch);
        found[0]
    }
}

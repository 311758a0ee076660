//! The meter: what rows left out whose readings are due. An item is one key-value head of such a row.
//!
//! Sums are folded in the order of positions, first what is always read, then block after block, so cuts change no bit.

use std::ops::Range;
use std::sync::PoisonError;

use kernels::attention::{BLOCK, HeadBlock, ScoreSum};
use program::MeterReading;

use super::attention::Cut;
use super::blocks::StepBlock;
use super::context::{RowReads, Segment, segments};
use super::score::HeadRow;
use super::{Exec, SequenceRows};
use crate::cache::MemoryTables;
use crate::pool::Worker;

/// Blocks that are read ahead of being looked at.
const AHEAD: usize = 16;

/// A row of a sequence, and one of its heads.
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
        worker.section(|section| {
            for item in section.take(due.len()) {
                let at = due[item];
                let looked = self.looked(cut, memory, at, scratch);
                let position = (cut.sequences[at.sequence].start + at.token) as u32;
                let (cache, first) = (cut.phase.cache, at.head * cut.phase.group);
                let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
                readings.extend(looked.into_iter().enumerate().map(|(i, (missed, found))| {
                    let head = (first + i) as u32;
                    (at.sequence, MeterReading { position, cache, head, missed, found })
                }));
            }
        });
    }

    /// The shares of their attention that the query heads of a key-value head of a row left out, and of the blocks it would take
    /// that were read. Each block is looked at once: it may lie on disk.
    fn looked(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        at: QueryAt,
        scratch: &mut [f32],
    ) -> Vec<(f32, f32)> {
        let (settings, rows) = (&memory.settings, &cut.sequences[at.sequence]);
        let (position, is_split) = (rows.start + at.token, memory.is_split());
        let heads = at.head * cut.phase.group..(at.head + 1) * cut.phase.group;
        let look = |segment: Segment| {
            self.blocks.look(cut.table(segment.is_far), at.sequence, segment.number)
        };
        let mut add = |sums: &mut [ScoreSum], block: &StepBlock<'_>, (segment, positions)| {
            let positions: Range<usize> = positions;
            heads
                .clone()
                .zip(sums)
                .map(|(head, sum)| {
                    let of = QueryAt { head, ..at };
                    let found = self.sum_in(cut, of, segment, (block, positions.clone()), scratch);
                    *sum = sum.plus(found);
                    found
                })
                .collect::<Vec<ScoreSum>>()
        };
        let mut read: Vec<ScoreSum> = heads.clone().map(|head| cut.score.start(head)).collect();
        let mut left = vec![ScoreSum::NOTHING; read.len()];
        let always = RowReads::always(settings, position);
        for segment in segments(std::iter::once(always), is_split) {
            let Some(block) = look(segment) else { continue };
            add(&mut read, &block, (segment, always.of(segment, is_split)));
        }
        let reads = self.reads(memory, at.sequence, position, at.head);
        let size = settings.block as usize;
        let (mut last, mut ahead) = (None, 0);
        let finished = settings.finished(position);
        let mut of_blocks = vec![ScoreSum::NOTHING; heads.len() * finished.len()];
        for (i, block) in finished.clone().enumerate() {
            let number = block * size / BLOCK;
            let segment = Segment { number, is_far: is_split };
            if number >= ahead {
                let end = (finished.end * size).div_ceil(BLOCK);
                ahead = (number + AHEAD).min(end);
                let numbers: Vec<u32> = (number as u32..ahead as u32).collect();
                self.blocks.read_ahead(cut.table(is_split), at.sequence, &numbers);
            }
            if last.as_ref().is_none_or(|(of, _)| *of != number) {
                last = look(segment).map(|block| (number, block));
            }
            let Some((_, looked)) = &last else { continue };
            let sums = if reads.reads_block(block) { &mut read } else { &mut left };
            let found = add(sums, looked, (segment, block * size..(block + 1) * size));
            let places = of_blocks.iter_mut().skip(i).step_by(finished.len());
            places.zip(found).for_each(|(place, found)| *place = found);
        }
        let shares = |(i, (read, left)): (usize, (ScoreSum, ScoreSum))| {
            let most = f64::from(read.max.max(left.max));
            let weight = |sum: ScoreSum| match sum.sum > 0.0 {
                true => f64::from(sum.sum) * (f64::from(sum.max) - most).exp(),
                false => 0.0,
            };
            let (left, read) = (weight(left), weight(read));
            let of_blocks = &of_blocks[i * finished.len()..(i + 1) * finished.len()];
            let masses: Vec<f32> = of_blocks.iter().map(|sum| weight(*sum) as f32).collect();
            let found = settings.found(finished.start, &masses, |block| reads.reads_block(block));
            ((left / (left + read)) as f32, found)
        };
        read.into_iter().zip(left).enumerate().map(shares).collect()
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
        let looked = self.blocks.look(cut.table(segment.is_far), at.sequence, segment.number);
        looked.map_or(ScoreSum::NOTHING, |block| {
            self.sum_in(cut, at, segment, (&block, positions), scratch)
        })
    }

    /// The same of a block that is there.
    fn sum_in(
        &self,
        cut: &Cut<'_>,
        at: QueryAt,
        segment: Segment,
        (memory, positions): (&StepBlock<'_>, Range<usize>),
        scratch: &mut [f32],
    ) -> ScoreSum {
        let QueryAt { sequence, token, head } = at;
        let (rows, shape) = (&cut.sequences[sequence], cut.shape.head);
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

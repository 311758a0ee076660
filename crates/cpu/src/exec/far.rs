//! What rows keep for queries that meet them from afar, and what they ask of blocks: before they are rotated.

use std::ops::Range;

use kernels::attention::BLOCK;

use super::Exec;
use super::SequenceRows;
use super::attention::Cut;
use super::context::{HeadOf, ask};
use crate::cache::MemoryTables;
use crate::plan::{AttentionPhase, NewRows};

/// Places among the angles of what is not near.
const FAR_KEY: usize = 0;
const FAR_QUERY: usize = 1;

/// New rows of one sequence that lie in one block, for one key-value head and its query heads.
#[derive(Clone)]
pub(super) struct HeadRows {
    pub(super) sequence: usize,
    pub(super) positions: Range<usize>,
    pub(super) head: usize,
}

impl Exec<'_> {
    /// What a memory keeps of these rows besides, before they are rotated: keys as they are met from afar, where those
    /// differ, their values, and queries likewise.
    pub(super) fn store_far(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        rows: &HeadRows,
        scratch: &mut [f32],
    ) {
        let (phase, shape, settings) = (cut.phase, cut.shape, &memory.settings);
        let HeadRows { sequence, positions, head } = rows.clone();
        let (key_dim, value_dim) = (shape.head.key_dim, shape.head.value_dim);
        let SequenceRows { first_row, start, .. } = self.sequences[sequence];
        let turned = &mut scratch[..key_dim];
        let limit = if settings.has_blocks() { usize::MAX } else { settings.n_init as usize };
        let kept = positions.start.min(limit)..positions.end.min(limit);
        if let (Some(NewRows { k, v }), Some(far)) = (phase.new, memory.far)
            && !kept.is_empty()
        {
            let block = self.blocks.get(far, sequence, kept.start / BLOCK);
            // SAFETY: this head of this block belongs to one item, and nobody reads it in this section.
            let keys = unsafe { block.slice_mut(shape.layout.keys(head)) };
            // SAFETY: as above.
            let values = unsafe { block.slice_mut(shape.layout.values(head)) };
            for position in kept {
                let row = first_row + position - start;
                // SAFETY: this row's head belongs to this item.
                let key = unsafe { self.part_mut(k, row, head * key_dim..(head + 1) * key_dim) };
                turned.copy_from_slice(key);
                self.meet_afar(phase, settings.keeps_far_keys(), row, FAR_KEY, turned);
                self.norm_rotated(phase.norm.map(|norm| (norm.k, norm.eps)), turned);
                shape.head.store_key(keys, position % BLOCK, turned);
                let value = &self.row(v, row)[head * value_dim..(head + 1) * value_dim];
                shape.head.store_value(values, position % BLOCK, value);
            }
        }
        let chooses = memory.chooses_for(phase.new.is_some());
        let mut smoothed = vec![0.0; memory.smoothed.map_or(0, |_| memory.anchor_width)];
        for position in positions {
            let asks = chooses && settings.chosen_at(position) == position;
            let is_asked = asks || chooses && memory.smoothed.is_some();
            if !is_asked && !settings.keeps_far_keys() {
                continue;
            }
            let row = first_row + position - start;
            let factor = cut.score.factor(position);
            let alone = settings.certificate.is_some();
            let mut asked: &mut [f32] = &mut [];
            for query in head * phase.group..(head + 1) * phase.group {
                if asks && (alone || query == head * phase.group) {
                    let number = settings.choosers(0..position).end;
                    let row = self.asking_row(settings, sequence, number);
                    let head = if alone { query } else { head };
                    // SAFETY: what a head asks belongs to one item of this section.
                    asked = unsafe { self.asked(cut, memory, row, head) };
                }
                let cols = query * key_dim..(query + 1) * key_dim;
                // SAFETY: as above.
                turned.copy_from_slice(unsafe { self.part_mut(phase.q, row, cols) });
                self.meet_afar(phase, settings.keeps_far_keys(), row, FAR_QUERY, turned);
                self.norm_rotated(phase.norm.map(|norm| (norm.q, norm.eps)), turned);
                for x in &mut *turned {
                    *x *= factor;
                }
                if memory.smoothed.is_some() && chooses {
                    ask(settings.anchor, &mut smoothed, turned);
                } else if asks {
                    ask(settings.anchor, asked, turned);
                }
                if settings.keeps_far_keys() {
                    let at = row * phase.q.cols + query * key_dim;
                    // SAFETY: as above.
                    unsafe { self.context.far.slice_mut(at..at + key_dim) }.copy_from_slice(turned);
                }
            }
            if memory.smoothed.is_some() && chooses {
                self.smooth(memory, &HeadOf { sequence, head }, position, &mut smoothed);
                if asks {
                    asked.copy_from_slice(&smoothed);
                }
                smoothed.fill(0.0);
            }
        }
    }

    /// Rotate a head of a row as keys and queries meet that are not near: as it is, or, if all those keys stand at one
    /// distance, as `place` says.
    fn meet_afar(
        &self,
        phase: &AttentionPhase,
        is_fixed: bool,
        row: usize,
        place: usize,
        head: &mut [f32],
    ) {
        if let (true, Some(rope)) = (is_fixed, phase.rope) {
            self.turn(rope, &self.far_angles[rope], place, head);
        } else {
            self.rotate(phase, row, head);
        }
    }
}

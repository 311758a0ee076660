//! Rows of attention that read what was chosen for them: one item is one row and one key-value head.
//!
//! Neighbours among the positions of one block of the cache have a partial result, and these are folded in ascending order,
//! so no cut changes a bit.

use kernels::attention::Partials;

use super::attention::{Cut, Tile};
use super::chosen::{self, ChosenRow};
use super::context::Segment;
use super::items::owner_of;
use super::{Exec, Scratch, SequenceRows};
use crate::plan::Chosen;
use crate::pool::Worker;

/// Of each sequence the rows that read all positions they see.
pub(super) fn reading_all(chosen: &Chosen, sequences: &[SequenceRows]) -> Vec<SequenceRows> {
    let limit = Some(chosen.select.limit());
    let all = |rows: &SequenceRows| SequenceRows { n: chosen::reading_all(rows, limit), ..*rows };
    sequences.iter().map(all).collect()
}

impl Exec<'_> {
    /// The rows of a step that read what was chosen for them, whose keys and values are stored.
    pub(super) fn attend_chosen(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        chosen: &Chosen,
        scratch: &mut Scratch<'_>,
    ) {
        let heads = cut.shape.layout.n_kv_heads();
        let limit = Some(chosen.select.limit());
        let first = |rows: &SequenceRows| chosen::reading_all(rows, limit);
        let items = |rows: &SequenceRows| (rows.n - first(rows)) * heads;
        let total = cut.sequences.iter().map(items).sum();
        if total == 0 {
            return;
        }
        worker.section(|section| {
            for item in section.take(total) {
                let (sequence, item) = owner_of(cut.sequences, item, items);
                let token = first(&cut.sequences[sequence]) + item / heads;
                let tile = Tile { sequence, tokens: token..token + 1, head: item % heads };
                self.attend_chosen_tile(cut, chosen, &tile, scratch.attention);
            }
        });
    }

    /// One row and one key-value head.
    fn attend_chosen_tile(&self, cut: &Cut<'_>, chosen: &Chosen, tile: &Tile, scratch: &mut [f32]) {
        let (shape, rows) = (&cut.shape.head, cut.n_rows(tile));
        let sequence = &cut.sequences[tile.sequence];
        let units = self.row(chosen.units, sequence.first_row + tile.tokens.start);
        let mut choices = units.chunks_exact(chosen.select.n_units as usize);
        let choice = tile.head % choices.len();
        let position = sequence.start + tile.tokens.start;
        let reads = choices.nth(choice);
        let reads = reads.map(|units| ChosenRow::new(units, chosen.select.unit as usize, position));
        let floats = Partials::floats(rows, shape);
        let (state, rest) = scratch.split_at_mut(floats);
        let (partial, rest) = rest.split_at_mut(floats);
        let mut state = cut.begin(tile, state);
        for run in reads.iter().flat_map(ChosenRow::runs) {
            let segment = Segment { number: run.start / kernels::attention::BLOCK, is_far: false };
            let seen = |_| run.clone();
            let seen = cut.score.of_seen(sequence, cut.rows(tile), segment.number, seen);
            self.attend_seen(cut, (tile, segment), &seen, partial, rest);
            self.kernels.merge.call(&mut state, &Partials::new(partial, rows, shape));
        }
        self.finish_tile(cut, tile, &state);
    }
}

//! What all keys of blocks promise rows: the most that an anchor could tell of them.

use kernels::attention::{BLOCK, HeadBlock, QueryRows, ScoreSum, Seen};

use super::Exec;
use super::attention::Cut;
use super::certificate::Asking;
use super::choices::padded;
use crate::cache::MemoryTables;
use crate::geometry::TILE_ROWS;
use crate::pool::Worker;

/// Blocks of an item.
const SPAN: usize = 16;

impl Exec<'_> {
    /// For each choice of these rows and each finished block: the greatest products of its query heads with keys of the
    /// block, added up in ascending order of heads. An item is a choice of a row and some blocks.
    pub(super) fn promise_all(
        &self,
        worker: &Worker<'_>,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        asking: &Asking,
        scratch: &mut [f32],
    ) {
        let (settings, rows) = (&memory.settings, &cut.sequences[asking.sequence]);
        let (n, padded) = (asking.numbers.len(), padded(settings, asking.last(settings)));
        let (size, heads) = (settings.block as usize, cut.shape.layout.n_kv_heads());
        let each = heads / memory.n_choices;
        let spans = padded.div_ceil(SPAN);
        worker.section(|section| {
            for item in section.take(n * memory.n_choices * spans) {
                let (row, span) = (item / spans, item % spans);
                let (place, choice) = (row / memory.n_choices, row % memory.n_choices);
                let position = settings.chooser_position(asking.numbers.start + place);
                let (token, finished) = (position - rows.start, settings.finished(position));
                let blocks = finished.start.max(span * SPAN)..finished.end.min((span + 1) * SPAN);
                for block in blocks {
                    let mut promise = 0.0;
                    for head in choice * each..(choice + 1) * each {
                        let number = block * size / BLOCK;
                        let taken = self.blocks.take(cut.table(true), asking.sequence, number);
                        let Some(keys) = taken else { continue };
                        // SAFETY: keys are not written from here to the end of the phase.
                        let keys = unsafe { keys.slice(cut.shape.layout.keys(head)) };
                        let shape = cut.shape.head;
                        let width = cut.phase.group * shape.key_dim;
                        let cols = head * width..(head + 1) * width;
                        let q = self.met_query(cut, rows.first_row + token, cols, true);
                        let first = block * size % BLOCK;
                        let seen = [Seen::new(first, first + size); TILE_ROWS];
                        let queries = QueryRows::plain(q, &seen[..cut.phase.group]);
                        let mut found = [ScoreSum::NOTHING; TILE_ROWS];
                        let found = &mut found[..cut.phase.group];
                        let block = HeadBlock { shape, keys, values: &[] };
                        self.kernels.score_sums.call(&block, &queries, found, scratch);
                        found.iter().for_each(|found| promise += found.max);
                    }
                    let at = (choice * n + place) * padded + block;
                    // SAFETY: these blocks of this choice of this row belong to one item.
                    unsafe { self.context.promises.slice_mut(at..at + 1) }.fill(promise);
                }
            }
        });
    }
}

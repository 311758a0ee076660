//! How absorbed queries are cut into work.
//!
//! A query row is a head of a token. Its positions are cut into spans whose length follows from how many it sees, and
//! from nothing else: at most 16, each attended alone and folded in ascending order. So neither the number of workers
//! nor the cut of a prompt changes a bit, and a step keeps at most 16 partial results however long its context is.

use std::ops::Range;

use kernels::latent::LATENT_TILE;

use super::super::SequenceRows;
use super::super::chosen::reading_all;
use super::super::items::owner_of;
use super::StepRows;
use crate::mla::{MlaDims, MlaForm};

/// Most query rows that attend together.
pub(super) const MAX_ROWS: usize = 128;
/// Lanes of a vector: least rows that make use of it.
const LANES: usize = 16;
/// Most spans of a row.
const MAX_SPANS: usize = 16;
/// Floats that the queries and outputs of a batch may take.
const BATCH_FLOATS: usize = 4 << 20;
/// Items per worker from which work is spread well enough.
const ITEMS: usize = 4;

/// Positions of a span of a row that sees `visible`.
fn span(visible: usize) -> usize {
    (visible.next_power_of_two() / MAX_SPANS).max(LATENT_TILE)
}

/// Tokens of one sequence whose rows have the same spans.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) sequence: usize,
    pub(super) form: MlaForm,
    /// Its first token's row in the step.
    pub(super) first_row: usize,
    /// Position of its first token.
    pub(super) start: usize,
    pub(super) n_tokens: usize,
    /// Positions that are chosen for each token at most, where it reads no others: its query rows then have tiles of their
    /// own.
    pub(super) chosen: Option<usize>,
    span: usize,
    /// First of its query rows in the batch.
    pub(super) row: usize,
    n_heads: usize,
    /// Query rows of a tile, but for the last.
    pub(super) tile_rows: usize,
    n_tiles: usize,
    /// Where its queries start: `[tile][width][tile_rows]`.
    queries: usize,
    /// Where its partial results start: `[tile][span]`.
    partials: usize,
}

impl Run {
    fn n_rows(&self) -> usize {
        self.n_tokens * self.n_heads
    }

    /// Spans of its last token.
    pub(super) fn n_spans(&self) -> usize {
        self.chosen.unwrap_or(self.start + self.n_tokens).div_ceil(self.span)
    }

    /// Tiles of a token that has its own.
    fn tiles_of_token(&self) -> usize {
        self.n_heads.div_ceil(self.tile_rows)
    }

    /// Query rows of a tile, within the run.
    pub(super) fn rows(&self, tile: usize) -> Range<usize> {
        if self.chosen.is_none() {
            return tile * self.tile_rows..((tile + 1) * self.tile_rows).min(self.n_rows());
        }
        let (token, part) = (tile / self.tiles_of_token(), tile % self.tiles_of_token());
        let heads = part * self.tile_rows..((part + 1) * self.tile_rows).min(self.n_heads);
        token * self.n_heads + heads.start..token * self.n_heads + heads.end
    }

    /// The tile of a query row, and which of its rows it is.
    pub(super) fn place(&self, row: usize) -> (usize, usize) {
        if self.chosen.is_none() {
            return (row / self.tile_rows, row % self.tile_rows);
        }
        let (token, head) = (row / self.n_heads, row % self.n_heads);
        (token * self.tiles_of_token() + head / self.tile_rows, head % self.tile_rows)
    }

    /// Positions that a query row of the run sees, or as many as may be chosen for it.
    pub(super) fn visible(&self, row: usize) -> usize {
        self.chosen.unwrap_or(self.start + row / self.n_heads + 1)
    }

    /// Positions of a span.
    pub(super) fn positions(&self, span: usize) -> Range<usize> {
        span * self.span..(span + 1) * self.span
    }

    /// Where the queries of a tile are, rows of `width`.
    pub(super) fn queries(&self, tile: usize, width: usize) -> Range<usize> {
        let size = width * self.tile_rows;
        self.queries + tile * size..self.queries + (tile + 1) * size
    }

    /// Where element 0 of a query row is; its elements lie `tile_rows` apart.
    pub(super) fn query(&self, row: usize, width: usize) -> usize {
        let (tile, lane) = self.place(row);
        self.queries(tile, width).start + lane
    }

    /// Where the partial results of a span of a tile start, `floats` a row.
    pub(super) fn partials(&self, tile: usize, span: usize, floats: usize) -> usize {
        self.partials + (tile * self.n_spans() + span) * self.tile_rows * floats
    }
}

/// Runs that go through the phase together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) runs: Vec<Run>,
    pub(super) n_rows: usize,
    pub(super) query_floats: usize,
    /// Whether spans are items of their own, folded afterwards.
    pub(super) by_span: bool,
}

/// What one worker does at a time.
pub(super) struct Item<'a> {
    pub(super) run: &'a Run,
    pub(super) tile: usize,
    pub(super) spans: Range<usize>,
}

impl Batch {
    /// Items of attention.
    pub(super) fn n_items(&self) -> usize {
        self.runs.iter().map(|run| self.items_of(run)).sum()
    }

    fn items_of(&self, run: &Run) -> usize {
        run.n_tiles * if self.by_span { run.n_spans() } else { 1 }
    }

    /// Item `number`.
    pub(super) fn item(&self, number: usize) -> Item<'_> {
        let (run, number) = owner_of(&self.runs, number, |run| self.items_of(run));
        let run = &self.runs[run];
        if self.by_span {
            let (tile, span) = (number / run.n_spans(), number % run.n_spans());
            Item { run, tile, spans: span..span + 1 }
        } else {
            Item { run, tile: number, spans: 0..run.n_spans() }
        }
    }

    /// The run that query row `row` of the batch belongs to, and its number there.
    pub(super) fn locate(&self, row: usize) -> (&Run, usize) {
        let at = self.runs.partition_point(|run| run.row <= row) - 1;
        (&self.runs[at], row - self.runs[at].row)
    }

    /// Lay out tiles of at most `limit` rows; returns the number of tiles and of tiles times spans.
    fn tile(&mut self, dims: &MlaDims, limit: usize) -> (usize, usize) {
        let (mut tiles, mut items, mut partials) = (0, 0, 0);
        self.query_floats = 0;
        for run in &mut self.runs {
            // rows that share tiles, and how often there are so many
            let (rows, times) = match run.chosen {
                None => (run.n_rows(), 1),
                Some(_) => (run.n_heads, run.n_tokens),
            };
            run.tile_rows = rows.div_ceil(rows.div_ceil(limit)).next_multiple_of(LANES);
            run.n_tiles = times * rows.div_ceil(run.tile_rows);
            run.queries = self.query_floats;
            run.partials = partials;
            self.query_floats += run.n_tiles * run.tile_rows * (dims.rank + dims.rope_dim);
            partials += run.n_tiles * run.n_spans() * run.tile_rows * partial_floats(dims.rank);
            tiles += run.n_tiles;
            items += run.n_tiles * run.n_spans();
        }
        (tiles, items)
    }

    /// Floats of the results of spans; none if they are not kept.
    pub(super) fn partial_floats(&self, dims: &MlaDims) -> usize {
        if !self.by_span {
            return 0;
        }
        let last = self.runs.last();
        last.map_or(0, |run| run.partials(run.n_tiles, 0, partial_floats(dims.rank)))
    }
}

/// Floats of one row's partial result.
pub(super) fn partial_floats(rank: usize) -> usize {
    2 + rank.next_multiple_of(LANES)
}

/// The batches of all rows whose queries are absorbed: those of some sequences, and those for which so many positions are
/// `chosen`. Partial results may take `room` floats.
pub(super) fn batches(
    dims: &MlaDims,
    rows: StepRows<'_>,
    chosen: Option<usize>,
    workers: usize,
    room: usize,
) -> Vec<Batch> {
    let per_token = dims.n_heads * (2 * dims.rank + dims.rope_dim);
    let most = (BATCH_FLOATS / per_token).clamp(1, super::heads::MAX_ROWS);
    let (mut batches, mut batch, mut tokens) = (Vec::new(), Batch::default(), 0);
    for (sequence, (at, form)) in rows.sequences.iter().zip(rows.forms).enumerate() {
        let SequenceRows { first_row, n, start } = *at;
        let all = reading_all(at, chosen);
        let mut first = if matches!(form, MlaForm::Absorbed | MlaForm::Elided) { 0 } else { all };
        while first < n {
            if tokens == most {
                batches.push(std::mem::take(&mut batch));
                tokens = 0;
            }
            let (chosen, form) = match chosen {
                Some(chosen) if first >= all => (Some(chosen), MlaForm::Elided),
                _ => (None, *form),
            };
            let end = if chosen.is_some() { n } else { all };
            let span_of = |token: usize| span(chosen.unwrap_or(start + token + 1));
            let span = span_of(first);
            let alike = (first..end).take_while(|token| span_of(*token) == span).count();
            let n_tokens = alike.min(most - tokens);
            batch.runs.push(Run {
                sequence,
                form,
                first_row: first_row + first,
                start: start + first,
                n_tokens,
                chosen,
                span,
                row: batch.n_rows,
                n_heads: dims.n_heads,
                tile_rows: 0,
                n_tiles: 0,
                queries: 0,
                partials: 0,
            });
            batch.n_rows += n_tokens * dims.n_heads;
            tokens += n_tokens;
            first += n_tokens;
        }
    }
    if !batch.runs.is_empty() {
        batches.push(batch);
    }
    for batch in &mut batches {
        spread(batch, dims, workers, room);
    }
    batches
}

/// Choose tiles, and whether to split by span, so that all workers have work.
fn spread(batch: &mut Batch, dims: &MlaDims, workers: usize, room: usize) {
    let mut limit = MAX_ROWS;
    let (mut tiles, mut items) = batch.tile(dims, limit);
    while items < ITEMS * workers && limit > LANES {
        limit /= 2;
        (tiles, items) = batch.tile(dims, limit);
    }
    batch.by_span = tiles < ITEMS * workers && items > tiles;
    batch.by_span &= batch.partial_floats(dims) <= room;
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: MlaDims =
        MlaDims { n_heads: 16, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    fn cut(sequences: &[(usize, usize)], workers: usize) -> Vec<Batch> {
        let mut first_row = 0;
        let rows = |&(start, n)| {
            first_row += n;
            SequenceRows { first_row: first_row - n, n, start }
        };
        let rows: Vec<SequenceRows> = sequences.iter().map(rows).collect();
        let forms = vec![MlaForm::Elided; rows.len()];
        batches(&DIMS, StepRows { sequences: &rows, forms: &forms }, None, workers, usize::MAX)
    }

    /// Where 700 positions are chosen, rows before the 700th come as they would, the others in tiles of one token each.
    #[test]
    fn tokens_that_choose_have_tiles_of_their_own() {
        let rows = [SequenceRows { first_row: 0, n: 60, start: 690 }];
        for form in [MlaForm::Elided, MlaForm::Compressed] {
            let step = StepRows { sequences: &rows, forms: &[form] };
            let batches = batches(&DIMS, step, Some(700), 4, usize::MAX);
            let (mut choosing, mut plain) = (0, 0);
            for run in batches.iter().flat_map(|batch| &batch.runs) {
                if run.chosen.is_none() {
                    plain += run.n_tokens;
                    continue;
                }
                assert_eq!((run.form, run.n_spans()), (MlaForm::Elided, 700usize.div_ceil(64)));
                assert!(run.start >= 700);
                choosing += run.n_tokens;
                for tile in 0..run.n_tiles {
                    let rows = run.rows(tile);
                    assert_eq!(rows.start / 16, (rows.end - 1) / 16, "one token");
                    for (lane, row) in rows.enumerate() {
                        assert_eq!(run.place(row), (tile, lane));
                    }
                }
            }
            assert_eq!((plain, choosing), (if form == MlaForm::Elided { 10 } else { 0 }, 50));
        }
    }

    #[test]
    fn spans_are_few_and_follow_from_the_position() {
        for visible in 1..70_000 {
            let span = span(visible);
            assert!(span.is_multiple_of(LATENT_TILE) && visible.div_ceil(span) <= MAX_SPANS);
        }
    }

    #[test]
    fn every_row_is_cut_once() {
        for sequences in [&[(0, 1)][..], &[(8192, 1)], &[(1000, 60)], &[(0, 700), (1023, 2)]] {
            for workers in [1, 2, 64] {
                let batches = cut(sequences, workers);
                let rows: usize = batches.iter().map(|batch| batch.n_rows).sum();
                assert_eq!(rows, sequences.iter().map(|s| s.1).sum::<usize>() * 16);
                for batch in &batches {
                    let mut seen = vec![0; batch.n_rows];
                    let mut places = std::collections::HashSet::new();
                    for number in 0..batch.n_items() {
                        let Item { run, tile, spans } = batch.item(number);
                        for row in run.rows(tile) {
                            assert_eq!(batch.locate(run.row + row), (run, row));
                            seen[run.row + row] += spans.len();
                            let query = run.query(row, 576);
                            assert!(query + 575 * run.tile_rows < batch.query_floats);
                            if spans.start == 0 {
                                assert!(places.insert(query));
                            }
                        }
                    }
                    for (row, seen) in seen.into_iter().enumerate() {
                        assert_eq!(seen, batch.locate(row).0.n_spans());
                    }
                }
            }
        }
    }

    #[test]
    fn a_step_far_into_a_context_gives_all_workers_work() {
        for workers in [2, 4] {
            let batches = cut(&[(32_767, 1)], workers);
            assert_eq!((batches.len(), batches[0].by_span, batches[0].n_items()), (1, true, 16));
        }
    }
}

//! Indexer phases: keys go into the cache | scores | choices, the last two for as many rows at a time as scores have room.
//!
//! A score is a sum in one order whoever computes it, and a row chooses by its own scores alone: neither the number of
//! workers nor the cut of a prompt changes a choice. Rows that see no more units than are chosen have no scores.

use std::ops::Range;

use kernels::attention::{BLOCK, HeadBlock, QueryRows, Seen, scores_scratch};
use program::{NO_UNIT, UnitScore};

use super::items::owner_of;
use super::{Exec, Scratch, SequenceRows};
use crate::cache::{KeysCache, pairs};
use crate::geometry::MAX_PARTIAL_FLOATS;
use crate::plan::IndexerPhase;
use crate::pool::Worker;

/// Most heads of a row, and query rows that are scored together.
pub(crate) const MOST_INDEX_HEADS: usize = 128;

/// Floats of the scores of rows that choose together, where there are several.
const SCORE_FLOATS: usize = MAX_PARTIAL_FLOATS / 4;

/// Tokens that are scored together.
fn tile_tokens(phase: &IndexerPhase) -> usize {
    (MOST_INDEX_HEADS / phase.n_heads()).max(1)
}

/// Units of an item: about a block of positions.
fn item_units(phase: &IndexerPhase) -> usize {
    (BLOCK / phase.at.unit as usize).max(1)
}

/// Rows of a sequence that choose, and where their scores are: `[token][choice][units]`.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    sequence: usize,
    /// Within the sequence.
    tokens: Range<usize>,
    /// Those of the last row.
    units: usize,
    /// First float of the scores.
    at: usize,
    /// Items of scoring.
    items: usize,
}

/// Rows that choose together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wave {
    parts: Vec<Part>,
    floats: usize,
}

impl Wave {
    fn n_items(&self) -> usize {
        self.parts.iter().map(|part| part.items).sum()
    }

    fn n_rows(&self) -> usize {
        self.parts.iter().map(|part| part.tokens.len()).sum()
    }

    /// The part that has this one of its `count`s, and which of its own it is.
    fn find(&self, number: usize, count: impl Fn(&Part) -> usize) -> (&Part, usize) {
        let (part, number) = owner_of(&self.parts, number, count);
        (&self.parts[part], number)
    }
}

/// The rows that choose, as many at a time as scores have room.
fn waves(phase: &IndexerPhase, sequences: &[SequenceRows]) -> Vec<Wave> {
    let (limit, choices) = (phase.at.selection().limit(), phase.n_choices());
    let (tile, units_of_item) = (tile_tokens(phase), item_units(phase));
    let (mut waves, mut wave) = (Vec::new(), Wave::default());
    for (sequence, rows) in sequences.iter().enumerate() {
        let mut first = limit.saturating_sub(rows.start).min(rows.n);
        while first < rows.n {
            // as if all rows had the units of the last one
            let each = choices * phase.at.units(rows.start + rows.n - 1);
            let room = SCORE_FLOATS.saturating_sub(wave.floats) / each;
            if room == 0 && !wave.parts.is_empty() {
                waves.push(std::mem::take(&mut wave));
                continue;
            }
            let tokens = first..(first + room.max(1)).min(rows.n);
            first = tokens.end;
            let units = phase.at.units(rows.start + tokens.end - 1);
            let items = tokens.len().div_ceil(tile) * units.div_ceil(units_of_item);
            let at = wave.floats;
            wave.floats += tokens.len() * choices * units;
            wave.parts.push(Part { sequence, tokens, units, at, items });
        }
    }
    if !wave.parts.is_empty() {
        waves.push(wave);
    }
    waves
}

/// Floats of scores that a step keeps.
pub(crate) fn index_scores(phase: &IndexerPhase, sequences: &[SequenceRows]) -> usize {
    waves(phase, sequences).iter().map(|wave| wave.floats).max().unwrap_or(0)
}

/// Floats of scratch that a worker needs.
pub(crate) fn index_scratch(
    phase: &IndexerPhase,
    cache: &KeysCache,
    sequences: &[SequenceRows],
) -> usize {
    let waves = waves(phase, sequences);
    let units = waves.iter().flat_map(|wave| &wave.parts).map(|part| part.units).max();
    let tokens = tile_tokens(phase);
    let rows = tokens * phase.n_heads();
    let scoring = rows * (phase.dim() + BLOCK)
        + tokens * phase.n_choices() * item_units(phase)
        + BLOCK
        + scores_scratch(&cache.head);
    units.map_or(0, |units| scoring.max(units)).max(phase.dim())
}

/// Some tokens of a part against some units.
struct Item {
    tokens: Range<usize>,
    units: Range<usize>,
}

impl Exec<'_> {
    pub(super) fn indexer(
        &self,
        worker: &Worker<'_>,
        phase: &IndexerPhase,
        scratch: &mut Scratch<'_>,
    ) {
        self.store_keys(worker, phase, scratch.attention);
        for wave in &waves(phase, self.sequences) {
            worker.section(|section| {
                for item in section.take(wave.n_items()) {
                    let (part, item) = wave.find(item, |part| part.items);
                    self.score_item(phase, part, item, scratch.attention);
                }
            });
            worker.section(|section| {
                for row in section.take(wave.n_rows()) {
                    let (part, token) = wave.find(row, |part| part.tokens.len());
                    self.choose_units(phase, part, token, scratch.attention);
                }
            });
        }
    }

    /// New keys go into the cache, an item being those of a block of a sequence; rows that see few units have all of them.
    fn store_keys(&self, worker: &Worker<'_>, phase: &IndexerPhase, scratch: &mut [f32]) {
        let KeysCache { head, layout } = self.attention[phase.at.cache.0 as usize].keys();
        let blocks = |rows: &SequenceRows| rows.blocks().len();
        let items: usize = self.sequences.iter().map(blocks).sum();
        worker.section(|section| {
            for item in section.take(items) {
                let (sequence, item) = owner_of(self.sequences, item, blocks);
                let SequenceRows { first_row, n, start } = self.sequences[sequence];
                let block = start / BLOCK + item;
                let positions = start.max(block * BLOCK)..(start + n).min((block + 1) * BLOCK);
                let memory = self.blocks.get(phase.at.cache.0 as usize, sequence, block);
                // SAFETY: this block belongs to one item, and nobody reads it in this section.
                let keys = unsafe { memory.slice_mut(layout.keys(0)) };
                for position in positions {
                    let row = first_row + position - start;
                    let key = &mut scratch[..head.key_dim];
                    key.copy_from_slice(self.row(phase.k, row));
                    self.turn_head(phase, phase.key_rope, row, key);
                    head.store_key(keys, position % BLOCK, key);
                    if !phase.at.chooses(position) {
                        self.all_units(phase, row, position);
                    }
                }
            }
        });
    }

    fn turn_head(&self, phase: &IndexerPhase, rope: Option<usize>, row: usize, head: &mut [f32]) {
        let Some(rope) = rope else { return };
        let angles = &self.angles[rope];
        let at = row * angles.n_pairs..(row + 1) * angles.n_pairs;
        let pairs = pairs(&self.schedule.ropes[rope].rope);
        let rotates = &mut head[phase.at.rope_start..];
        self.kernels.rotate.call(rotates, &angles.cos[at.clone()], &angles.sin[at], pairs);
    }

    /// All units up to a row's own are chosen.
    fn all_units(&self, phase: &IndexerPhase, row: usize, position: usize) {
        // SAFETY: each row has one writer, and nobody reads it in this phase.
        let out = unsafe { self.part_mut(phase.out, row, 0..phase.out.cols) };
        let units = phase.at.units(position);
        for chosen in out.chunks_exact_mut(phase.at.selection().n_units as usize) {
            for (unit, chosen) in chosen.iter_mut().enumerate() {
                *chosen = if unit < units { unit as f32 } else { NO_UNIT };
            }
        }
    }

    /// Scores of some tokens for some units, block by block of the keys.
    fn score_item(&self, phase: &IndexerPhase, part: &Part, item: usize, scratch: &mut [f32]) {
        let (tile, per_item, unit) =
            (tile_tokens(phase), item_units(phase), phase.at.unit as usize);
        let spans = part.units.div_ceil(per_item);
        let first = part.tokens.start + item / spans * tile;
        let span = item % spans;
        let item = Item {
            tokens: first..(first + tile).min(part.tokens.end),
            units: span * per_item..((span + 1) * per_item).min(part.units),
        };
        let rows = self.sequences[part.sequence];
        let end = rows.start + item.tokens.end;
        let positions = item.units.start * unit..(item.units.end * unit).min(end);
        if positions.is_empty() {
            return;
        }
        let KeysCache { head, layout } = self.attention[phase.at.cache.0 as usize].keys();
        let (heads, choices) = (phase.n_heads(), phase.n_choices());
        let n = item.tokens.len() * heads;
        let (q, scratch) = scratch.split_at_mut(n * head.key_dim);
        let (scores, scratch) = scratch.split_at_mut(n * BLOCK);
        let (found, scratch) = scratch.split_at_mut(item.tokens.len() * choices * per_item);
        let (sums, kernel) = scratch.split_at_mut(BLOCK);
        let q_rows = q.chunks_exact_mut(heads * head.key_dim);
        for (token, q) in item.tokens.clone().zip(q_rows) {
            let row = rows.first_row + token;
            q.copy_from_slice(self.row(phase.q, row));
            for q in q.chunks_exact_mut(head.key_dim) {
                self.turn_head(phase, phase.rope, row, q);
            }
        }
        found.fill(match phase.at.unit_score {
            UnitScore::Greatest | UnitScore::Last => f32::NEG_INFINITY,
            UnitScore::OfPool(_) => f32::INFINITY,
        });
        for block in positions.start / BLOCK..positions.end.div_ceil(BLOCK) {
            let sees = |token: usize| {
                let seen = positions.start..positions.end.min(rows.start + token + 1);
                Seen::within(&seen, block)
            };
            let mut seen = [Seen::NOTHING; MOST_INDEX_HEADS];
            let of_rows = item.tokens.clone().flat_map(|token| std::iter::repeat_n(token, heads));
            seen.iter_mut().zip(of_rows).for_each(|(seen, token)| *seen = sees(token));
            let memory = self.blocks.get(phase.at.cache.0 as usize, part.sequence, block);
            // SAFETY: keys are not written from here to the end of the phase.
            let keys = unsafe { memory.slice(layout.keys(0)) };
            let keys = HeadBlock { shape: head, keys, values: &[] };
            let queries = QueryRows::plain(q, &seen[..n]);
            self.kernels.scores.call(&keys, &queries, scores, kernel);
            let by_token = scores.chunks_exact(heads * BLOCK);
            let by_token = by_token.zip(found.chunks_exact_mut(choices * per_item));
            for (token, (scores, found)) in item.tokens.clone().zip(by_token) {
                let seen = sees(token).range();
                let weights =
                    phase.weights.map(|weights| self.row(weights, rows.first_row + token));
                let choices = found.chunks_exact_mut(per_item).enumerate();
                for (choice, found) in choices {
                    let scores = match weights {
                        Some(weights) => {
                            weighted(weights, scores, sums);
                            &*sums
                        }
                        None => &scores[choice * BLOCK..(choice + 1) * BLOCK],
                    };
                    for (position, score) in
                        (block * BLOCK + seen.start..).zip(&scores[seen.clone()])
                    {
                        let at = position / unit - item.units.start;
                        let ends = |len: usize| (position + 1).is_multiple_of(len);
                        let of = match phase.at.unit_score {
                            UnitScore::Greatest if *score > found[at] => at..at + 1,
                            UnitScore::Last if ends(unit) => at..at + 1,
                            // a pool does not lie in two blocks
                            UnitScore::OfPool(len) if ends(len as usize) => {
                                at + 1 - len as usize..at + 1
                            }
                            UnitScore::Greatest | UnitScore::Last | UnitScore::OfPool(_) => at..at,
                        };
                        found[of].fill(*score);
                    }
                }
            }
        }
        for (token, found) in item.tokens.clone().zip(found.chunks_exact(choices * per_item)) {
            let units = phase.at.units(rows.start + token).min(item.units.end);
            let seen = units.saturating_sub(item.units.start);
            for (choice, found) in found.chunks_exact(per_item).enumerate() {
                let row = (token - part.tokens.start) * choices + choice;
                let at = part.at + row * part.units + item.units.start;
                // SAFETY: these units of these rows belong to one item, and nobody reads them in this section.
                let place = unsafe { self.partials.slice_mut(at..at + seen) };
                place.copy_from_slice(&found[..seen]);
            }
        }
    }

    /// A row's choices, by the scores of the section before.
    fn choose_units(&self, phase: &IndexerPhase, part: &Part, token: usize, scratch: &mut [f32]) {
        let rows = self.sequences[part.sequence];
        let (n_units, choices) = (phase.at.selection().n_units as usize, phase.n_choices());
        let in_sequence = part.tokens.start + token;
        let position = rows.start + in_sequence;
        let units = phase.at.units(position);
        let row = rows.first_row + in_sequence;
        // SAFETY: each row has one writer, and nobody reads it in this phase.
        let out = unsafe { self.part_mut(phase.out, row, 0..phase.out.cols) };
        for (choice, chosen) in out.chunks_exact_mut(n_units).enumerate() {
            let at = part.at + (token * choices + choice) * part.units;
            // SAFETY: written in the section before; nobody writes scores in this one.
            let scores = unsafe { self.partials.slice(at..at + units) };
            let spare = bytemuck::cast_slice_mut(&mut scratch[..units]);
            phase.at.choose(position, scores, spare, chosen);
        }
    }
}

/// `sums[p] = sum_h weights[h] * max(scores[h][p], 0)`, heads in ascending order.
fn weighted(weights: &[f32], scores: &[f32], sums: &mut [f32]) {
    sums.fill(0.0);
    for (weight, scores) in weights.iter().zip(scores.chunks_exact(BLOCK)) {
        for (sum, score) in sums.iter_mut().zip(scores) {
            let above = if *score > 0.0 { *score } else { 0.0 };
            *sum += weight * above;
        }
    }
}

#[cfg(test)]
mod tests {
    use program::{CacheId, IndexScore, Indexer, Rows, ValueId};

    use super::*;
    use crate::plan::Operand;

    fn phase(heads: usize, unit: u32, n_units: u32) -> IndexerPhase {
        let operand = |cols| Operand { value: ValueId(0), rows: Rows::Tokens, cols };
        let score = IndexScore::PerHead;
        let cache = CacheId(0);
        IndexerPhase {
            at: Indexer {
                cache,
                rope: None,
                rope_start: 0,
                keys_back: 0,
                score,
                unit,
                unit_score: UnitScore::Greatest,
                n_units,
                n_last: 1,
            },
            rope: None,
            key_rope: None,
            q: operand(heads * 4),
            weights: None,
            k: operand(4),
            out: operand(heads * n_units as usize),
        }
    }

    /// Every row that chooses is in one part, and the places of scores do not overlap.
    #[test]
    fn rows_that_choose_come_once() {
        for (unit, n_units) in [(1, 100), (8, 4), (200, 2)] {
            let phase = phase(3, unit, n_units);
            let limit = (unit * n_units) as usize;
            let sequences = [
                SequenceRows { first_row: 0, n: 5, start: 3 },
                SequenceRows { first_row: 5, n: 600, start: 50 },
                SequenceRows { first_row: 605, n: 300, start: 100_000 },
            ];
            let waves = waves(&phase, &sequences);
            let mut chosen = Vec::new();
            for wave in &waves {
                assert!(wave.floats <= SCORE_FLOATS);
                let mut at = 0;
                for part in &wave.parts {
                    assert_eq!(part.at, at);
                    at += part.tokens.len() * 3 * part.units;
                    chosen.extend(part.tokens.clone().map(|token| (part.sequence, token)));
                }
                assert_eq!(at, wave.floats);
                let of_parts = (0..wave.n_items()).map(|item| wave.find(item, |part| part.items).1);
                let counted = wave.parts.iter().flat_map(|part| 0..part.items);
                assert!(of_parts.eq(counted));
            }
            let chooses = |s: usize| {
                let rows = sequences[s];
                (0..rows.n).filter(move |t| rows.start + t >= limit).map(move |t| (s, t))
            };
            assert_eq!(chosen, (0..3).flat_map(chooses).collect::<Vec<_>>());
        }
    }

    /// However long the past is, some row has room.
    #[test]
    fn a_row_that_has_no_room_comes_alone() {
        let phase = phase(1, 1, 10);
        let rows = [SequenceRows { first_row: 0, n: 3, start: SCORE_FLOATS + 5 }];
        let waves = waves(&phase, &rows);
        assert_eq!(waves.iter().map(Wave::n_rows).collect::<Vec<_>>(), [1, 1, 1]);
    }
}

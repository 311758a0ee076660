//! [`Batch`]: the rows of a step, and the words by which kernels know of them (`kernels/step.wgsl`).

use std::ops::Range;
use std::sync::Arc;

use kv::{BlockAccess, StateRows, StateStep};
use program::{Among, Result, Rows, Sequence};

use crate::caches::{BLOCK, SlabTables};
use crate::dispatch::{self, NONE};
use crate::kernels::SLOTS;
use crate::plan::{GpuPlan, GpuWork};
use crate::slab::BlockPlace;
use crate::workspace::WorkSizes;

/// Words that `kernels/step.wgsl` names; before the lists come then one for each rotation and temperature.
pub(crate) const HEADER: usize = 17;
/// Workgroups that attention is split into at least, where there are blocks for so many.
const WORKGROUPS: usize = 512;
/// Most parts that the past of a query is split into.
const MOST_SPLITS: usize = 64;

/// Rotations and temperatures of a plan, in numbers.
pub(crate) struct RowNumbers {
    /// By rotation: radians per position of each pair, and the factor on cosines and sines; and how many positions before
    /// their own rows stand.
    pub(crate) rotations: Vec<((Vec<f64>, f64), u32)>,
    pub(crate) temperatures: Vec<program::Temperature>,
}

/// A sequence of the step.
pub(crate) struct Rowed<'a, 's> {
    pub(crate) sequence: &'a Sequence<'a>,
    /// What its rows' likeliest tokens are looked for among: nothing, or one for each.
    pub(crate) among: &'a [Among<'a>],
    pub(crate) tables: &'s mut SlabTables,
    /// Position of its first row.
    pub(crate) start: usize,
}

/// The rows of a step.
pub(crate) struct Batch {
    pub(crate) words: Vec<u32>,
    pub(crate) n_tokens: usize,
    pub(crate) n_selected: usize,
    /// By sequence: its rows.
    rows: Vec<Range<usize>>,
    /// By sequence: its rows among the selected ones.
    selected: Vec<Range<usize>>,
    pub(crate) n_tiles: usize,
    /// Whether tiles are of several rows.
    pub(crate) by_row: bool,
    pub(crate) n_splits: usize,
    /// Blocks of the longest past.
    pub(crate) n_blocks: usize,
    /// The likeliest tokens that the device finds of each selected row; 0: none.
    pub(crate) n_best: usize,
    /// Whether the device joins what it finds of stretches of logits; else the host does.
    pub(crate) joins_found: bool,
    /// By sequence: where its logits begin that are told beside these.
    told: Vec<usize>,
    /// How many are told in all.
    pub(crate) n_told: usize,
}

impl Batch {
    /// Of sequences whose blocks are prepared; `n_best` likeliest tokens are wanted of each selected row, or rows.
    ///
    /// # Errors
    /// [`program::Error::Memory`].
    pub(crate) fn new(
        plan: &GpuPlan,
        numbers: &RowNumbers,
        running: &mut [Rowed<'_, '_>],
        n_best: usize,
    ) -> Result<Batch> {
        let mut lists = Lists::new(HEADER + numbers.rotations.len() + numbers.temperatures.len());
        let mut batch = Batch {
            words: Vec::new(),
            n_tokens: 0,
            n_selected: 0,
            rows: Vec::new(),
            selected: Vec::new(),
            n_tiles: 0,
            by_row: false,
            n_splits: 1,
            n_blocks: 0,
            n_best,
            joins_found: false,
            told: Vec::new(),
            n_told: 0,
        };
        let (mut tokens, mut positions, mut of_row) = (Vec::new(), Vec::new(), Vec::new());
        let (mut selected, mut records) = (Vec::new(), Vec::new());
        for (i, Rowed { sequence, start, .. }) in running.iter().enumerate() {
            let (first, n) = (tokens.len(), sequence.tokens.len());
            tokens.extend_from_slice(sequence.tokens);
            positions.extend((*start..start + n).map(|p| p as u32));
            of_row.extend(std::iter::repeat_n(i as u32, n));
            let from = selected.len();
            selected.extend(sequence.outputs.range(n).map(|row| (first + row) as u32));
            records.extend([first, n, *start].map(|x| x as u32));
            batch.rows.push(first..first + n);
            batch.selected.push(from..selected.len());
        }
        (batch.n_tokens, batch.n_selected) = (tokens.len(), selected.len());
        batch.joins_found = dispatch::joins_found(plan, batch.n_selected, n_best);
        // a tile has heads of one row, or one head of some rows
        batch.by_row = batch.n_tokens > 2 * running.len();
        let tile_rows = if batch.by_row { SLOTS } else { 1 };
        let tiles = batch.rows.iter().flat_map(|rows| {
            let tile = |first: usize| [first as u32, (rows.end - first).min(tile_rows) as u32];
            rows.clone().step_by(tile_rows).flat_map(tile)
        });
        let tiles: Vec<u32> = tiles.collect();
        batch.n_tiles = tiles.len() / 2;
        let longest = running.iter().map(|one| one.start + one.sequence.tokens.len());
        let blocks = longest.max().unwrap_or(0).div_ceil(BLOCK);
        batch.n_splits = splits(plan, batch.n_tiles, batch.by_row, blocks);
        batch.n_blocks = blocks;

        lists.header[0] = batch.n_tokens as u32;
        lists.header[1] = batch.n_selected as u32;
        lists.add(2, &tokens);
        lists.add(3, &positions);
        lists.add(4, &of_row);
        lists.add(5, &selected);
        lists.add(6, &records);
        lists.add(7, &tiles);
        lists.add_tables(running);
        lists.header[10] = tile_rows as u32;
        lists.header[11] = batch.n_splits as u32;
        lists.header[12] = batch.n_tiles as u32;
        lists.header[13] = n_best as u32;
        lists.header[16] = batch.n_blocks as u32;
        batch.add_among(&mut lists, running);
        let mut word = HEADER;
        for ((frequencies, magnitude), back) in &numbers.rotations {
            let mut angles = Vec::with_capacity(2 * positions.len() * frequencies.len());
            for (position, frequency) in
                positions.iter().flat_map(|p| frequencies.iter().map(move |f| (p, f)))
            {
                let (sin, cos) = (f64::from(position.saturating_sub(*back)) * frequency).sin_cos();
                angles.extend([cos, sin].map(|x| ((x * magnitude) as f32).to_bits()));
            }
            lists.add(word, &angles);
            word += 1;
        }
        for temperature in &numbers.temperatures {
            let at = |p: &u32| (temperature.at(*p as usize) as f32).to_bits();
            let factors: Vec<u32> = positions.iter().map(at).collect();
            lists.add(word, &factors);
            word += 1;
        }
        batch.words = lists.finish();
        Ok(batch)
    }

    /// What the likeliest tokens are looked for among, where the device finds them.
    fn add_among(&mut self, lists: &mut Lists, running: &[Rowed<'_, '_>]) {
        let mut told = vec![0];
        let mut masks = vec![NONE; 2 * self.n_selected];
        lists.header[14] = NONE;
        for (i, Rowed { among, .. }) in running.iter().enumerate() {
            self.told.push(self.n_told);
            for (row, among) in self.selected[i].clone().zip(*among).filter(|_| self.n_best > 0) {
                told.extend(among.told.iter().flat_map(|token| [row as u32, *token]));
                self.n_told += among.told.len();
                if let Some(words) = among.allowed {
                    lists.add(14, words);
                    masks[2 * row..2 * row + 2]
                        .copy_from_slice(&[lists.header[14], words.len() as u32]);
                }
            }
        }
        if lists.header[14] != NONE {
            lists.add(14, &masks);
        }
        told[0] = self.n_told as u32;
        lists.add(15, &told);
    }

    /// Where the logits of a sequence begin among all that are told.
    pub(crate) fn first_told(&self, sequence: usize) -> usize {
        self.told[sequence]
    }

    /// How many rows there are.
    pub(crate) fn count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.n_tokens,
            Rows::Selected => self.n_selected,
        }
    }

    /// Of each token what a list has of it, by the word that says where the list begins: its id or its position.
    pub(crate) fn looked_up(&self, word: u32) -> &[u32] {
        let begin = self.words[word as usize] as usize;
        &self.words[begin..begin + self.n_tokens]
    }

    /// How many sequences there are.
    pub(crate) fn n_sequences(&self) -> usize {
        self.rows.len()
    }

    /// All rows of a sequence in a value of such rows.
    pub(crate) fn rows_of(&self, sequence: usize, rows: Rows) -> Range<usize> {
        match rows {
            Rows::Tokens => self.rows[sequence].clone(),
            Rows::Selected => self.selected[sequence].clone(),
        }
    }
}

/// How many parts the past is split into, of `blocks` at most, for so many tiles of rows: so many that the device is busy.
pub(crate) fn splits(plan: &GpuPlan, n_tiles: usize, by_row: bool, blocks: usize) -> usize {
    // workgroups that the fewest of all layers have for a tile
    let works = plan.works.iter().filter_map(|work| match work {
        GpuWork::Attention(work) => {
            Some(work.n_kv_heads * tiles_of_head(work.n_heads / work.n_kv_heads, by_row))
        }
        _ => None,
    });
    let heads = works.min().unwrap_or(1).max(1);
    let wanted = WORKGROUPS.div_ceil(heads * n_tiles.max(1));
    wanted.min(blocks / 2).clamp(1, MOST_SPLITS)
}

/// Rows and splits of the steps whose attention has most to join: `sequences` with a row each, or a prompt of at most
/// `tokens`, with a past of at most `blocks`.
pub(crate) fn split_steps(
    plan: &GpuPlan,
    [tokens, sequences]: [usize; 2],
    blocks: usize,
) -> impl Iterator<Item = [usize; 2]> {
    let steps = (1..=sequences).map(move |n| [n, splits(plan, n, false, blocks)]);
    // beyond that many rows there are workgroups enough
    let prompts = (3..=tokens.min(SLOTS * WORKGROUPS))
        .map(move |n| [n, splits(plan, n.div_ceil(SLOTS), true, blocks)]);
    steps.chain(prompts)
}

/// Most words of the list of a step: see [`Batch::new`].
pub(crate) fn most_words(plan: &GpuPlan, sizes: &WorkSizes) -> usize {
    let WorkSizes { tokens, selected, sequences, blocks, n_caches, .. } = *sizes;
    let pairs: usize = plan.rotations.iter().map(|its| its.rope.dims.div_ceil(2)).sum();
    let numbers = plan.rotations.len() + plan.temperatures.len();
    let by_row = 5 + 2 * pairs + plan.temperatures.len();
    let of_cache = 2 + blocks.max(STATE_WORDS);
    // the bits of a mask for each selected row, and how many logits are told
    let masks = dispatch::logits(plan).map_or(0, |(_, cols)| 2 + cols.div_ceil(32));
    let by_selected = 1 + masks;
    let by_sequence = 3 + n_caches * of_cache;
    HEADER + 1 + numbers + tokens * by_row + selected * by_selected + sequences * by_sequence
}

/// How many tiles the query heads make that share a key-value head, for each tile of rows.
pub(crate) fn tiles_of_head(group: usize, by_row: bool) -> usize {
    if by_row { group } else { group.div_ceil(SLOTS) }
}

/// Words, then lists that some of them tell the beginning of.
struct Lists {
    header: Vec<u32>,
    rest: Vec<u32>,
}

impl Lists {
    fn new(header: usize) -> Lists {
        Lists { header: vec![0; header], rest: Vec::new() }
    }

    /// Where the next list begins.
    fn end(&self) -> u32 {
        (self.header.len() + self.rest.len()) as u32
    }

    fn add(&mut self, word: usize, list: &[u32]) {
        self.header[word] = self.end();
        self.rest.extend_from_slice(list);
    }

    /// Where the blocks of each cache of each sequence lie, and what a step is to states.
    fn add_tables(&mut self, running: &mut [Rowed<'_, '_>]) {
        let (tables, states) = running.first().map_or_else(Default::default, |one| {
            (Arc::clone(one.tables.specs()), Arc::clone(one.tables.state_specs()))
        });
        let n_caches = tables.len() + states.len();
        self.header[8] = self.end();
        self.header[9] = n_caches as u32;
        let entries = self.rest.len();
        self.rest.resize(entries + 2 * running.len() * n_caches, 0);
        for (i, Rowed { sequence, tables: its, start, .. }) in running.iter_mut().enumerate() {
            let entry = |area: usize| entries + 2 * (i * n_caches + area);
            let (blocks, (step, rows)) = its.step_of_all(*start + sequence.tokens.len());
            for (spec, (_, blocks)) in tables.iter().zip(blocks) {
                self.rest[entry(spec.area)] = self.end();
                let mut first = None;
                for rows in blocks {
                    first.get_or_insert(rows.first / BLOCK);
                    self.rest.push(place(&rows.block));
                }
                self.rest[entry(spec.area) + 1] = first.unwrap_or(0) as u32;
            }
            for (spec, rows) in states.iter().zip(rows) {
                self.rest[entry(spec.area)] = self.end();
                let step = step.as_ref().expect("who has states has a step of them");
                self.rest.extend(state_words(step, &rows));
            }
        }
    }

    fn finish(self) -> Vec<u32> {
        let mut words = self.header;
        words.extend(self.rest);
        words
    }
}

/// Words of what a step is to a state: see [`state_words`].
const STATE_WORDS: usize = 7;

/// Where the state lies that a step starts from, the one that it makes, rows since the first and those that it leaves; then
/// the positions after which both states are, and the first one of those rows. `kernels/states.wgsl` reads this.
fn state_words(step: &StateStep, rows: &StateRows<'_, BlockPlace>) -> [u32; STATE_WORDS] {
    let base = rows.base.map_or(NONE, BlockPlace::number);
    let fold = rows.fold.as_ref().map_or(NONE, |fold| fold.number());
    let ring = place(&rows.ring);
    let stored = rows.next.as_ref().map_or(ring, |next| next.number());
    let [from, until, stored_from] =
        [step.base, step.fold.unwrap_or(0), step.stored_from].map(|position| position as u32);
    [base, fold, ring, stored, from, until, stored_from]
}

fn place(block: &BlockAccess<'_, BlockPlace>) -> u32 {
    match block {
        BlockAccess::Read(place) => place.number(),
        BlockAccess::Write(place) => place.number(),
    }
}

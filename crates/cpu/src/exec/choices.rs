//! What rows that choose blocks need, and how many choose at a time.

use std::ops::Range;

use kernels::attention::{ANCHORS, BLOCK};
use program::ContextMemory;

use super::representatives::waves;
use super::supers::{few_from, promise_len};
use super::{Exec, SequenceRows};
use crate::cache::{Asks, HeadsCache, MemoryTables};
use crate::memory::Shared;
use crate::plan::AttentionPhase;

/// Floats of promises that are kept at a time, unless one row has more.
const MAX_PROMISES: usize = 1 << 20;

/// What rows that choose blocks need, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContextNeeds {
    /// Queries as they meet what is not near.
    pub(crate) far: usize,
    /// What rows ask for.
    pub(crate) asked: usize,
    /// What blocks promise them.
    pub(crate) promises: usize,
    /// Super-blocks whose blocks they look at.
    pub(crate) looked: usize,
    /// Blocks that they read.
    pub(crate) chosen: usize,
    /// What the scores come to of all that they read whatever they choose.
    pub(crate) sums: usize,
}

impl ContextNeeds {
    /// Of a phase over this cache.
    pub(crate) fn of(
        phase: &AttentionPhase,
        cache: &HeadsCache,
        sequences: &[SequenceRows],
    ) -> Self {
        let Some(memory) = &cache.memory else { return Self::default() };
        let n_heads = phase.group * cache.layout.n_kv_heads();
        let rows: usize = sequences.iter().map(|s| s.n).sum();
        let far = usize::from(memory.settings.keeps_far_keys());
        let asks = memory.asks(cache.layout.n_kv_heads(), n_heads);
        let asks_blocks = memory.chooses_for(phase.new.is_some());
        let chooses = |s: &&SequenceRows| s.n > 0 && memory.settings.chooses(s.start + s.n - 1);
        let promised = |rows: &[SequenceRows]| {
            let needs = rows.iter().filter(chooses).map(|s| promised(&memory.settings, asks, s));
            needs.max().unwrap_or(0)
        };
        let promises = match waves(phase, cache, sequences) {
            _ if !asks_blocks => 0,
            None => promised(sequences),
            Some(waves) => waves.iter().map(|wave| promised(wave)).max().unwrap_or(0),
        };
        // who chooses leaves blocks unread: there are more than are chosen
        let is_chosen = usize::from(sequences.iter().any(|s| chooses(&s)));
        let choices = match memory.choices {
            Some(_) => 0,
            None => memory.slot + memory.n_choices,
        };
        let chosen = is_chosen * choices * choice_len(&memory.settings, sequences);
        let looks =
            |s: &SequenceRows| chooses(&s) && memory.settings.looks_at_few(s.start + s.n - 1);
        let is_looked = usize::from(asks_blocks && sequences.iter().any(looks));
        let looked = is_looked * memory.n_choices * memory.settings.most_looked_at();
        let sums = is_chosen * usize::from(memory.settings.certificate.is_some()) * n_heads;
        ContextNeeds {
            far: 4 * far * rows * n_heads * cache.head.key_dim,
            asked: 4 * usize::from(asks_blocks) * rows * asks.n * asks.width,
            promises: 4 * promises,
            looked: 4 * rows * looked,
            chosen: 4 * rows * chosen,
            sums: 4 * rows * sums * 2,
        }
    }

    /// The greater of both, each by itself.
    pub(crate) fn max(self, other: ContextNeeds) -> ContextNeeds {
        ContextNeeds {
            far: self.far.max(other.far),
            asked: self.asked.max(other.asked),
            promises: self.promises.max(other.promises),
            looked: self.looked.max(other.looked),
            chosen: self.chosen.max(other.chosen),
            sums: self.sums.max(other.sums),
        }
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> usize {
        self.far + self.asked + self.promises + self.looked + self.chosen + self.sums
    }
}

/// The memory of [`ContextNeeds`].
#[derive(Clone, Copy)]
pub(crate) struct ContextBuffers<'a> {
    /// `[row][n_heads, key_dim]`.
    pub(crate) far: Shared<'a, f32>,
    /// `[ask][row][width]`; of each sequence come first those that choose.
    pub(crate) asked: Shared<'a, f32>,
    /// `[ask][row of the batch][blocks]`.
    pub(crate) promises: Shared<'a, f32>,
    /// `[row][choice][super-blocks]`.
    pub(crate) looked: Shared<'a, u32>,
    /// `[layer that chooses for others][row][choice][choice_len]`.
    pub(crate) chosen: Shared<'a, u32>,
    /// `[row][n_heads][max, sum]`.
    pub(crate) sums: Shared<'a, f32>,
}

/// Blocks that a row at `last`, or before it, may choose from, as they lie in the index, rounded up to whole tiles.
pub(super) fn padded(settings: &ContextMemory, last: usize) -> usize {
    (settings.finished(last).end + settings.anchor_lag()).next_multiple_of(ANCHORS)
}

/// Rows whose promises are kept at a time, so many numbers of each.
fn batch_rows(asks: Asks, len: usize) -> usize {
    (MAX_PROMISES / (asks.n * len).max(1)).max(1)
}

/// Numbers that are kept of the promises to rows of a sequence, some of which choose.
fn promised(settings: &ContextMemory, asks: Asks, rows: &SequenceRows) -> usize {
    let choosers = rows.choosers(settings);
    let few = few_from(settings, &choosers);
    let kept = |numbers: Range<usize>, len: fn(&ContextMemory, usize) -> usize| {
        if numbers.is_empty() {
            return 0;
        }
        let len = len(settings, settings.chooser_position(numbers.end - 1));
        batch_rows(asks, len).min(numbers.len()) * asks.n * len
    };
    kept(choosers.start..few, padded).max(kept(few..choosers.end, promise_len))
}

/// Queries that choose whose promises are kept at a time; `len`: how many numbers of each, the last of them at a position.
pub(super) fn batches(
    settings: &ContextMemory,
    numbers: Range<usize>,
    asks: Asks,
    len: impl Fn(&ContextMemory, usize) -> usize,
) -> impl Iterator<Item = Range<usize>> {
    let last = |numbers: &Range<usize>| settings.chooser_position(numbers.end - 1);
    let step = if numbers.is_empty() { 1 } else { batch_rows(asks, len(settings, last(&numbers))) };
    let end = numbers.end;
    numbers.step_by(step).map(move |start| start..(start + step).min(end))
}

impl SequenceRows {
    /// Numbers of its queries that choose.
    pub(super) fn choosers(&self, settings: &ContextMemory) -> Range<usize> {
        settings.choosers(self.start..self.start + self.n)
    }
}

/// A choice of a query that chooses.
#[derive(Clone, Copy)]
pub(super) struct ChoiceOf {
    pub(super) sequence: usize,
    /// Where the query stands.
    pub(super) position: usize,
    /// Of its layer's.
    pub(super) choice: usize,
}

impl Exec<'_> {
    /// The place among what rows ask for of a query that chooses.
    pub(super) fn asking_row(
        &self,
        settings: &ContextMemory,
        sequence: usize,
        number: usize,
    ) -> usize {
        let rows = &self.sequences[sequence];
        rows.first_row + number - rows.choosers(settings).start
    }

    /// Where it is kept what a query chose.
    fn choice_place(&self, memory: &MemoryTables, of: ChoiceOf) -> (Shared<'_, u32>, Range<usize>) {
        let ChoiceOf { sequence, position, choice } = of;
        let settings = &memory.settings;
        if let Some(table) = memory.choices {
            let n = settings.n_blocks as usize;
            let block = self.blocks.get(table, sequence, position / BLOCK).words();
            let run = settings.choosers(0..position % BLOCK).end;
            let at = (run * memory.n_choices + choice) * n;
            return (block, at..at + n);
        }
        let n = choice_len(settings, self.sequences);
        let rows = &self.sequences[sequence];
        let row = rows.first_row + position - rows.start;
        let at = (memory.slot * self.tokens.len() + row * memory.n_choices + choice) * n;
        (self.context.chosen, at..at + n)
    }

    /// What a query chose.
    ///
    /// # Safety
    /// Until the section ends, nobody may write it.
    pub(super) unsafe fn chosen(&self, memory: &MemoryTables, of: ChoiceOf) -> &[u32] {
        let (place, at) = self.choice_place(memory, of);
        // SAFETY: the caller's promise.
        unsafe { place.slice(at) }
    }

    /// Where a query's choice goes.
    ///
    /// # Safety
    /// Until the section ends, nobody else may use it.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(super) unsafe fn chosen_mut(&self, memory: &MemoryTables, of: ChoiceOf) -> &mut [u32] {
        let (place, at) = self.choice_place(memory, of);
        // SAFETY: the caller's promise.
        unsafe { place.slice_mut(at) }
    }
}

/// Numbers that a choice of a row takes: the blocks, or where a certificate may want any number of them, a bit for each.
pub(super) fn choice_len(settings: &ContextMemory, sequences: &[SequenceRows]) -> usize {
    if settings.certificate.is_none() {
        return settings.n_blocks as usize;
    }
    let rows = sequences.iter().filter(|s| s.n > 0);
    rows.map(|s| padded(settings, s.start + s.n - 1).div_ceil(32)).max().unwrap_or(0)
}

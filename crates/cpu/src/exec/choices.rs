//! What rows that choose blocks need, and how many choose at a time.

use std::ops::Range;

use kernels::attention::ANCHORS;
use program::ContextMemory;

use super::SequenceRows;
use super::representatives::waves;
use super::supers::{few_from, promise_len};
use crate::cache::{Asks, HeadsCache};
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
        let chooses = |s: &&SequenceRows| s.n > 0 && memory.settings.chooses(s.start + s.n - 1);
        let promised = |rows: &[SequenceRows]| {
            let needs = rows.iter().filter(chooses).map(|s| promised(&memory.settings, asks, s));
            needs.max().unwrap_or(0)
        };
        let promises = match waves(phase, cache, sequences) {
            None => promised(sequences),
            Some(waves) => waves.iter().map(|wave| promised(wave)).max().unwrap_or(0),
        };
        // who chooses leaves blocks unread: there are more than are chosen
        let is_chosen = usize::from(sequences.iter().any(|s| chooses(&s)));
        let chosen = is_chosen * memory.n_choices * choice_len(&memory.settings, sequences);
        let looks =
            |s: &SequenceRows| chooses(&s) && memory.settings.looks_at_few(s.start + s.n - 1);
        let is_looked = usize::from(sequences.iter().any(looks));
        let looked = is_looked * memory.n_choices * memory.settings.most_looked_at();
        let sums = is_chosen * usize::from(memory.settings.certificate.is_some()) * n_heads;
        ContextNeeds {
            far: 4 * far * rows * n_heads * cache.head.key_dim,
            asked: 4 * rows * asks.n * asks.width,
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
    /// `[ask][row][width]`.
    pub(crate) asked: Shared<'a, f32>,
    /// `[ask][row of the batch][blocks]`.
    pub(crate) promises: Shared<'a, f32>,
    /// `[row][choice][super-blocks]`.
    pub(crate) looked: Shared<'a, u32>,
    /// `[row][choice][choice_len]`.
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
    let few = few_from(settings, rows, 0);
    let kept = |n: usize, len: usize| batch_rows(asks, len).min(n) * asks.n * len;
    let all = if few > 0 { kept(few, padded(settings, rows.start + few - 1)) } else { 0 };
    let last = rows.start + rows.n - 1;
    all.max(if few < rows.n { kept(rows.n - few, promise_len(settings, last)) } else { 0 })
}

/// Tokens whose promises are kept at a time; `len`: how many numbers of each of some tokens.
pub(super) fn batches(
    tokens: Range<usize>,
    asks: Asks,
    len: impl Fn(&Range<usize>) -> usize,
) -> impl Iterator<Item = Range<usize>> {
    let step = if tokens.is_empty() { 1 } else { batch_rows(asks, len(&tokens)) };
    let end = tokens.end;
    tokens.step_by(step).map(move |start| start..(start + step).min(end))
}

/// Numbers that a choice of a row takes: the blocks, or where a certificate may want any number of them, a bit for each.
pub(super) fn choice_len(settings: &ContextMemory, sequences: &[SequenceRows]) -> usize {
    if settings.certificate.is_none() {
        return settings.n_blocks as usize;
    }
    let rows = sequences.iter().filter(|s| s.n > 0);
    rows.map(|s| padded(settings, s.start + s.n - 1).div_ceil(32)).max().unwrap_or(0)
}

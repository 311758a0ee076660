//! Attention over cached blocks.
//!
//! A block is attended alone and yields [`Partials`]: per query row the greatest score `m`, `sum = Σ exp(s - m)` and
//! `out = Σ exp(s - m) v`. [`MERGE`] folds partials; a caller that folds them in ascending order of blocks gets the
//! same bits however blocks, heads and rows were spread over threads, and however rows were grouped.
//!
//! Order within a block: a score is summed over `d` ascending from 0 with fused multiply-adds; `sum` in 16 lanes
//! (lane = position mod 16), each ascending, then halves added; `out` over positions ascending. Quantized elements
//! enter as `code * scale`, which f32 holds exactly. What a row may not see is never multiplied into it, and tiles that
//! no row of a group sees are not read.

mod dots;
mod generic;
mod layout;
mod masses;
mod naive;
mod product;
mod promise;
mod scores;
mod sums;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use dots::{DOTS, DotsFn};
pub use layout::{BLOCK, ElemType, HeadShape, TILE};
pub(crate) use layout::{GROUP, code, group_scale, halves};
pub use masses::{MASSES, MassesFn};
pub(crate) use product::{ByDepth, ByRow, Elem, Order, Product, Single, tile};
pub use promise::{ANCHORS, Anchors, PROMISE, PromiseFn};
pub use scores::{SCORES, ScoresFn, scores_scratch};
pub use sums::{SCORE_SUMS, ScoreSum, ScoreSumsFn, score_floats, score_of, weight_at_most};

use std::ops::Range;

use crate::lanes::Portable;
use crate::{Isa, Kernel, Level, Slot};

/// One key-value head of one cached block.
#[derive(Clone, Copy, Debug)]
pub struct HeadBlock<'a> {
    /// The head's shape.
    pub shape: HeadShape,
    /// Its region of keys, [`HeadShape::key_bytes`] long.
    pub keys: &'a [u8],
    /// Its region of values, [`HeadShape::value_bytes`] long.
    pub values: &'a [u8],
}

/// Query rows that attend to the same key-value head: all query heads of its group, all tokens.
#[derive(Clone, Copy, Debug)]
pub struct QueryRows<'a> {
    /// `[n_rows, key_dim]`: rotated, and scaled by the factor on the scores.
    pub q: &'a [f32],
    /// `[n_rows]`: which of the block's positions each row sees.
    ///
    /// Rows that see alike should be neighbours.
    pub seen: &'a [Seen],
    /// A bound `c` on scores: `c * tanh(s / c)`.
    pub softcap: Option<f32>,
    /// `[n_rows]`: added to scores, after the softcap; empty for nothing.
    pub alibi: &'a [Alibi],
}

impl<'a> QueryRows<'a> {
    /// Rows whose scores are `q.k` and nothing else.
    pub fn plain(q: &'a [f32], seen: &'a [Seen]) -> QueryRows<'a> {
        QueryRows { q, seen, softcap: None, alibi: &[] }
    }

    /// Panics if they do not fit the keys of `block`.
    fn check(&self, block: &HeadBlock<'_>) {
        let (shape, n) = (block.shape, self.seen.len());
        assert!(shape.key_dim > 0, "a head has width");
        assert_eq!(block.keys.len(), shape.key_bytes(), "region of keys");
        assert_eq!(self.q.len(), n * shape.key_dim, "queries");
        let ends = self.seen.iter().map(|seen| seen.to as usize);
        assert!(ends.max().unwrap_or(0) <= BLOCK, "a row sees at most a block");
        assert!(self.alibi.is_empty() || self.alibi.len() == n, "rows of ALiBi");
    }
}

/// Positions `from..to` of a block, or [`Seen::NOTHING`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    from: u32,
    to: u32,
}

impl Seen {
    /// No position.
    pub const NOTHING: Seen = Seen { from: 0, to: 0 };

    /// The first `n` positions.
    pub fn first(n: usize) -> Seen {
        Seen { from: 0, to: n as u32 }
    }

    /// Those of `positions` that block number `block` of a cache holds.
    pub fn within(positions: &Range<usize>, block: usize) -> Seen {
        let first = block * BLOCK;
        let inside = |position: usize| position.saturating_sub(first).min(BLOCK);
        Seen::new(inside(positions.start), inside(positions.end))
    }

    /// Positions `from..to`.
    pub fn new(from: usize, to: usize) -> Seen {
        if from < to { Seen { from: from as u32, to: to as u32 } } else { Seen::NOTHING }
    }

    /// As indices.
    pub fn range(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// What ALiBi takes from the score of position `j` of a block: `slope * |offset + j|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alibi {
    /// Of the row's query head.
    pub slope: f32,
    /// The block's first position less the row's.
    pub offset: f32,
}

/// What rows have gathered so far, from one block or from several: softmax not yet divided by its sum.
#[derive(Debug)]
pub struct Partials<'a> {
    /// `[n_rows]`: greatest score; minus infinity for a row that saw nothing.
    pub max: &'a mut [f32],
    /// `[n_rows]`: sum of `exp(score - max)`; 0 for a row that saw nothing.
    pub sum: &'a mut [f32],
    /// `[n_rows, value_stride]`: sum of `exp(score - max) * value`.
    pub out: &'a mut [f32],
}

impl<'a> Partials<'a> {
    /// Floats that [`Partials::new`] takes for `n_rows` rows.
    pub fn floats(n_rows: usize, shape: &HeadShape) -> usize {
        n_rows * (2 + shape.value_stride())
    }

    /// Partials in `memory`, as they are there: call [`clear`](Self::clear) for a fresh state.
    ///
    /// # Panics
    /// If `memory` is not [`Partials::floats`] long.
    pub fn new(memory: &'a mut [f32], n_rows: usize, shape: &HeadShape) -> Partials<'a> {
        assert_eq!(memory.len(), Self::floats(n_rows, shape), "memory of {n_rows} partials");
        let (out, memory) = memory.split_at_mut(n_rows * shape.value_stride());
        let (max, sum) = memory.split_at_mut(n_rows);
        Partials { max, sum, out }
    }

    /// Rows that have seen nothing.
    pub fn clear(&mut self) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.out.fill(0.0);
    }

    /// Rows that have seen one score each, `max`, and no value: attention's sinks.
    pub fn start(&mut self, max: impl IntoIterator<Item = f32>) {
        self.clear();
        for ((max, sum), start) in self.max.iter_mut().zip(self.sum.iter_mut()).zip(max) {
            (*max, *sum) = (start, 1.0);
        }
    }

    /// Attention's output of `row`: `out / sum`, zeros if the row saw nothing. `result` is `[value_dim]`.
    ///
    /// # Panics
    /// If there is no such row or `result` is longer than a row.
    pub fn finish(&self, row: usize, result: &mut [f32]) {
        let stride = self.out.len() / self.sum.len();
        let inverse = if self.sum[row] == 0.0 { 0.0 } else { 1.0 / self.sum[row] };
        for (result, out) in result.iter_mut().zip(&self.out[row * stride..(row + 1) * stride]) {
            *result = out * inverse;
        }
    }
}

/// Signature of [`ATTEND`].
pub type AttendFn = unsafe fn(&HeadBlock<'_>, &QueryRows<'_>, &mut Partials<'_>, &mut [f32]);

/// Rows attend to one block; the partials are overwritten.
pub static ATTEND: Slot<AttendFn> = Slot {
    op: "attend",
    naive: Kernel { name: "attend/naive", isa: Isa::NONE, level: Level::Naive, run: naive::attend },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::ATTEND,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`ATTEND`] for any instruction set.
const PORTABLE: Kernel<AttendFn> = Kernel {
    name: "attend/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |block, rows, out, scratch| generic::attend(Portable, block, rows, out, scratch),
};

/// Signature of [`MERGE`]; the number is the value stride.
pub type MergeFn = unsafe fn(&mut Partials<'_>, &Partials<'_>, usize);

/// Folds a later block's partials into a state.
pub static MERGE: Slot<MergeFn> = Slot {
    op: "merge",
    naive: Kernel { name: "merge/naive", isa: Isa::NONE, level: Level::Naive, run: naive::merge },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::MERGE,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

/// Floats of scratch [`ATTEND`] needs for `n_rows` rows.
pub fn scratch_floats(n_rows: usize, shape: &HeadShape) -> usize {
    n_rows * BLOCK + CHUNK.max(TILE * shape.key_dim).max(TILE * shape.value_stride())
}

/// Floats of keys or values that are dequantized at a time, if more than a tile: they stay in the first-level cache.
const CHUNK: usize = 4096;

impl Kernel<AttendFn> {
    /// Attend to one block. `scratch` has at least [`scratch_floats`].
    ///
    /// # Panics
    /// If lengths do not fit each other or a row sees more than a block.
    pub fn call(
        &self,
        block: &HeadBlock<'_>,
        rows: &QueryRows<'_>,
        out: &mut Partials<'_>,
        scratch: &mut [f32],
    ) {
        let (shape, n) = (block.shape, rows.seen.len());
        rows.check(block);
        assert!(shape.value_dim > 0, "a head has width");
        assert_eq!(block.values.len(), shape.value_bytes(), "region of values");
        assert_eq!((out.max.len(), out.sum.len()), (n, n), "partials");
        assert_eq!(out.out.len(), n * shape.value_stride(), "partial outputs");
        assert!(scratch.len() >= scratch_floats(n, &shape), "scratch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(block, rows, out, scratch) }
    }
}

impl Kernel<MergeFn> {
    /// Fold `block`, which is later, into `state`.
    ///
    /// # Panics
    /// If they differ in rows or width.
    pub fn call(&self, state: &mut Partials<'_>, block: &Partials<'_>) {
        let n = state.max.len();
        assert_eq!(
            (state.sum.len(), block.max.len(), block.sum.len()),
            (n, n, n),
            "rows of partials"
        );
        assert_eq!(state.out.len(), block.out.len(), "outputs of partials");
        let stride = state.out.len().checked_div(n).unwrap_or(0);
        assert_eq!(state.out.len(), n * stride, "outputs of partials in whole rows");
        if stride == 0 {
            return;
        }
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(state, block, stride) }
    }
}

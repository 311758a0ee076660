//! What scores come to without values: the part of a query's attention that a block has, or can have at most.

use super::layout::{BLOCK, HeadShape, TILE};
use super::{CHUNK, HeadBlock, QueryRows, generic, naive};
use crate::lanes::Portable;
use crate::math::{EXP_MAX, exp, greater, tanh};
use crate::{Isa, Kernel, Level, Slot};

/// The sum of `exp(score)` over scores, as `sum * exp(max)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreSum {
    /// The greatest of them; minus infinity if there is none.
    pub max: f32,
    /// Sum of `exp(score - max)`; 0 if there is none.
    pub sum: f32,
}

impl ScoreSum {
    /// Of no score.
    pub const NOTHING: ScoreSum = ScoreSum { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Of one score.
    pub fn of(score: f32) -> ScoreSum {
        ScoreSum { max: score, sum: 1.0 }
    }

    /// With later scores: what [`MERGE`](super::MERGE) makes of a state's.
    #[must_use]
    pub fn plus(self, later: ScoreSum) -> ScoreSum {
        if later.sum == 0.0 {
            return self;
        }
        if self.sum == 0.0 {
            return later;
        }
        let max = greater(later.max, self.max);
        let (keep, take) = (exp(self.max - max), exp(later.max - max));
        ScoreSum { max, sum: later.sum.mul_add(take, self.sum * keep) }
    }
}

/// `exp(score - reference)`, infinite where that is beyond what kernels' exponentials reach: never too little.
pub fn weight_at_most(score: f32, reference: f32) -> f32 {
    let x = score - reference;
    if x > EXP_MAX { f32::INFINITY } else { exp(x) }
}

/// What becomes of the product of a query and a key: bounded by `softcap`, then less `slope * distance` of ALiBi. It grows
/// with the product.
pub fn score_of(product: f32, softcap: Option<f32>, alibi: Option<[f32; 2]>) -> f32 {
    let bounded = softcap.map_or(product, |cap| cap * tanh(product * (1.0 / cap)));
    alibi.map_or(bounded, |[slope, distance]| slope.mul_add(0.0 - distance, bounded))
}

/// Signature of [`SCORE_SUMS`].
pub type ScoreSumsFn = unsafe fn(&HeadBlock<'_>, &QueryRows<'_>, &mut [ScoreSum], &mut [f32]);

/// What the scores of rows against one block come to: the `max` and `sum` that [`ATTEND`](super::ATTEND) has, to the bit,
/// without reading values.
pub static SCORE_SUMS: Slot<ScoreSumsFn> = Slot {
    op: "score_sums",
    naive: Kernel {
        name: "score_sums/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::score_sums,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::SCORE_SUMS,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`SCORE_SUMS`] for any instruction set.
pub(super) const PORTABLE: Kernel<ScoreSumsFn> = Kernel {
    name: "score_sums/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |block, rows, out, scratch| generic::score_sums(Portable, block, rows, out, scratch),
};

/// Floats of scratch that [`SCORE_SUMS`] needs for `n_rows` rows.
pub fn score_floats(n_rows: usize, shape: &HeadShape) -> usize {
    n_rows * BLOCK + CHUNK.max(TILE * shape.key_dim)
}

impl Kernel<ScoreSumsFn> {
    /// One block, whose values are not looked at; `out` is overwritten. `scratch` has at least [`score_floats`].
    ///
    /// # Panics
    /// If lengths do not fit each other or a row sees more than a block.
    pub fn call(
        &self,
        block: &HeadBlock<'_>,
        rows: &QueryRows<'_>,
        out: &mut [ScoreSum],
        scratch: &mut [f32],
    ) {
        rows.check(block);
        let n = rows.seen.len();
        assert_eq!(out.len(), n, "sums of rows");
        assert!(scratch.len() >= score_floats(n, &block.shape), "scratch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(block, rows, out, scratch) }
    }
}

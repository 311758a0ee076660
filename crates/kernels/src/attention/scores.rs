//! The scores themselves: of queries that choose what others attend to.

use super::layout::{BLOCK, HeadShape, TILE};
use super::{CHUNK, HeadBlock, QueryRows, generic, naive};
use crate::lanes::Portable;
use crate::{Isa, Kernel, Level, Slot};

/// Signature of [`SCORES`].
pub type ScoresFn = unsafe fn(&HeadBlock<'_>, &QueryRows<'_>, &mut [f32], &mut [f32]);

/// The scores of rows against one block, `[n_rows, BLOCK]`: those that [`ATTEND`](super::ATTEND) makes weights of, to the
/// bit, of the positions that a row sees. Those that it does not see hold anything.
pub static SCORES: Slot<ScoresFn> = Slot {
    op: "scores",
    naive: Kernel { name: "scores/naive", isa: Isa::NONE, level: Level::Naive, run: naive::scores },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::SCORES,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`SCORES`] for any instruction set.
pub(super) const PORTABLE: Kernel<ScoresFn> = Kernel {
    name: "scores/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |block, rows, out, scratch| generic::scores(Portable, block, rows, out, scratch),
};

/// Floats of scratch that [`SCORES`] needs.
pub fn scores_scratch(shape: &HeadShape) -> usize {
    CHUNK.max(TILE * shape.key_dim)
}

impl Kernel<ScoresFn> {
    /// One block, whose values are not looked at; `out` is overwritten. `scratch` has at least [`scores_scratch`].
    ///
    /// # Panics
    /// If lengths do not fit each other or a row sees more than a block.
    pub fn call(
        &self,
        block: &HeadBlock<'_>,
        rows: &QueryRows<'_>,
        out: &mut [f32],
        scratch: &mut [f32],
    ) {
        rows.check(block);
        assert_eq!(out.len(), rows.seen.len() * BLOCK, "scores of rows");
        assert!(scratch.len() >= scores_scratch(&block.shape), "scratch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(block, rows, out, scratch) }
    }
}

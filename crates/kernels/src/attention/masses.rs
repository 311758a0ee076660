//! What attention each cached position gets: sums of probabilities over queries, row after row.

use super::layout::BLOCK;
use super::sums::{ScoreSum, score_floats};
use super::{HeadBlock, QueryRows, generic, naive};
use crate::lanes::Portable;
use crate::{Isa, Kernel, Level, Slot};

/// Signature of [`MASSES`].
pub type MassesFn =
    unsafe fn(&HeadBlock<'_>, &QueryRows<'_>, &[ScoreSum], &mut [f32; BLOCK], &mut [f32]);

/// Adds the probabilities that rows give to the positions of a block: `exp(score - max) * (1 / sum)` for each row in turn,
/// `max` and `sum` being what all of the row's scores come to. Values are not read.
pub static MASSES: Slot<MassesFn> = Slot {
    op: "masses",
    naive: Kernel { name: "masses/naive", isa: Isa::NONE, level: Level::Naive, run: naive::masses },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::MASSES,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`MASSES`] for any instruction set.
pub(super) const PORTABLE: Kernel<MassesFn> = Kernel {
    name: "masses/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |block, rows, sums, masses, scratch| {
        generic::masses(Portable, block, rows, sums, masses, scratch);
    },
};

impl Kernel<MassesFn> {
    /// Of one block, whose values are not looked at. Positions that a row does not see get nothing of it. `sums` has what
    /// each row's scores come to; `masses` are not negative; `scratch` has at least [`score_floats`].
    ///
    /// # Panics
    /// If lengths do not fit each other or a row sees more than a block.
    pub fn call(
        &self,
        block: &HeadBlock<'_>,
        rows: &QueryRows<'_>,
        sums: &[ScoreSum],
        masses: &mut [f32; BLOCK],
        scratch: &mut [f32],
    ) {
        rows.check(block);
        let n = rows.seen.len();
        assert_eq!(sums.len(), n, "sums of rows");
        assert!(scratch.len() >= score_floats(n, &block.shape), "scratch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(block, rows, sums, masses, scratch) }
    }
}

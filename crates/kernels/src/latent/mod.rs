//! Latent attention over cached rows `[c | k_pe]` that all heads share.
//!
//! Queries come absorbed: `[q_abs | q_pe]` for each query row (a head of a token). A query row is a lane, so scores,
//! maxima and sums need nothing across lanes, and one load of a cached row serves all heads:
//!
//! ```text
//! wide[p]          = f32 of cached row p                                   once for all query rows
//! scores[p][row]   = Σ q_abs[row][i] c[p][i], then Σ q_pe[row][j] k_pe[p][j]   positions in register groups
//! max, weights, sum                                                       lane by lane, positions ascending
//! out[row]         = out[row] * exp(old max - max) + Σ weights[p][row] c[p]    rows in register groups
//! ```
//!
//! A call takes at most [`LATENT_TILE`] positions and goes on from the state it is given. A caller that cuts positions
//! at multiples of [`LATENT_TILE`] within spans of fixed places, and folds the spans in ascending order with
//! [`MERGE`](crate::attention::MERGE), gets the same bits however rows and spans were spread over threads.
//!
//! Order: every sum ascends with fused multiply-adds; weights are added to `sum` one by one, by position. What a row may
//! not see is never multiplied into it.

mod generic;
mod layout;
mod naive;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use layout::LatentShape;

use crate::attention::Partials;
use crate::lanes::Portable;
use crate::math::LANES;
use crate::{Isa, Kernel, Level, Slot};

/// Most positions of a call; divides [`BLOCK`](crate::attention::BLOCK).
pub const LATENT_TILE: usize = 64;

/// Neighbouring cached rows.
#[derive(Clone, Copy, Debug)]
pub struct LatentRows<'a> {
    /// How each row lies.
    pub shape: LatentShape,
    /// Whole rows, at most [`LATENT_TILE`].
    pub bytes: &'a [u8],
}

/// Absorbed queries.
#[derive(Clone, Copy, Debug)]
pub struct LatentQueries<'a> {
    /// `[rank + rope_dim][lanes]`: rotated, and scaled by the factor on the scores. Lanes without a query hold anything.
    pub q: &'a [f32],
    /// Query rows rounded up to 16.
    pub lanes: usize,
    /// `[n_rows]`: how many of the positions, from the first on, each query row sees.
    ///
    /// Rows that see alike should be neighbours.
    pub visible: &'a [u32],
}

/// Signature of [`LATENT_ATTEND`].
pub type LatentAttendFn =
    unsafe fn(&LatentRows<'_>, &LatentQueries<'_>, &mut Partials<'_>, &mut [f32]);

/// Query rows attend to a few more positions.
pub static LATENT_ATTEND: Slot<LatentAttendFn> = Slot {
    op: "latent_attend",
    naive: Kernel {
        name: "latent_attend/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::attend,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::LATENT_ATTEND,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`LATENT_ATTEND`] for any instruction set.
const PORTABLE: Kernel<LatentAttendFn> = Kernel {
    name: "latent_attend/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |rows, queries, state, scratch| generic::attend(Portable, rows, queries, state, scratch),
};

/// Floats of scratch [`LATENT_ATTEND`] needs for `lanes` lanes.
pub fn latent_scratch_floats(lanes: usize, shape: &LatentShape) -> usize {
    LATENT_TILE * (shape.wide() + lanes) + lanes
}

impl Kernel<LatentAttendFn> {
    /// Attend to `rows`, which follow what `state` has seen; `state` has a row per query row, of
    /// [`LatentShape::head`]'s width. `scratch` has at least [`latent_scratch_floats`].
    ///
    /// # Panics
    /// If lengths do not fit each other, there are more than [`LATENT_TILE`] rows or a query row sees more than those.
    pub fn call(
        &self,
        rows: &LatentRows<'_>,
        queries: &LatentQueries<'_>,
        state: &mut Partials<'_>,
        scratch: &mut [f32],
    ) {
        let (shape, n_rows, lanes) = (rows.shape, queries.visible.len(), queries.lanes);
        assert!(shape.rank > 0 && shape.rope_dim > 0, "a row has width");
        let n = rows.bytes.len() / shape.row_bytes();
        assert_eq!(rows.bytes.len(), n * shape.row_bytes(), "whole cached rows");
        assert!(n <= LATENT_TILE, "{n} cached rows");
        assert!(
            lanes.is_multiple_of(LANES) && n_rows <= lanes,
            "{n_rows} query rows in {lanes} lanes"
        );
        assert_eq!(queries.q.len(), shape.width() * lanes, "queries");
        assert!(
            queries.visible.iter().all(|seen| *seen as usize <= n),
            "a row sees at most what is there"
        );
        assert_eq!((state.max.len(), state.sum.len()), (n_rows, n_rows), "state");
        assert_eq!(state.out.len(), n_rows * shape.stride(), "outputs of the state");
        assert!(scratch.len() >= latent_scratch_floats(lanes, &shape), "scratch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(rows, queries, state, scratch) }
    }
}

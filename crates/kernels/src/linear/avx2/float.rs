//! Plain weights: two registers of 16 rows per column of weights.

use super::super::float::Plain;
use super::super::generic::lines::{self, TileFn};
use super::super::{Arranging, Job};
use crate::lanes::Avx2;

/// Columns of the widest tile.
const WIDTH: usize = 6;

/// How [`plain`] wants its rows.
pub(in super::super) const fn arranging() -> Arranging {
    lines::arranging::<WIDTH>()
}

/// Multiplies panels of `P`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    let tiles = |n| match n {
        3 => tile::<P, 3> as TileFn,
        4 => tile::<P, 4>,
        5 => tile::<P, 5>,
        _ => tile::<P, 6>,
    };
    let simd = Avx2::new();
    // SAFETY: this function's features are those of the tiles.
    unsafe { lines::multiply::<Avx2, P, WIDTH>(simd, job, tiles) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<P: Plain, const N: usize>(panel: &[u8], x: &[f32], c: &mut [f32]) {
    lines::tile::<Avx2, P, N>(Avx2::new(), panel, x, c);
}

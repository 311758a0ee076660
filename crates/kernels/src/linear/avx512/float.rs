//! Plain weights: one register of 16 rows per column of weights.

use super::super::float::Plain;
use super::super::generic::lines::{self, TileFn};
use super::super::{Arranging, Job};
use crate::lanes::Avx512;

/// Columns of the widest tile.
const WIDTH: usize = 12;

/// How [`plain`] wants its rows.
pub(in super::super) const fn arranging() -> Arranging {
    lines::arranging::<WIDTH>()
}

/// Multiplies panels of `P`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in super::super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    let tiles = |n| match n {
        3 => tile::<P, 3> as TileFn,
        4 => tile::<P, 4>,
        5 => tile::<P, 5>,
        6 => tile::<P, 6>,
        7 => tile::<P, 7>,
        8 => tile::<P, 8>,
        9 => tile::<P, 9>,
        10 => tile::<P, 10>,
        11 => tile::<P, 11>,
        _ => tile::<P, 12>,
    };
    let simd = Avx512::new();
    // SAFETY: this function's features are those of the tiles.
    unsafe { lines::multiply::<Avx512, P, WIDTH>(simd, job, tiles) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<P: Plain, const N: usize>(panel: &[u8], x: &[f32], c: &mut [f32]) {
    lines::tile::<Avx512, P, N>(Avx512::new(), panel, x, c);
}

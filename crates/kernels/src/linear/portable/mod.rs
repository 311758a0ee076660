//! Panel products over operations on arrays: for CPUs without kernels of their own, and to show on any that the generic
//! code is right.

mod quads;

use super::float::Plain;
use super::format::PanelFormat;
use super::generic::quads::{Tiles, panels};
use super::generic::{gemm, lines};
use super::{Arranging, Job};
use crate::lanes::Portable;

/// Up to this many activation rows, panels can be read once.
const STREAM_ROWS: usize = 4;

/// How [`quantized`] wants its rows.
pub(super) const fn arranging<F: PanelFormat>() -> Arranging {
    gemm::arranging::<Tiles<Portable, F>>(STREAM_ROWS)
}

/// Multiplies panels of `F`.
pub(super) fn quantized<F: PanelFormat>(job: &mut Job<'_, '_>) {
    if !job.arranged.is_empty() {
        // SAFETY: this recipe needs no features.
        return unsafe { gemm::run::<Tiles<Portable, F>>(job) };
    }
    match job.x.n() {
        1 => panels::<Portable, F, 1>(Portable, job),
        2 => panels::<Portable, F, 2>(Portable, job),
        _ => panels::<Portable, F, STREAM_ROWS>(Portable, job),
    }
}

/// Columns of the widest tile over [`Portable`] lanes.
const WIDTH: usize = 4;

/// How [`plain`] wants its rows.
pub(super) const fn plain_arranging() -> Arranging {
    lines::arranging::<WIDTH>()
}

/// Multiplies panels of `P`.
pub(super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    fn any<P: Plain, const N: usize>(panel: &[u8], x: &[f32], c: &mut [f32]) {
        lines::tile::<Portable, P, N>(Portable, panel, x, c);
    }
    let tiles = |n| match n {
        3 => any::<P, 3> as lines::TileFn,
        _ => any::<P, 4>,
    };
    // SAFETY: these tiles need no features.
    unsafe { lines::multiply::<Portable, P, WIDTH>(Portable, job, tiles) }
}

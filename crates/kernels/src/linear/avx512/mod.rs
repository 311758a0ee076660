//! AVX-512 with VNNI: `vpdpbusd` multiplies unsigned codes with signed activation codes and adds four products into each
//! row's int32.

mod float;
mod vnni;

pub(super) use float::{arranging as plain_arranging, plain};

use super::format::PanelFormat;
use super::generic::quads::Tiles;
use super::{Arranging, Job};
use vnni::Vnni;

/// Up to this many activation rows, panels can be read once and unpacked in registers.
const STREAM_ROWS: usize = 8;

/// How [`quantized`] wants its rows.
pub(super) const fn arranging<F: PanelFormat>() -> Arranging {
    super::generic::gemm::arranging::<Tiles<Vnni, F>>(STREAM_ROWS)
}

/// Multiplies panels of `F`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn quantized<F: PanelFormat>(job: &mut Job<'_, '_>) {
    if !job.arranged.is_empty() {
        // SAFETY: this function's features are those of the recipe.
        return unsafe { super::generic::gemm::run::<Tiles<Vnni, F>>(job) };
    }
    match job.x.n() {
        1 => vnni::panels::<F, 1>(job),
        2 => vnni::panels::<F, 2>(job),
        3 => vnni::panels::<F, 3>(job),
        4 => vnni::panels::<F, 4>(job),
        5 | 6 => vnni::panels::<F, 6>(job),
        _ => vnni::panels::<F, STREAM_ROWS>(job),
    }
}

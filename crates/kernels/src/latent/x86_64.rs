//! Latent attention's kernels for x86-64.

use super::{LatentAttendFn, LatentQueries, LatentRows, generic};
use crate::attention::Partials;
use crate::lanes::{Avx2, Avx512};
use crate::{Isa, Kernel, Level};

/// Candidates of [`LATENT_ATTEND`](super::LATENT_ATTEND).
pub(super) const LATENT_ATTEND: &[Kernel<LatentAttendFn>] = &[
    Kernel {
        name: "latent_attend/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: attend_avx512,
    },
    Kernel { name: "latent_attend/avx2", isa: Isa::AVX2, level: Level::Full, run: attend_avx2 },
    super::PORTABLE,
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn attend_avx512(
    rows: &LatentRows<'_>,
    queries: &LatentQueries<'_>,
    state: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    generic::attend(Avx512::new(), rows, queries, state, scratch);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn attend_avx2(
    rows: &LatentRows<'_>,
    queries: &LatentQueries<'_>,
    state: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    generic::attend(Avx2::new(), rows, queries, state, scratch);
}

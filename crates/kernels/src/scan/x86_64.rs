//! Recurrences for x86-64.

use super::generic;
use super::{PORTABLE_SCAN, PORTABLE_SELECTIVE, ScanFn, ScanRows, SelectiveFn, SelectiveRows};
use crate::lanes::{Avx2, Avx512};
use crate::{Isa, Kernel, Level};

/// Candidates of [`SCAN`](super::SCAN).
pub(super) const SCAN: &[Kernel<ScanFn>] = &[
    Kernel { name: "scan/avx512", isa: Isa::AVX512, level: Level::Full, run: scan_avx512 },
    Kernel { name: "scan/avx2", isa: Isa::AVX2, level: Level::Full, run: scan_avx2 },
    PORTABLE_SCAN,
];

/// Candidates of [`SELECTIVE_SCAN`](super::SELECTIVE_SCAN).
pub(super) const SELECTIVE_SCAN: &[Kernel<SelectiveFn>] = &[
    Kernel {
        name: "selective_scan/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: selective_avx512,
    },
    Kernel { name: "selective_scan/avx2", isa: Isa::AVX2, level: Level::Full, run: selective_avx2 },
    PORTABLE_SELECTIVE,
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn scan_avx512(rows: &ScanRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
    generic::scan(Avx512::new(), rows, state, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scan_avx2(rows: &ScanRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
    generic::scan(Avx2::new(), rows, state, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn selective_avx512(rows: &SelectiveRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
    generic::selective(Avx512::new(), rows, state, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn selective_avx2(rows: &SelectiveRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
    generic::selective(Avx2::new(), rows, state, out);
}

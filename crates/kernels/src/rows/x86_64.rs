//! Row ops for x86-64. Where only `naive` is named, the compiler vectorizes its plain loops under the instruction set.

use super::{AddWeightedFn, BinaryFn, Pairs, PeaksFn, RmsNormFn, RotateFn, fast, naive};
use crate::lanes::{Avx2, Avx512};
use crate::{Isa, Kernel, Level};

/// Candidates of [`RMS_NORM`](super::RMS_NORM).
pub(super) const RMS_NORM: &[Kernel<RmsNormFn>] = &[
    Kernel { name: "rms_norm/avx512", isa: Isa::AVX512, level: Level::Full, run: rms_norm_avx512 },
    Kernel { name: "rms_norm/avx2", isa: Isa::AVX2, level: Level::Full, run: rms_norm_avx2 },
];

/// Candidates of [`GATED_SILU`](super::GATED_SILU).
pub(super) const GATED_SILU: &[Kernel<BinaryFn>] = &[
    Kernel {
        name: "gated_silu/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: gated_silu_avx512,
    },
    Kernel { name: "gated_silu/avx2", isa: Isa::AVX2, level: Level::Full, run: gated_silu_avx2 },
];

/// Candidates of [`GATED_SIGMOID`](super::GATED_SIGMOID).
pub(super) const GATED_SIGMOID: &[Kernel<BinaryFn>] = &[
    Kernel {
        name: "gated_sigmoid/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: gated_sigmoid_avx512,
    },
    Kernel {
        name: "gated_sigmoid/avx2",
        isa: Isa::AVX2,
        level: Level::Full,
        run: gated_sigmoid_avx2,
    },
];

/// Candidates of [`ADD`](super::ADD).
pub(super) const ADD: &[Kernel<BinaryFn>] = &[
    Kernel { name: "add/avx512", isa: Isa::AVX512, level: Level::Full, run: add_avx512 },
    Kernel { name: "add/avx2", isa: Isa::AVX2, level: Level::Full, run: add_avx2 },
];

/// Candidates of [`ADD_WEIGHTED`](super::ADD_WEIGHTED).
pub(super) const ADD_WEIGHTED: &[Kernel<AddWeightedFn>] = &[
    Kernel {
        name: "add_weighted/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: add_weighted_avx512,
    },
    Kernel {
        name: "add_weighted/avx2",
        isa: Isa::AVX2,
        level: Level::Full,
        run: add_weighted_avx2,
    },
];

/// Candidates of [`ROTATE`](super::ROTATE).
pub(super) const ROTATE: &[Kernel<RotateFn>] = &[
    Kernel { name: "rotate/avx512", isa: Isa::AVX512, level: Level::Full, run: rotate_avx512 },
    Kernel { name: "rotate/avx2", isa: Isa::AVX2, level: Level::Full, run: rotate_avx2 },
];

/// Candidates of [`PEAKS`](super::PEAKS).
pub(super) const PEAKS: &[Kernel<PeaksFn>] = &[
    Kernel { name: "peaks/avx512", isa: Isa::AVX512, level: Level::Full, run: peaks_avx512 },
    Kernel { name: "peaks/avx2", isa: Isa::AVX2, level: Level::Full, run: peaks_avx2 },
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn rms_norm_avx512(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    fast::rms_norm(Avx512::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm_avx2(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    fast::rms_norm(Avx2::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn gated_silu_avx512(gate: &[f32], up: &[f32], out: &mut [f32]) {
    fast::gated_silu(Avx512::new(), gate, up, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn gated_silu_avx2(gate: &[f32], up: &[f32], out: &mut [f32]) {
    fast::gated_silu(Avx2::new(), gate, up, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn gated_sigmoid_avx512(gate: &[f32], up: &[f32], out: &mut [f32]) {
    fast::gated_sigmoid(Avx512::new(), gate, up, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn gated_sigmoid_avx2(gate: &[f32], up: &[f32], out: &mut [f32]) {
    fast::gated_sigmoid(Avx2::new(), gate, up, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_avx512(a: &[f32], b: &[f32], out: &mut [f32]) {
    naive::add(a, b, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_avx2(a: &[f32], b: &[f32], out: &mut [f32]) {
    naive::add(a, b, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_weighted_avx512(x: &[f32], rows: &[u32], weights: &[f32], sums: &mut [f32]) {
    naive::add_weighted(x, rows, weights, sums);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_weighted_avx2(x: &[f32], rows: &[u32], weights: &[f32], sums: &mut [f32]) {
    naive::add_weighted(x, rows, weights, sums);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn rotate_avx512(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
    naive::rotate(x, cos, sin, pairs);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rotate_avx2(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
    naive::rotate(x, cos, sin, pairs);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn peaks_avx512(row: &[f32], out: &mut [f32]) {
    fast::peaks(Avx512::new(), row, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn peaks_avx2(row: &[f32], out: &mut [f32]) {
    fast::peaks(Avx2::new(), row, out);
}

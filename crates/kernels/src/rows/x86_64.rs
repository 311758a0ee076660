//! Row ops for x86-64. Where only `naive` is named, the compiler vectorizes its plain loops under the instruction set.

use super::{
    ActFn, AddWeightedFn, BinaryFn, Gated, GatedFn, NormFn, Pairs, PeaksFn, RotateFn, Unary, act,
    generic, naive,
};
use crate::lanes::{Avx2, Avx512};
use crate::{Isa, Kernel, Level};

/// Candidates of [`RMS_NORM`](super::RMS_NORM).
pub(super) const RMS_NORM: &[Kernel<NormFn>] = &[
    Kernel { name: "rms_norm/avx512", isa: Isa::AVX512, level: Level::Full, run: rms_norm_avx512 },
    Kernel { name: "rms_norm/avx2", isa: Isa::AVX2, level: Level::Full, run: rms_norm_avx2 },
];

/// Candidates of [`LAYER_NORM`](super::LAYER_NORM).
pub(super) const LAYER_NORM: &[Kernel<NormFn>] = &[
    Kernel {
        name: "layer_norm/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: layer_norm_avx512,
    },
    Kernel { name: "layer_norm/avx2", isa: Isa::AVX2, level: Level::Full, run: layer_norm_avx2 },
];

/// Candidates of [`ACT`](super::ACT).
pub(super) const ACT: &[Kernel<ActFn>] = &[
    Kernel { name: "act/avx512", isa: Isa::AVX512, level: Level::Full, run: act_avx512 },
    Kernel { name: "act/avx2", isa: Isa::AVX2, level: Level::Full, run: act_avx2 },
    act::PORTABLE_ACT,
];

/// Candidates of [`GATED`](super::GATED).
pub(super) const GATED: &[Kernel<GatedFn>] = &[
    Kernel { name: "gated/avx512", isa: Isa::AVX512, level: Level::Full, run: gated_avx512 },
    Kernel { name: "gated/avx2", isa: Isa::AVX2, level: Level::Full, run: gated_avx2 },
    act::PORTABLE_GATED,
];

/// Candidates of [`ADD`](super::ADD).
pub(super) const ADD: &[Kernel<BinaryFn>] = &[
    Kernel { name: "add/avx512", isa: Isa::AVX512, level: Level::Full, run: add_avx512 },
    Kernel { name: "add/avx2", isa: Isa::AVX2, level: Level::Full, run: add_avx2 },
];

/// Candidates of [`ADD_PRODUCT`](super::ADD_PRODUCT).
pub(super) const ADD_PRODUCT: &[Kernel<BinaryFn>] = &[
    Kernel {
        name: "add_product/avx512",
        isa: Isa::AVX512,
        level: Level::Full,
        run: add_product_avx512,
    },
    Kernel { name: "add_product/avx2", isa: Isa::AVX2, level: Level::Full, run: add_product_avx2 },
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
    generic::rms_norm(Avx512::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm_avx2(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    generic::rms_norm(Avx2::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn layer_norm_avx512(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    generic::layer_norm(Avx512::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn layer_norm_avx2(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    generic::layer_norm(Avx2::new(), x, weight, eps, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn act_avx512(act: Unary, x: &mut [f32]) {
    act::generic::act_all(Avx512::new(), act, x);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn act_avx2(act: Unary, x: &mut [f32]) {
    act::generic::act_all(Avx2::new(), act, x);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn gated_avx512(act: Gated, gate: &[f32], up: &[f32], out: &mut [f32]) {
    act::generic::gated_all(Avx512::new(), act, gate, up, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn gated_avx2(act: Gated, gate: &[f32], up: &[f32], out: &mut [f32]) {
    act::generic::gated_all(Avx2::new(), act, gate, up, out);
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
fn add_product_avx512(a: &[f32], b: &[f32], out: &mut [f32]) {
    naive::add_product(a, b, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_product_avx2(a: &[f32], b: &[f32], out: &mut [f32]) {
    naive::add_product(a, b, out);
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
    generic::peaks(Avx512::new(), row, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn peaks_avx2(row: &[f32], out: &mut [f32]) {
    generic::peaks(Avx2::new(), row, out);
}

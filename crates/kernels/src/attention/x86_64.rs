//! Attention's kernels for x86-64.

use super::{
    Anchors, AttendFn, BLOCK, DotsFn, HeadBlock, MassesFn, MergeFn, Partials, PromiseFn, QueryRows,
    ScoreSum, ScoreSumsFn, ScoresFn, dots, generic, masses, naive, promise, scores, sums,
};
use crate::lanes::{Avx2, Avx512};
use crate::{Isa, Kernel, Level};

/// Candidates of [`ATTEND`](super::ATTEND).
pub(super) const ATTEND: &[Kernel<AttendFn>] = &[
    Kernel { name: "attend/avx512", isa: Isa::AVX512, level: Level::Full, run: attend_avx512 },
    Kernel { name: "attend/avx2", isa: Isa::AVX2, level: Level::Full, run: attend_avx2 },
    super::PORTABLE,
];

/// Candidates of [`SCORE_SUMS`](super::SCORE_SUMS).
pub(super) const SCORE_SUMS: &[Kernel<ScoreSumsFn>] = &[
    Kernel { name: "score_sums/avx512", isa: Isa::AVX512, level: Level::Full, run: sums_avx512 },
    Kernel { name: "score_sums/avx2", isa: Isa::AVX2, level: Level::Full, run: sums_avx2 },
    sums::PORTABLE,
];

/// Candidates of [`SCORES`](super::SCORES).
pub(super) const SCORES: &[Kernel<ScoresFn>] = &[
    Kernel { name: "scores/avx512", isa: Isa::AVX512, level: Level::Full, run: scores_avx512 },
    Kernel { name: "scores/avx2", isa: Isa::AVX2, level: Level::Full, run: scores_avx2 },
    scores::PORTABLE,
];

/// Candidates of [`MASSES`](super::MASSES).
pub(super) const MASSES: &[Kernel<MassesFn>] = &[
    Kernel { name: "masses/avx512", isa: Isa::AVX512, level: Level::Full, run: masses_avx512 },
    Kernel { name: "masses/avx2", isa: Isa::AVX2, level: Level::Full, run: masses_avx2 },
    masses::PORTABLE,
];

/// Candidates of [`MERGE`](super::MERGE).
pub(super) const MERGE: &[Kernel<MergeFn>] = &[
    Kernel { name: "merge/avx512", isa: Isa::AVX512, level: Level::Full, run: merge_avx512 },
    Kernel { name: "merge/avx2", isa: Isa::AVX2, level: Level::Full, run: merge_avx2 },
];

/// Candidates of [`PROMISE`](super::PROMISE).
pub(super) const PROMISE: &[Kernel<PromiseFn>] = &[
    Kernel { name: "promise/avx512", isa: Isa::AVX512, level: Level::Full, run: promise_avx512 },
    Kernel { name: "promise/avx2", isa: Isa::AVX2, level: Level::Full, run: promise_avx2 },
    promise::PORTABLE,
];

/// Candidates of [`DOTS`](super::DOTS).
pub(super) const DOTS: &[Kernel<DotsFn>] = &[
    Kernel { name: "dots/avx512", isa: Isa::AVX512, level: Level::Full, run: dots_avx512 },
    Kernel { name: "dots/avx2", isa: Isa::AVX2, level: Level::Full, run: dots_avx2 },
    dots::PORTABLE,
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn attend_avx512(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    generic::attend(Avx512::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn attend_avx2(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    generic::attend(Avx2::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn sums_avx512(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [ScoreSum],
    scratch: &mut [f32],
) {
    generic::score_sums(Avx512::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn sums_avx2(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [ScoreSum],
    scratch: &mut [f32],
) {
    generic::score_sums(Avx2::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn scores_avx512(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [f32],
    scratch: &mut [f32],
) {
    generic::scores(Avx512::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scores_avx2(block: &HeadBlock<'_>, rows: &QueryRows<'_>, out: &mut [f32], scratch: &mut [f32]) {
    generic::scores(Avx2::new(), block, rows, out, scratch);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn masses_avx512(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    sums: &[ScoreSum],
    masses: &mut [f32; BLOCK],
    scratch: &mut [f32],
) {
    generic::masses(Avx512::new(), block, rows, sums, masses, scratch);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn masses_avx2(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    sums: &[ScoreSum],
    masses: &mut [f32; BLOCK],
    scratch: &mut [f32],
) {
    generic::masses(Avx2::new(), block, rows, sums, masses, scratch);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn merge_avx512(state: &mut Partials<'_>, block: &Partials<'_>, stride: usize) {
    naive::merge(state, block, stride);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn merge_avx2(state: &mut Partials<'_>, block: &Partials<'_>, stride: usize) {
    naive::merge(state, block, stride);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn promise_avx512(queries: &[f32], anchors: &Anchors, promises: &mut Anchors) {
    promise::promise(Avx512::new(), queries, anchors, promises);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn promise_avx2(queries: &[f32], anchors: &Anchors, promises: &mut Anchors) {
    promise::promise(Avx2::new(), queries, anchors, promises);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn dots_avx512(inputs: [&[f32]; 2], products: &mut [f32]) {
    dots::dots(Avx512::new(), inputs, products);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dots_avx2(inputs: [&[f32]; 2], products: &mut [f32]) {
    dots::dots(Avx2::new(), inputs, products);
}

//! AVX2: two registers hold four columns of 16 rows.
//!
//! `vpmaddubsw` multiplies unsigned codes with signed activation codes and adds pairs into int16. Codes below 64 are
//! added in int16 as deep as that fits; 8-bit codes go through int32 at once, their sign moved to the activations.

mod float;
mod gemm;
mod quantize;
mod stream;
mod wide;

use std::arch::x86_64::*;

pub(super) use float::{arranging as plain_arranging, plain};
pub(super) use quantize::quantize_q8;

use super::format::PanelFormat;
use super::{Arranging, Job, PANEL_ROWS};

/// Rows 0 to 8 and 8 to 16.
type Pair = [__m256i; 2];
/// Rows 0 to 8 and 8 to 16.
type PairF32 = [__m256; 2];

/// Up to this many activation rows, panels can be unpacked in registers: four rows at a time.
const STREAM_ROWS: usize = 8;

/// Whether codes are too wide to be added in int16.
const fn is_wide<F: PanelFormat>() -> bool {
    F::MAX > 63
}

/// How [`quantized`] wants its rows.
pub(super) const fn arranging<F: PanelFormat>() -> Arranging {
    if is_wide::<F>() {
        super::generic::gemm::arranging::<wide::Wide<F>>(STREAM_ROWS)
    } else {
        super::generic::gemm::arranging::<gemm::Narrow<F>>(STREAM_ROWS)
    }
}

/// Multiplies panels of `F`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantized<F: PanelFormat>(job: &mut Job<'_, '_>) {
    if job.arranged.is_empty() {
        stream::panels::<F>(job);
    } else if is_wide::<F>() {
        // SAFETY: this function's features are those of the recipe.
        unsafe { super::generic::gemm::run::<wide::Wide<F>>(job) }
    } else {
        // SAFETY: as above.
        unsafe { super::generic::gemm::run::<gemm::Narrow<F>>(job) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 64]) -> Pair {
    let (low, high) = bytes.split_at(32);
    // SAFETY: half of 64 bytes is 32 readable bytes; `loadu` has no alignment rule.
    let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast()) };
    // SAFETY: as above.
    let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast()) };
    [low, high]
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(v: Pair, bytes: &mut [u8; 64]) {
    let (low, high) = bytes.split_at_mut(32);
    // SAFETY: half of 64 bytes is 32 writable bytes; `storeu` has no alignment rule.
    unsafe { _mm256_storeu_si256(low.as_mut_ptr().cast(), v[0]) }
    // SAFETY: as above.
    unsafe { _mm256_storeu_si256(high.as_mut_ptr().cast(), v[1]) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(x: &[f32; PANEL_ROWS]) -> PairF32 {
    load(bytemuck::cast_ref(x)).map(|v| _mm256_castsi256_ps(v))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_f32(v: PairF32, x: &mut [f32; PANEL_ROWS]) {
    store(v.map(|v| _mm256_castps_si256(v)), bytemuck::cast_mut(x));
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_half(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference covers 16 readable bytes; `loadu` has no alignment rule.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 16 halves as f32.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_f16(bytes: &[u8; 32]) -> PairF32 {
    let [low, high] =
        [0, 16].map(|at| load_half(bytes[at..].first_chunk().expect("16 of 32 bytes")));
    [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
}

/// The 16 rows' values that begin at byte `at` of a header.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves(header: &[u8], at: usize) -> PairF32 {
    load_f16(header[at..].first_chunk().expect("a header holds 16 halves from here"))
}

/// The 16 rows' scales.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn scales<F: PanelFormat>(header: &[u8]) -> PairF32 {
    if !F::BF16 {
        return halves(header, 0);
    }
    [0, 16].map(|at| {
        let half = load_half(header[at..].first_chunk().expect("a header begins with 16 scales"));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)))
    })
}

/// The 16 rows' small integers that begin at byte `at` of a header.
#[inline]
#[target_feature(enable = "avx2")]
fn small(header: &[u8], at: usize) -> __m128i {
    load_half(header[at..].first_chunk().expect("a header holds 16 integers from here"))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Pair, b: Pair) -> Pair {
    [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])]
}

/// `acc + scale * d * i`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn scaled(scale: PairF32, d: __m256, i: Pair, acc: PairF32) -> PairF32 {
    [
        _mm256_fmadd_ps(_mm256_mul_ps(scale[0], d), _mm256_cvtepi32_ps(i[0]), acc[0]),
        _mm256_fmadd_ps(_mm256_mul_ps(scale[1], d), _mm256_cvtepi32_ps(i[1]), acc[1]),
    ]
}

/// Two small integers per row as pairs of int16.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(a: __m128i, b: __m128i) -> Pair {
    [_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b))]
}

/// Four activation codes in every row's lane.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(a: &[i8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_le_bytes(a.map(i8::cast_unsigned)))
}

/// Keeps the order of additions. Without it LLVM turns the sums of a block into a tree, so that all weights of the
/// block are live at once and spill.
#[inline]
#[target_feature(enable = "avx2")]
fn keep(mut v: __m256i) -> __m256i {
    // SAFETY: there is no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags))
    }
    v
}

/// Logical shift of the 16-bit lanes by a constant: left if it is negative.
#[inline]
#[target_feature(enable = "avx2")]
fn shift(v: __m256i, right: i32) -> __m256i {
    if right >= 0 {
        _mm256_srl_epi16(v, _mm_cvtsi32_si128(right))
    } else {
        _mm256_sll_epi16(v, _mm_cvtsi32_si128(-right))
    }
}

/// The fields of `bits` bits of step `J` of a plane, at bit `to` of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn plane<const J: usize>(plane: &[u8], bits: usize, to: usize) -> Pair {
    let steps = 8 / bits;
    let line = load(plane[J / steps * 64..].first_chunk().expect("a plane has this line"));
    if bits == 8 {
        return line;
    }
    let mask = _mm256_set1_epi8((((1 << bits) - 1) << to) as i8);
    line.map(|v| _mm256_and_si256(shift(v, (bits * (J % steps)) as i32 - to as i32), mask))
}

/// The codes of step `J` of a group: unsigned, or the signed integers of wide codes.
#[inline]
#[target_feature(enable = "avx2")]
fn step<F: PanelFormat, const J: usize>(group: &[u8]) -> Pair {
    let (low, high) = group.split_at(64 * F::LOW);
    let mut codes = plane::<J>(low, F::LOW, 0);
    if F::HIGH > 0 {
        let high = plane::<J>(high, F::HIGH, F::LOW);
        codes = [_mm256_or_si256(codes[0], high[0]), _mm256_or_si256(codes[1], high[1])];
    }
    let zero = if is_wide::<F>() { F::ZERO as u8 } else { 0 };
    if let Some(lut) = F::LUT {
        let lut = lut.map(|code| code.wrapping_sub(zero));
        let lut = _mm256_broadcastsi128_si256(load_half(&lut));
        codes.map(|v| _mm256_shuffle_epi8(lut, v))
    } else if zero != 0 {
        codes.map(|v| _mm256_sub_epi8(v, _mm256_set1_epi8(zero.cast_signed())))
    } else {
        codes
    }
}

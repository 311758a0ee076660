//! AVX-512 with VNNI: one register holds four columns of 16 rows.
//!
//! `vpdpbusd` multiplies unsigned codes with signed activation codes and adds four products into each row's int32.

mod float;
mod gemm;
mod stream;

use std::arch::x86_64::*;

pub(super) use float::{arranging as plain_arranging, plain};

use super::format::Format;
use super::{Arranging, Job, PANEL_ROWS};

/// Up to this many activation rows, panels can be read once and unpacked in registers.
const STREAM_ROWS: usize = 8;

/// How [`quantized`] wants its rows.
pub(super) const fn arranging<F: Format>() -> Arranging {
    super::gemm::arranging::<gemm::Vnni<F>>(STREAM_ROWS)
}

/// Multiplies panels of `F`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn quantized<F: Format>(job: &mut Job<'_, '_>) {
    if !job.arranged.is_empty() {
        // SAFETY: this function's features are those of the recipe.
        return unsafe { super::gemm::run::<gemm::Vnni<F>>(job) };
    }
    match job.x.n() {
        1 => stream::panels::<F, 1>(job),
        2 => stream::panels::<F, 2>(job),
        3 => stream::panels::<F, 3>(job),
        4 => stream::panels::<F, 4>(job),
        5 | 6 => stream::panels::<F, 6>(job),
        _ => stream::panels::<F, STREAM_ROWS>(job),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers 64 readable bytes; `loadu` has no alignment rule.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(v: __m512i, bytes: &mut [u8; 64]) {
    // SAFETY: the reference covers 64 writable bytes; `storeu` has no alignment rule.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_f32(x: &[f32; PANEL_ROWS]) -> __m512 {
    // SAFETY: the reference covers 64 readable bytes; `loadu` has no alignment rule.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_f32(v: __m512, x: &mut [f32; PANEL_ROWS]) {
    // SAFETY: the reference covers 64 writable bytes; `storeu` has no alignment rule.
    unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v) }
}

/// Two small integers of each row as a pair of int16.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(a: __m512i, b: __m512i) -> __m512i {
    _mm512_or_si512(_mm512_and_si512(a, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32::<16>(b))
}

/// 16 halves as f32.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,f16c")]
fn load_f16(bytes: &[u8; 32]) -> __m512 {
    // SAFETY: the reference covers 32 readable bytes; `loadu` has no alignment rule.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}

/// 16 small integers as i32.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn load_i8(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: the reference covers 16 readable bytes; `loadu` has no alignment rule.
    _mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// The 16 rows' values that begin at byte `at` of a header.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,f16c")]
fn halves(header: &[u8], at: usize) -> __m512 {
    load_f16(header[at..].first_chunk().expect("a header holds 16 halves from here"))
}

/// The 16 rows' small integers that begin at byte `at` of a header.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn small(header: &[u8], at: usize) -> __m512i {
    load_i8(header[at..].first_chunk().expect("a header holds 16 integers from here"))
}

/// Four activation codes in every row's lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(a: &[i8; 4]) -> __m512i {
    _mm512_set1_epi32(i32::from_le_bytes(a.map(i8::cast_unsigned)))
}

/// Logical shift of the 16-bit lanes by a constant: left if it is negative.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn shift(v: __m512i, right: i32) -> __m512i {
    if right >= 0 {
        _mm512_srl_epi16(v, _mm_cvtsi32_si128(right))
    } else {
        _mm512_sll_epi16(v, _mm_cvtsi32_si128(-right))
    }
}

/// The fields of `bits` bits of step `J` of a plane, at bit `to` of each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn plane<const J: usize>(plane: &[u8], bits: usize, to: usize) -> __m512i {
    let steps = 8 / bits;
    let line = load(plane[J / steps * 64..].first_chunk().expect("a plane has this line"));
    if bits == 8 {
        return line;
    }
    let field = shift(line, (bits * (J % steps)) as i32 - to as i32);
    _mm512_and_si512(field, _mm512_set1_epi8((((1 << bits) - 1) << to) as i8))
}

/// The unsigned codes of step `J` of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn step<F: Format, const J: usize>(group: &[u8]) -> __m512i {
    let (low, high) = group.split_at(64 * F::LOW);
    let mut codes = plane::<J>(low, F::LOW, 0);
    if F::HIGH > 0 {
        codes = _mm512_or_si512(codes, plane::<J>(high, F::HIGH, F::LOW));
    }
    if let Some(lut) = F::LUT {
        let lut = _mm512_broadcast_i32x4(_mm_setr_epi32(
            i32::from_le_bytes([lut[0], lut[1], lut[2], lut[3]]),
            i32::from_le_bytes([lut[4], lut[5], lut[6], lut[7]]),
            i32::from_le_bytes([lut[8], lut[9], lut[10], lut[11]]),
            i32::from_le_bytes([lut[12], lut[13], lut[14], lut[15]]),
        ));
        codes = _mm512_shuffle_epi8(lut, codes);
    }
    codes
}

/// The unsigned codes of all 8 steps of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn steps<F: Format>(group: &[u8]) -> [__m512i; 8] {
    [
        step::<F, 0>(group),
        step::<F, 1>(group),
        step::<F, 2>(group),
        step::<F, 3>(group),
        step::<F, 4>(group),
        step::<F, 5>(group),
        step::<F, 6>(group),
        step::<F, 7>(group),
    ]
}

//! f32 rows to 8-bit blocks.

use std::arch::x86_64::*;

use super::super::quantize::scale;

#[inline]
#[target_feature(enable = "avx2")]
fn load8(x: &[f32; 8]) -> __m256 {
    // SAFETY: the reference covers 32 readable bytes; `loadu` has no alignment rule.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(v: __m256i, codes: &mut [i8; 32]) {
    // SAFETY: the reference covers 32 writable bytes; `storeu` has no alignment rule.
    unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), v) }
}

/// 32 numbers in registers.
#[inline]
#[target_feature(enable = "avx2")]
fn load32(x: &[f32; 32]) -> [__m256; 4] {
    let x = x.as_chunks::<8>().0;
    [load8(&x[0]), load8(&x[1]), load8(&x[2]), load8(&x[3])]
}

/// See [`QUANTIZE_Q8`](super::super::QUANTIZE_Q8).
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn quantize_q8(
    x: &[f32],
    block: usize,
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i32],
) {
    let blocks = x.chunks_exact(block).zip(codes.chunks_exact_mut(block));
    let scales = scales.chunks_exact_mut(block / 32).zip(sums.chunks_exact_mut(block / 16));
    for ((x, codes), (scales, sums)) in blocks.zip(scales) {
        let x = x.as_chunks::<32>().0;
        // Magnitudes compare as integers, NaN above infinity.
        let mut most = _mm256_setzero_si256();
        for x in x {
            for v in load32(x) {
                let v = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fff_ffff));
                most = _mm256_max_epi32(most, v);
            }
        }
        let m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256::<1>(most));
        let m = _mm_max_epi32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
        let m = _mm_max_epi32(m, _mm_shuffle_epi32::<0b10_11_00_01>(m));
        let (d, inverse) = scale(f32::from_bits(_mm_cvtsi128_si32(m).cast_unsigned()));
        scales.fill(d);
        let (inverse, least) = (_mm256_set1_ps(inverse), _mm256_set1_ps(-127.0));
        let parts = x.iter().zip(codes.as_chunks_mut::<32>().0);
        for ((x, codes), sums) in parts.zip(sums.as_chunks_mut::<2>().0) {
            // `max` yields its second operand for NaN.
            let q = load32(x)
                .map(|x| _mm256_cvtps_epi32(_mm256_max_ps(_mm256_mul_ps(x, inverse), least)));
            let v =
                _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
            let v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            store(v, codes);
            let s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), v);
            let s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
            let s = _mm256_add_epi32(s, _mm256_shuffle_epi32::<0b01_00_11_10>(s));
            let s = _mm256_add_epi32(s, _mm256_shuffle_epi32::<0b10_11_00_01>(s));
            *sums = [_mm256_extract_epi32::<0>(s), _mm256_extract_epi32::<4>(s)];
        }
    }
}

//! 16 lanes in two AVX registers.

use std::arch::x86_64::*;

use super::Simd;
use crate::attention::{Elem, Order, Product, tile};
use crate::math::LANES;

/// Proof that the code runs under AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Only functions compiled for AVX2 can call this.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn new() -> Avx2 {
        Avx2(())
    }
}

/// Lanes 0 to 8 and 8 to 16.
type Pair = [__m256; 2];

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run<E: Elem, A: Order, const R: usize, const C: usize>(
    product: &mut Product<'_>,
    column: usize,
) -> usize {
    let simd = Avx2::new();
    // SAFETY: the caller guarantees the lengths.
    unsafe { tile::<Avx2, E, A, R, C>(simd, product, column) }
}

/// The two halves of 32 bytes.
#[inline(always)]
fn halves<const N: usize>(x: &[u8; N]) -> (&[u8], &[u8]) {
    x.split_at(N / 2)
}

impl Simd for Avx2 {
    type V = Pair;

    const ROWS: usize = 6;

    #[inline(always)]
    unsafe fn columns<E: Elem, A: Order>(
        self,
        product: &mut Product<'_>,
        rows: usize,
        column: usize,
        left: usize,
    ) -> usize {
        let run = match (rows, left) {
            (1, 4..) => run::<E, A, 1, 4>,
            (1, _) => run::<E, A, 1, 1>,
            (2, 2..) => run::<E, A, 2, 2>,
            (2, _) => run::<E, A, 2, 1>,
            (3, _) => run::<E, A, 3, 1>,
            (4, _) => run::<E, A, 4, 1>,
            (5, _) => run::<E, A, 5, 1>,
            _ => run::<E, A, 6, 1>,
        } as unsafe fn(&mut Product<'_>, usize) -> usize;
        // SAFETY: the token proves AVX2; the caller guarantees the lengths.
        unsafe { run(product, column) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        // SAFETY: the token proves AVX2.
        let v = unsafe { _mm256_set1_ps(x) };
        [v, v]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Pair {
        self.load_bytes(bytemuck::cast_ref(x))
    }

    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Pair {
        let (low, high) = halves(x);
        // SAFETY: the token proves AVX2; half of 64 bytes is 32 readable bytes; `loadu` has no alignment rule.
        let low = unsafe { _mm256_loadu_ps(low.as_ptr().cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm256_loadu_ps(high.as_ptr().cast()) };
        [low, high]
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> Pair {
        let (low, high) = halves(x);
        // SAFETY: SSE2 is part of x86-64; half of 32 bytes is 16 readable bytes; `loadu` has no alignment rule.
        let low = unsafe { _mm_loadu_si128(low.as_ptr().cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm_loadu_si128(high.as_ptr().cast()) };
        // SAFETY: the token proves F16C.
        let low = unsafe { _mm256_cvtph_ps(low) };
        // SAFETY: the token proves F16C.
        let high = unsafe { _mm256_cvtph_ps(high) };
        [low, high]
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u8; 2 * LANES]) -> Pair {
        let (low, high) = halves(x);
        [upper(self, low), upper(self, high)]
    }

    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> Pair {
        let (low, high) = halves(x);
        // SAFETY: SSE2 is part of x86-64; half of 16 bytes is 8 readable bytes; `loadl` has no alignment rule.
        let low = unsafe { _mm_loadl_epi64(low.as_ptr().cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm_loadl_epi64(high.as_ptr().cast()) };
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_cvtepi8_epi32(low) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_cvtepi8_epi32(high) };
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_cvtepi32_ps(low) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_cvtepi32_ps(high) };
        [low, high]
    }

    #[inline(always)]
    fn store(self, x: Pair, out: &mut [f32; LANES]) {
        let (low, high) = out.split_at_mut(LANES / 2);
        // SAFETY: the token proves AVX2; half of 16 floats is 32 writable bytes; `storeu` has no alignment rule.
        unsafe { _mm256_storeu_ps(low.as_mut_ptr(), x[0]) };
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(high.as_mut_ptr(), x[1]) };
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_add_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_add_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_sub_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_sub_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_mul_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_mul_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_div_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_div_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: the token proves FMA.
        let low = unsafe { _mm256_fmadd_ps(a[0], b[0], c[0]) };
        // SAFETY: the token proves FMA.
        let high = unsafe { _mm256_fmadd_ps(a[1], b[1], c[1]) };
        [low, high]
    }

    #[inline(always)]
    fn fnma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: the token proves FMA.
        let low = unsafe { _mm256_fnmadd_ps(a[0], b[0], c[0]) };
        // SAFETY: the token proves FMA.
        let high = unsafe { _mm256_fnmadd_ps(a[1], b[1], c[1]) };
        [low, high]
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_min_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_min_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_max_ps(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_max_ps(a[1], b[1]) };
        [low, high]
    }

    #[inline(always)]
    fn less(self, a: Pair, b: Pair, yes: Pair, no: Pair) -> Pair {
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]) };
        // SAFETY: the token proves AVX2.
        let low = unsafe { _mm256_blendv_ps(no[0], yes[0], low) };
        // SAFETY: the token proves AVX2.
        let high = unsafe { _mm256_blendv_ps(no[1], yes[1], high) };
        [low, high]
    }

    #[inline(always)]
    fn power(self, x: Pair) -> Pair {
        [power(self, x[0]), power(self, x[1])]
    }

    #[inline(always)]
    fn first(self, x: Pair, n: usize, other: Pair) -> Pair {
        const INDEX: [f32; LANES] =
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        self.less(self.load(&INDEX), self.splat(n.min(LANES) as f32), x, other)
    }
}

/// 8 upper halves as f32.
#[inline(always)]
fn upper(_: Avx2, bytes: &[u8]) -> __m256 {
    let bytes: &[u8; 16] = bytes.first_chunk().expect("half of 32 bytes");
    // SAFETY: SSE2 is part of x86-64; the reference covers 16 readable bytes; `loadu` has no alignment rule.
    let upper = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    // SAFETY: the token proves AVX2.
    let wide = unsafe { _mm256_cvtepu16_epi32(upper) };
    // SAFETY: the token proves AVX2.
    let bits = unsafe { _mm256_slli_epi32::<16>(wide) };
    // SAFETY: the token proves AVX2.
    unsafe { _mm256_castsi256_ps(bits) }
}

/// [`Simd::power`] of 8 lanes.
#[inline(always)]
fn power(_: Avx2, x: __m256) -> __m256 {
    // SAFETY: the token proves AVX2.
    let bits = unsafe { _mm256_castps_si256(x) };
    // SAFETY: the token proves AVX2.
    let exponent = unsafe { _mm256_slli_epi32::<23>(bits) };
    // SAFETY: the token proves AVX2.
    let one = unsafe { _mm256_set1_epi32(0x3f80_0000) };
    // SAFETY: the token proves AVX2.
    let sum = unsafe { _mm256_add_epi32(exponent, one) };
    // SAFETY: the token proves AVX2.
    unsafe { _mm256_castsi256_ps(sum) }
}

//! 16 lanes in one AVX-512 register.

use std::arch::x86_64::*;

use super::Simd;
use crate::attention::{Elem, Order, Product, tile};
use crate::math::LANES;

/// Proof that the code runs under AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Only functions compiled for AVX-512 can call this.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    pub(crate) fn new() -> Avx512 {
        Avx512(())
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run<E: Elem, A: Order, const R: usize, const C: usize>(
    product: &mut Product<'_>,
    column: usize,
) -> usize {
    let simd = Avx512::new();
    // SAFETY: the caller guarantees the lengths.
    unsafe { tile::<Avx512, E, A, R, C>(simd, product, column) }
}

impl Simd for Avx512 {
    type V = __m512;

    const ROWS: usize = 8;

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
            (2, 4..) => run::<E, A, 2, 4>,
            (2, _) => run::<E, A, 2, 1>,
            (3, 4..) => run::<E, A, 3, 4>,
            (3, _) => run::<E, A, 3, 1>,
            (4, 4..) => run::<E, A, 4, 4>,
            (4, _) => run::<E, A, 4, 1>,
            (5, 4..) => run::<E, A, 5, 4>,
            (5, 2..) => run::<E, A, 5, 2>,
            (5, _) => run::<E, A, 5, 1>,
            (6, 4..) => run::<E, A, 6, 4>,
            (6, 2..) => run::<E, A, 6, 2>,
            (6, _) => run::<E, A, 6, 1>,
            (7, 4..) => run::<E, A, 7, 4>,
            (7, 2..) => run::<E, A, 7, 2>,
            (7, _) => run::<E, A, 7, 1>,
            (8, 2..) => run::<E, A, 8, 2>,
            _ => run::<E, A, 8, 1>,
        } as unsafe fn(&mut Product<'_>, usize) -> usize;
        // SAFETY: the token proves AVX-512; the caller guarantees the lengths.
        unsafe { run(product, column) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers 64 readable bytes; `loadu` has no alignment rule.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers 64 readable bytes; `loadu` has no alignment rule.
        unsafe { _mm512_loadu_ps(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> __m512 {
        // SAFETY: the token proves AVX; the reference covers 32 readable bytes; `loadu` has no alignment rule.
        let halves = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_cvtph_ps(halves) }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u8; 2 * LANES]) -> __m512 {
        // SAFETY: the token proves AVX; the reference covers 32 readable bytes; `loadu` has no alignment rule.
        let upper = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
        // SAFETY: the token proves AVX-512.
        let wide = unsafe { _mm512_cvtepu16_epi32(upper) };
        // SAFETY: the token proves AVX-512.
        let bits = unsafe { _mm512_slli_epi32::<16>(wide) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_castsi512_ps(bits) }
    }

    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> __m512 {
        // SAFETY: SSE2 is part of x86-64; the reference covers 16 readable bytes; `loadu` has no alignment rule.
        let bytes = unsafe { _mm_loadu_si128(x.as_ptr().cast()) };
        // SAFETY: the token proves AVX-512.
        let wide = unsafe { _mm512_cvtepi8_epi32(bytes) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_cvtepi32_ps(wide) }
    }

    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32; LANES]) {
        // SAFETY: the token proves AVX-512; the reference covers 64 writable bytes; `storeu` has no alignment rule.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        let mask = unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mask_blend_ps(mask, no, yes) }
    }

    #[inline(always)]
    fn power(self, x: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        let bits = unsafe { _mm512_castps_si512(x) };
        // SAFETY: the token proves AVX-512.
        let exponent = unsafe { _mm512_slli_epi32::<23>(bits) };
        // SAFETY: the token proves AVX-512.
        let one = unsafe { _mm512_set1_epi32(0x3f80_0000) };
        // SAFETY: the token proves AVX-512.
        let sum = unsafe { _mm512_add_epi32(exponent, one) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_castsi512_ps(sum) }
    }

    #[inline(always)]
    fn first(self, x: __m512, n: usize, other: __m512) -> __m512 {
        let mask = ((1u32 << n.min(LANES)) - 1) as u16;
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mask_blend_ps(mask, other, x) }
    }
}

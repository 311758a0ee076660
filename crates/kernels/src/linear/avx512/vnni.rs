//! Quantized weights: one register holds four columns of 16 rows.

use std::arch::x86_64::*;

use super::super::Job;
use super::super::format::PanelFormat;
use super::super::generic::gemm::TileFn;
use super::super::generic::quads::{self, Quads, Unpacked};
use crate::lanes::Avx512;

/// Proof that the code runs under AVX-512 with VNNI.
#[derive(Clone, Copy)]
pub(super) struct Vnni(Avx512);

impl Vnni {
    /// Only functions compiled for AVX-512 with VNNI can call this.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn new() -> Vnni {
        Vnni(Avx512::new())
    }
}

/// Multiplies panels with `n <= N` activation rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn panels<F: PanelFormat, const N: usize>(job: &mut Job<'_, '_>) {
    quads::panels::<Vnni, F, N>(Vnni::new(), job);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<F: PanelFormat, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    quads::tile::<Vnni, F, N>(Vnni::new(), unpacked, activations, c);
}

impl Quads for Vnni {
    type I = __m512i;
    type Lanes = Avx512;

    const WIDTH: usize = 12;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack<F: PanelFormat>(blocks: &[u8], out: &mut Unpacked) {
        quads::unpack::<Vnni, F>(Vnni::new(), blocks, out);
    }

    fn tile<F: PanelFormat>(n: usize) -> TileFn<Unpacked> {
        match n {
            1 => tile::<F, 1>,
            2 => tile::<F, 2>,
            3 => tile::<F, 3>,
            4 => tile::<F, 4>,
            5 => tile::<F, 5>,
            6 => tile::<F, 6>,
            7 => tile::<F, 7>,
            8 => tile::<F, 8>,
            9 => tile::<F, 9>,
            10 => tile::<F, 10>,
            11 => tile::<F, 11>,
            _ => tile::<F, 12>,
        }
    }

    #[inline(always)]
    fn lanes(self) -> Avx512 {
        self.0
    }

    #[inline(always)]
    fn load(self, x: &[u8; 64]) -> __m512i {
        // SAFETY: the token proves AVX-512; the reference covers 64 readable bytes; `loadu` has no alignment rule.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, x: __m512i, out: &mut [u8; 64]) {
        // SAFETY: the token proves AVX-512; the reference covers 64 writable bytes; `storeu` has no alignment rule.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) }
    }

    #[inline(always)]
    fn widen(self, x: &[u8; 16]) -> __m512i {
        // SAFETY: SSE2 is part of x86-64; the reference covers 16 readable bytes; `loadu` has no alignment rule.
        let bytes = unsafe { _mm_loadu_si128(x.as_ptr().cast()) };
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_cvtepi8_epi32(bytes) }
    }

    #[inline(always)]
    fn splat(self, x: i32) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn shift(self, x: __m512i, right: i32) -> __m512i {
        // SAFETY: SSE2 is part of x86-64.
        let by = unsafe { _mm_cvtsi32_si128(right.abs()) };
        if right >= 0 {
            // SAFETY: the token proves AVX-512 BW.
            unsafe { _mm512_srl_epi16(x, by) }
        } else {
            // SAFETY: the token proves AVX-512 BW.
            unsafe { _mm512_sll_epi16(x, by) }
        }
    }

    #[inline(always)]
    fn lookup(self, table: [u8; 16], index: __m512i) -> __m512i {
        let words: [i32; 4] = bytemuck::cast(table);
        // SAFETY: SSE2 is part of x86-64.
        let table = unsafe { _mm_setr_epi32(words[0], words[1], words[2], words[3]) };
        // SAFETY: the token proves AVX-512.
        let table = unsafe { _mm512_broadcast_i32x4(table) };
        // SAFETY: the token proves AVX-512 BW.
        unsafe { _mm512_shuffle_epi8(table, index) }
    }

    #[inline(always)]
    fn pair(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512.
        let high = unsafe { _mm512_slli_epi32::<16>(b) };
        self.or(self.and(a, self.splat(0xffff)), high)
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mullo_epi32(a, b) }
    }

    #[inline(always)]
    fn dot_bytes(self, sum: __m512i, bytes: __m512i, a: i32) -> __m512i {
        // SAFETY: the token proves AVX-512 VNNI.
        unsafe { _mm512_dpbusd_epi32(sum, bytes, self.splat(a)) }
    }

    #[inline(always)]
    fn dot_pairs(self, sum: __m512i, pairs: __m512i, a: i32) -> __m512i {
        // SAFETY: the token proves AVX-512 VNNI.
        unsafe { _mm512_dpwssd_epi32(sum, pairs, self.splat(a)) }
    }

    #[inline(always)]
    fn float(self, x: __m512i) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_cvtepi32_ps(x) }
    }
}

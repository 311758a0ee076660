//! Probes for x86-64.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::{RateFn, ReadFn};
use crate::{Isa, Kernel, Level};

pub(super) const READ: &[Kernel<ReadFn>] = &[
    Kernel { name: "probe_read/avx512", isa: Isa::AVX512, level: Level::Full, run: read_avx512 },
    Kernel { name: "probe_read/avx2", isa: Isa::AVX2, level: Level::Full, run: read_avx2 },
];

pub(super) const FMA: &[Kernel<RateFn>] = &[
    Kernel { name: "probe_fma/avx512", isa: Isa::AVX512, level: Level::Full, run: fma_avx512 },
    Kernel { name: "probe_fma/avx2", isa: Isa::AVX2, level: Level::Full, run: fma_avx2 },
];

pub(super) const INT8: &[Kernel<RateFn>] = &[
    Kernel { name: "probe_int8/avx512", isa: Isa::AVX512, level: Level::Full, run: int8_avx512 },
    Kernel { name: "probe_int8/avx2", isa: Isa::AVX2, level: Level::Full, run: int8_avx2 },
];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn read_avx512(bytes: &[u8], ahead: bool) -> u64 {
    super::read(bytes, ahead)
}

#[target_feature(enable = "avx2")]
fn read_avx2(bytes: &[u8], ahead: bool) -> u64 {
    super::read(bytes, ahead)
}

#[target_feature(enable = "avx512f")]
fn fma_avx512(rounds: usize) -> u64 {
    const CHAINS: usize = 12;
    let (a, b) = (_mm512_set1_ps(black_box(0.999_9)), _mm512_set1_ps(black_box(0.5)));
    let mut sums = [_mm512_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
    (rounds * CHAINS * 16) as u64
}

#[target_feature(enable = "avx2,fma")]
fn fma_avx2(rounds: usize) -> u64 {
    const CHAINS: usize = 12;
    let (a, b) = (_mm256_set1_ps(black_box(0.999_9)), _mm256_set1_ps(black_box(0.5)));
    let mut sums = [_mm256_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
    (rounds * CHAINS * 8) as u64
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn int8_avx512(rounds: usize) -> u64 {
    const CHAINS: usize = 12;
    let (w, a) = (_mm512_set1_epi8(black_box(7)), _mm512_set1_epi8(black_box(3)));
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, w, a);
        }
    }
    black_box(sums);
    (rounds * CHAINS * 64) as u64
}

/// Eight steps in int16, then one widening: how codes of four bits are multiplied.
#[target_feature(enable = "avx2")]
fn int8_avx2(rounds: usize) -> u64 {
    const CHAINS: usize = 4;
    let mut a = _mm256_set1_epi8(black_box(3));
    let weights: [__m256i; 8] = std::array::from_fn(|i| _mm256_set1_epi8(black_box(7 + i as i8)));
    let ones = _mm256_set1_epi16(black_box(1));
    let mut sums = [_mm256_setzero_si256(); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // what is multiplied changes, as far as the compiler can tell: no product serves twice
            a = opaque(a);
            let mut narrow = _mm256_setzero_si256();
            for w in weights {
                narrow = _mm256_add_epi16(narrow, _mm256_maddubs_epi16(w, a));
            }
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(narrow, ones));
        }
    }
    black_box(sums);
    (rounds * CHAINS * 8 * 32) as u64
}

/// The register as it is, but the compiler cannot tell. Not `pure`: such a template with the same input may be run once
/// and hoisted.
#[inline]
#[target_feature(enable = "avx2")]
fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: an empty template touches nothing.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags))
    };
    v
}

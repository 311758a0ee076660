//! Few activation rows: each panel is read once, its codes are unpacked in registers.

use std::arch::x86_64::*;

use super::super::format::{Format, Scales};
use super::super::{AHEAD, Job, PANEL_ROWS, Q8Row, Q8Rows, prefetch};
use super::{broadcast, halves, small, steps, store_f32};

/// Multiplies panels with `n <= N` activation rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn panels<F: Format, const N: usize>(job: &mut Job<'_, '_>) {
    let x = job.q8();
    let panel_bytes = x.cols / F::BLOCK * F::BLOCK_BYTES;
    let tiles = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, tile) in job.panels.chunks_exact(panel_bytes).zip(tiles) {
        let out = one::<F, N>(panel, &x);
        for (acc, out) in out.into_iter().zip(tile.as_chunks_mut().0) {
            store_f32(acc, out);
        }
    }
}

/// One panel. Rows that `x` lacks repeat its last one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn one<F: Format, const N: usize>(panel: &[u8], x: &Q8Rows<'_>) -> [__m512; N] {
    let rows = x.rows::<N>(0);
    let mut acc = [_mm512_setzero_ps(); N];
    for (b, block) in panel.chunks_exact(F::BLOCK_BYTES).enumerate() {
        let (header, groups) = block.split_at(F::SCALES.header());
        let mut total = [_mm512_setzero_si512(); N];
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            // Measured on Zen 4: one row of one plane alone is so fast that the hardware's own prefetch does better. Two
            // planes take longer to unpack (asking ahead gains 6 to 8 % of a step). 8-bit codes (0.73 of a plain read at a
            // distance, 0.95 so) gain from asking for the lines of this block at once.
            if N > 1 || F::HIGH > 0 {
                prefetch::<F>(group, AHEAD);
            } else if F::LOW == 8 {
                prefetch::<F>(group, 0);
            }
            add::<F, N>(&mut total, (header, group), (b * F::GROUPS + g, g), &rows);
        }
        let d = halves(header, 0);
        for ((acc, total), row) in acc.iter_mut().zip(total).zip(&rows) {
            let d = _mm512_mul_ps(d, _mm512_set1_ps(row.scales[b * F::GROUPS]));
            *acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(total), *acc);
        }
        if F::SCALES.min() {
            let min = halves(header, 32);
            for (acc, row) in acc.iter_mut().zip(&rows) {
                let d = _mm512_set1_ps(row.scales[b * F::GROUPS]);
                let j = minima::<F>(header, &row.sums[2 * b * F::GROUPS..][..2 * F::GROUPS]);
                *acc = _mm512_fnmadd_ps(min, _mm512_mul_ps(d, _mm512_cvtepi32_ps(j)), *acc);
            }
        }
    }
    acc
}

/// Adds the products of group `g` of its block, `at` of all, times its factors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add<F: Format, const N: usize>(
    total: &mut [__m512i; N],
    (header, group): (&[u8], &[u8]),
    (at, g): (usize, usize),
    rows: &[Q8Row<'_>; N],
) {
    let codes = steps::<F>(group);
    let factors = Factors::new::<F>(header, g);
    for (total, row) in total.iter_mut().zip(rows) {
        let a = row.codes.as_chunks::<32>().0[at].as_chunks().0;
        let sums = row.sums.as_chunks().0[at];
        let start = |sum: i32| _mm512_set1_epi32(sum.wrapping_mul(-F::ZERO));
        let dot = |mut i: __m512i, steps: std::ops::Range<usize>| {
            for j in steps {
                i = _mm512_dpbusd_epi32(i, codes[j], broadcast(&a[j]));
            }
            i
        };
        let [first, second]: [i32; 2] = sums;
        if F::SCALES.halves() {
            let i = _mm512_mullo_epi32(dot(start(first), 0..4), factors.scale[0]);
            *total = _mm512_add_epi32(*total, i);
            let i = _mm512_mullo_epi32(dot(start(second), 4..8), factors.scale[1]);
            *total = _mm512_add_epi32(*total, i);
        } else if F::SCALES.factors() {
            let i = _mm512_mullo_epi32(dot(start(first + second), 0..8), factors.scale[0]);
            *total = _mm512_add_epi32(*total, i);
        } else {
            *total = dot(_mm512_add_epi32(*total, start(first + second)), 0..8);
        }
    }
}

/// Minima of a block times the sums of an activation row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn minima<F: Format>(header: &[u8], sums: &[i32]) -> __m512i {
    if !F::WHOLE {
        return _mm512_set1_epi32(sums[0] + sums[1]);
    }
    let mut j = _mm512_setzero_si512();
    for (g, sums) in sums.as_chunks::<2>().0.iter().enumerate() {
        let Factors { min, .. } = Factors::new::<F>(header, g);
        if F::SCALES.halves() {
            for (min, sum) in min.into_iter().zip(sums) {
                j = _mm512_add_epi32(j, _mm512_mullo_epi32(min, _mm512_set1_epi32(*sum)));
            }
        } else {
            let sum = _mm512_set1_epi32(sums[0] + sums[1]);
            j = _mm512_add_epi32(j, _mm512_mullo_epi32(min[0], sum));
        }
    }
    j
}

/// The integer scales and minima of 32 columns, of each half if they have their own.
pub(super) struct Factors {
    pub(super) scale: [__m512i; 2],
    pub(super) min: [__m512i; 2],
}

impl Factors {
    /// Of group `g`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(super) fn new<F: Format>(header: &[u8], g: usize) -> Factors {
        let one = [_mm512_set1_epi32(1); 2];
        let at = F::SCALES.small();
        match F::SCALES {
            Scales::Block | Scales::BlockMin | Scales::Super => Factors { scale: one, min: one },
            Scales::Groups => Factors { scale: [small(header, at + 16 * g); 2], min: one },
            Scales::GroupsMin => Factors {
                scale: [small(header, at + 16 * g); 2],
                min: [small(header, at + 128 + 16 * g); 2],
            },
            Scales::Halves => {
                let at = at + 32 * g;
                Factors { scale: [small(header, at), small(header, at + 16)], min: one }
            }
            Scales::HalvesMin => {
                let (a, b) = (small(header, at + 32 * g), small(header, at + 32 * g + 16));
                let low = _mm512_set1_epi32(15);
                Factors {
                    scale: [_mm512_and_si512(a, low), _mm512_and_si512(b, low)],
                    min: [
                        _mm512_and_si512(_mm512_srli_epi32::<4>(a), low),
                        _mm512_and_si512(_mm512_srli_epi32::<4>(b), low),
                    ],
                }
            }
        }
    }
}

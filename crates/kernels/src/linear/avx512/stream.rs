//! Few activation rows: each panel is read once, its codes are unpacked in registers.

use std::arch::x86_64::*;

use super::super::format::{Format, Scales};
use super::super::{AHEAD, Job, PANEL_ROWS, Q8Rows, prefetch};
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
    let rows = x.rows::<N>();
    let mut acc = [_mm512_setzero_ps(); N];
    let mut at = 0;
    for block in panel.chunks_exact(F::BLOCK_BYTES) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let d = halves(header, 0);
        let dmin = if F::SCALES.min() { halves(header, 32) } else { d };
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            // Measured on Zen 4: one row of one plane alone is so fast that the hardware's own prefetch does better. Two
            // planes take longer to unpack (asking ahead gains 6 to 8 % of a step). 8-bit codes (0.73 of a plain read at a
            // distance, 0.95 so) gain from asking for the lines of this block at once.
            if N > 1 || F::HIGH > 0 {
                prefetch::<F>(group, AHEAD);
            } else if F::LOW == 8 {
                prefetch::<F>(group, 0);
            }
            let codes = steps::<F>(group);
            let scales = GroupScales::new::<F>(header, d, dmin, g);
            for (acc, row) in acc.iter_mut().zip(&rows) {
                let a = row.codes.as_chunks::<32>().0[at].as_chunks().0;
                let sums = row.sums.as_chunks().0[at];
                let start = |sum: i32| _mm512_set1_epi32(sum.wrapping_mul(-F::ZERO));
                let dot = |mut i: __m512i, steps: std::ops::Range<usize>| {
                    for j in steps {
                        i = _mm512_dpbusd_epi32(i, codes[j], broadcast(&a[j]));
                    }
                    _mm512_cvtepi32_ps(i)
                };
                let i = if F::SCALES.halves() {
                    let (i0, i1) = (dot(start(sums[0]), 0..4), dot(start(sums[1]), 4..8));
                    _mm512_fmadd_ps(i1, scales.halves[1], _mm512_mul_ps(i0, scales.halves[0]))
                } else {
                    dot(start(sums[0] + sums[1]), 0..8)
                };
                *acc = scales.add::<F>(*acc, i, row.scales[at], sums);
            }
            at += 1;
        }
    }
    acc
}

/// The scales and minima of 32 columns.
pub(super) struct GroupScales {
    pub(super) scale: __m512,
    pub(super) min: __m512,
    pub(super) halves: [__m512; 2],
    pub(super) half_mins: [__m512; 2],
}

impl GroupScales {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(super) fn new<F: Format>(header: &[u8], d: __m512, dmin: __m512, g: usize) -> GroupScales {
        let mut s = GroupScales { scale: d, min: dmin, halves: [d; 2], half_mins: [d; 2] };
        let at = F::SCALES.small();
        match F::SCALES {
            Scales::Block | Scales::BlockMin | Scales::Super => {}
            Scales::Groups | Scales::GroupsMin => {
                s.scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(small(header, at + 16 * g)));
                if F::SCALES.min() {
                    s.min =
                        _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(small(header, at + 128 + 16 * g)));
                }
            }
            Scales::Halves | Scales::HalvesMin => {
                for h in 0..2 {
                    let mut scale = small(header, at + 16 * (2 * g + h));
                    if F::SCALES.min() {
                        let both = _mm512_and_si512(scale, _mm512_set1_epi32(255));
                        s.half_mins[h] = _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(both));
                        scale = _mm512_and_si512(scale, _mm512_set1_epi32(15));
                    }
                    s.halves[h] = _mm512_cvtepi32_ps(scale);
                }
            }
        }
        s
    }

    /// Adds the integers of one group, and its minima.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn add<F: Format>(&self, acc: __m512, i: __m512, d: f32, sums: [i32; 2]) -> __m512 {
        let acc = _mm512_fmadd_ps(_mm512_mul_ps(self.scale, _mm512_set1_ps(d)), i, acc);
        if !F::SCALES.min() {
            return acc;
        }
        let t = if F::SCALES.halves() {
            let (a0, a1) = (_mm512_set1_ps(sums[0] as f32), _mm512_set1_ps(sums[1] as f32));
            let j = _mm512_fmadd_ps(self.half_mins[1], a1, _mm512_mul_ps(self.half_mins[0], a0));
            _mm512_mul_ps(_mm512_set1_ps(d), j)
        } else {
            _mm512_set1_ps(d * (sums[0] + sums[1]) as f32)
        };
        _mm512_fnmadd_ps(self.min, t, acc)
    }
}

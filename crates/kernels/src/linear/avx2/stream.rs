//! Few activation rows: each panel's codes are unpacked in registers.

use std::arch::x86_64::*;

use super::super::format::{Format, Scales};
use super::super::{AHEAD, Job, PANEL_ROWS, Q8Row, prefetch};
use super::{
    Pair, PairF32, broadcast, halves, is_wide, keep, pairs, small, step, store_f32, times,
};

/// Multiplies panels with up to 4 activation rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn panels<F: Format>(job: &mut Job<'_, '_>) {
    let x = job.q8();
    let panel_bytes = x.cols / F::BLOCK * F::BLOCK_BYTES;
    let tiles = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, tile) in job.panels.chunks_exact(panel_bytes).zip(tiles) {
        let tile = tile.as_chunks_mut::<PANEL_ROWS>().0;
        match x.n {
            1 => one::<F, 1>(panel, x.rows(), tile),
            2 => one::<F, 2>(panel, x.rows(), tile),
            _ => one::<F, 4>(panel, x.rows(), tile),
        }
    }
}

/// One panel. Rows that the activations lack repeat the last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one<F: Format, const N: usize>(
    panel: &[u8],
    rows: [Q8Row<'_>; N],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let mut acc = [[_mm256_setzero_ps(); 2]; N];
    let mut at = 0;
    for block in panel.chunks_exact(F::BLOCK_BYTES) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let d = halves(header, 0);
        let dmin = if F::SCALES.min() { halves(header, 32) } else { d };
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            prefetch::<F>(group, AHEAD);
            let scales = GroupScales::new::<F>(header, d, dmin, g);
            // Plain loops, here and below: closures handed to functions without the features would stay calls.
            let mut a: [&[[i8; 4]; 8]; N] = [&[[0; 4]; 8]; N];
            for (a, row) in a.iter_mut().zip(&rows) {
                *a = bytemuck::cast_ref(&row.codes.as_chunks::<32>().0[at]);
            }
            let mut sums = Sums {
                i16: [[_mm256_setzero_si256(); 2]; N],
                i32: [[_mm256_setzero_si256(); 2]; N],
            };
            add::<F, 0, N>(&mut sums, group, &a, &scales);
            add::<F, 1, N>(&mut sums, group, &a, &scales);
            add::<F, 2, N>(&mut sums, group, &a, &scales);
            add::<F, 3, N>(&mut sums, group, &a, &scales);
            add::<F, 4, N>(&mut sums, group, &a, &scales);
            add::<F, 5, N>(&mut sums, group, &a, &scales);
            add::<F, 6, N>(&mut sums, group, &a, &scales);
            add::<F, 7, N>(&mut sums, group, &a, &scales);
            for c in 0..N {
                let a = rows[c].sums.as_chunks().0[at];
                let i = scales.centre::<F>(sums.i32[c], a);
                acc[c] = scales.add::<F>(acc[c], i, rows[c].scales[at], a);
            }
            at += 1;
        }
    }
    for (acc, out) in acc.into_iter().zip(out) {
        store_f32(acc, out);
    }
}

/// Sums of one group.
struct Sums<const N: usize> {
    /// Of the steps since the last multiple of the depth.
    i16: [Pair; N],
    i32: [Pair; N],
}

/// Steps that fit int16: two products of up to `MAX * 127` each.
const fn depth<F: Format>() -> usize {
    let fit = (32767 / (F::MAX * 127 * 2)) as usize;
    let most = if F::SCALES.halves() { 4 } else { 8 };
    let mut depth = 1;
    while 2 * depth <= fit && 2 * depth <= most {
        depth *= 2;
    }
    depth
}

/// Adds the products of step `J`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<F: Format, const J: usize, const N: usize>(
    sums: &mut Sums<N>,
    group: &[u8],
    a: &[&[[i8; 4]; 8]; N],
    scales: &GroupScales,
) {
    let codes = step::<F, J>(group);
    let factors = if F::SCALES.halves() { scales.halves[J / 4] } else { [_mm256_set1_epi16(1); 2] };
    for c in 0..N {
        let a = broadcast(&a[c][J]);
        for h in 0..2 {
            let total = &mut sums.i32[c][h];
            if is_wide::<F>() {
                let products =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(codes[h]), _mm256_sign_epi8(a, codes[h]));
                *total = keep(_mm256_add_epi32(*total, _mm256_madd_epi16(products, factors[h])));
                continue;
            }
            let sum = &mut sums.i16[c][h];
            let products = _mm256_maddubs_epi16(codes[h], a);
            *sum = if J.is_multiple_of(depth::<F>()) {
                products
            } else {
                keep(_mm256_add_epi16(*sum, products))
            };
            if (J + 1).is_multiple_of(depth::<F>()) {
                *total = _mm256_add_epi32(*total, _mm256_madd_epi16(*sum, factors[h]));
            }
        }
    }
}

/// The scales and minima of 32 columns.
pub(super) struct GroupScales {
    pub(super) scale: PairF32,
    pub(super) min: PairF32,
    /// Scales of the two halves, each twice per row, as int16.
    pub(super) halves: [Pair; 2],
    /// Scales of the two halves of a row side by side.
    both: Pair,
    /// Minima of the two halves of a row side by side.
    pub(super) mins: Pair,
}

impl GroupScales {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new<F: Format>(
        header: &[u8],
        d: PairF32,
        dmin: PairF32,
        g: usize,
    ) -> GroupScales {
        let z = [_mm256_setzero_si256(); 2];
        let mut s = GroupScales { scale: d, min: dmin, halves: [z; 2], both: z, mins: z };
        let at = F::SCALES.small();
        match F::SCALES {
            Scales::Block | Scales::BlockMin | Scales::Super => {}
            Scales::Groups | Scales::GroupsMin => {
                s.scale = times(d, small(header, at + 16 * g));
                if F::SCALES.min() {
                    s.min = times(dmin, small(header, at + 128 + 16 * g));
                }
            }
            Scales::Halves | Scales::HalvesMin => {
                let mut scales = [0, 1].map(|h| small(header, at + 16 * (2 * g + h)));
                if F::SCALES.min() {
                    let low = _mm_set1_epi8(15);
                    let [m0, m1] = scales.map(|s| _mm_and_si128(_mm_srli_epi16::<4>(s), low));
                    s.mins = pairs(m0, m1);
                    scales = scales.map(|s| _mm_and_si128(s, low));
                }
                s.halves = scales.map(|s| pairs(s, s));
                s.both = pairs(scales[0], scales[1]);
            }
        }
        s
    }

    /// Takes the zero point from the sums of a group.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn centre<F: Format>(&self, mut i: Pair, sums: [i32; 2]) -> Pair {
        if F::ZERO == 0 || is_wide::<F>() {
            return i;
        }
        const { assert!(!F::SCALES.halves() || F::ZERO == 0 || (F::ZERO as u32).is_power_of_two()) };
        let a = side_by_side(sums);
        let shift = _mm_cvtsi32_si128(F::ZERO.trailing_zeros().cast_signed());
        let zero = _mm256_set1_epi32((sums[0] + sums[1]).wrapping_mul(F::ZERO));
        for (i, both) in i.iter_mut().zip(self.both) {
            *i = if F::SCALES.halves() {
                _mm256_sub_epi32(*i, _mm256_sll_epi32(_mm256_madd_epi16(both, a), shift))
            } else {
                _mm256_sub_epi32(*i, zero)
            };
        }
        i
    }

    /// Adds the integers of one group, and its minima.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add<F: Format>(&self, mut acc: PairF32, i: Pair, d: f32, sums: [i32; 2]) -> PairF32 {
        let dv = _mm256_set1_ps(d);
        for h in 0..2 {
            acc[h] =
                _mm256_fmadd_ps(_mm256_mul_ps(self.scale[h], dv), _mm256_cvtepi32_ps(i[h]), acc[h]);
            if F::SCALES.min() {
                let t = if F::SCALES.halves() {
                    let j = _mm256_madd_epi16(self.mins[h], side_by_side(sums));
                    _mm256_mul_ps(dv, _mm256_cvtepi32_ps(j))
                } else {
                    _mm256_set1_ps(d * (sums[0] + sums[1]) as f32)
                };
                acc[h] = _mm256_fnmadd_ps(self.min[h], t, acc[h]);
            }
        }
        acc
    }
}

/// Two sums of 16 codes as a pair of int16: they are at most `16 * 128`.
pub(super) const fn sum_pair(sums: [i32; 2]) -> i32 {
    (sums[0] & 0xffff) | (sums[1] << 16)
}

#[inline]
#[target_feature(enable = "avx2")]
fn side_by_side(sums: [i32; 2]) -> __m256i {
    _mm256_set1_epi32(sum_pair(sums))
}

//! Few activation rows: each panel's codes are unpacked in registers.

use std::arch::x86_64::*;

use super::super::fetch::Fetch;
use super::super::format::{PanelFormat, Scales};
use super::super::generic::gemm::sum_pair;
use super::super::{Job, PANEL_ROWS, Q8Row};
use super::{
    Pair, broadcast, halves, is_wide, keep, pairs, scaled, scales, small, step, store_f32,
};

/// Multiplies panels with few activation rows, up to 4 of them in one pass over a panel.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn panels<F: PanelFormat>(job: &mut Job<'_, '_>) {
    let x = job.q8();
    let panel_bytes = x.cols / F::BLOCK * F::BLOCK_BYTES;
    let tiles = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, tile) in job.panels.chunks_exact(panel_bytes).zip(tiles) {
        for (first, tile) in tile.as_chunks_mut::<PANEL_ROWS>().0.chunks_mut(4).enumerate() {
            let first = 4 * first;
            match tile.len() {
                1 => one::<F, 1>(panel, x.rows(first), tile),
                2 => one::<F, 2>(panel, x.rows(first), tile),
                _ => one::<F, 4>(panel, x.rows(first), tile),
            }
        }
    }
}

/// One panel. Rows that the activations lack repeat the last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one<F: PanelFormat, const N: usize>(
    panel: &[u8],
    rows: [Q8Row<'_>; N],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let fetch = Fetch::best();
    let mut acc = [[_mm256_setzero_ps(); 2]; N];
    for (b, block) in panel.chunks_exact(F::BLOCK_BYTES).enumerate() {
        let (header, groups) = block.split_at(F::SCALES.header());
        let zero = [[_mm256_setzero_si256(); 2]; N];
        let mut sums = Sums { i16: zero, i32: zero, zero, min: zero };
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            fetch.pairs::<F>(group);
            let at = b * F::GROUPS + g;
            // Plain loops, here and below: closures handed to functions without the features would stay calls.
            let mut a: [&[[i8; 4]; 8]; N] = [&[[0; 4]; 8]; N];
            for (a, row) in a.iter_mut().zip(&rows) {
                *a = bytemuck::cast_ref(&row.codes.as_chunks::<32>().0[at]);
            }
            let factors = Factors::new::<F>(header, g);
            let scale = if F::SCALES.factors() {
                [
                    pairs(factors.scale[0], factors.scale[0]),
                    pairs(factors.scale[1], factors.scale[1]),
                ]
            } else {
                [[_mm256_set1_epi16(1); 2]; 2]
            };
            add::<F, 0, N>(&mut sums, group, &a, &scale);
            add::<F, 1, N>(&mut sums, group, &a, &scale);
            add::<F, 2, N>(&mut sums, group, &a, &scale);
            add::<F, 3, N>(&mut sums, group, &a, &scale);
            add::<F, 4, N>(&mut sums, group, &a, &scale);
            add::<F, 5, N>(&mut sums, group, &a, &scale);
            add::<F, 6, N>(&mut sums, group, &a, &scale);
            add::<F, 7, N>(&mut sums, group, &a, &scale);
        }
        // in a loop of its own: here registers are free again
        if F::WHOLE && (F::SCALES.min() || F::ZERO != 0 && !is_wide::<F>()) {
            for g in 0..F::GROUPS {
                sums.add_whole::<F>(&Factors::new::<F>(header, g), &rows, b * F::GROUPS + g);
            }
        }
        let scale = scales::<F>(header);
        let min = if F::SCALES.min() { halves(header, 32) } else { scale };
        for (c, row) in rows.iter().enumerate() {
            let d = _mm256_set1_ps(row.scales[b * F::GROUPS]);
            let a: [i32; 2] = row.sums.as_chunks().0[b * F::GROUPS];
            acc[c] = scaled(scale, d, sums.centred::<F>(c, a), acc[c]);
            for h in 0..2 {
                if F::SCALES.min() {
                    let t = if F::WHOLE {
                        _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums.min[c][h]))
                    } else {
                        _mm256_set1_ps(row.scales[b] * (a[0] + a[1]) as f32)
                    };
                    acc[c][h] = _mm256_fnmadd_ps(min[h], t, acc[c][h]);
                }
            }
        }
    }
    for (acc, out) in acc.into_iter().zip(out) {
        store_f32(acc, out);
    }
}

/// Sums of one block.
struct Sums<const N: usize> {
    /// Of the steps since the last multiple of the depth.
    i16: [Pair; N],
    i32: [Pair; N],
    /// In blocks of 256: what the zero point is to be multiplied with, and the minima.
    zero: [Pair; N],
    min: [Pair; N],
}

impl<const N: usize> Sums<N> {
    /// Adds what depends on the sums of the activations of group `at`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_whole<F: PanelFormat>(&mut self, factors: &Factors, rows: &[Q8Row<'_>; N], at: usize) {
        let zero = pairs(factors.scale[0], factors.scale[1]);
        let min = pairs(factors.min[0], factors.min[1]);
        for (c, row) in rows.iter().enumerate() {
            let a = _mm256_set1_epi32(sum_pair(row.sums.as_chunks().0[at]));
            for h in 0..2 {
                if F::ZERO != 0 && !is_wide::<F>() {
                    let products = _mm256_madd_epi16(zero[h], a);
                    self.zero[c][h] = _mm256_add_epi32(self.zero[c][h], products);
                }
                if F::SCALES.min() {
                    let products = _mm256_madd_epi16(min[h], a);
                    self.min[c][h] = _mm256_add_epi32(self.min[c][h], products);
                }
            }
        }
    }

    /// The products of row `c`, the zero point taken from them; `a` are the sums of a group.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn centred<F: PanelFormat>(&self, c: usize, a: [i32; 2]) -> Pair {
        if F::ZERO == 0 || is_wide::<F>() {
            return self.i32[c];
        }
        let point = _mm256_set1_epi32(F::ZERO);
        let (i, zero) = (self.i32[c], self.zero[c]);
        let zero = if F::WHOLE {
            [_mm256_mullo_epi32(zero[0], point), _mm256_mullo_epi32(zero[1], point)]
        } else {
            [_mm256_set1_epi32((a[0] + a[1]).wrapping_mul(F::ZERO)); 2]
        };
        [_mm256_sub_epi32(i[0], zero[0]), _mm256_sub_epi32(i[1], zero[1])]
    }
}

/// Steps that fit int16: two products of up to `MAX * 127` each.
const fn depth<F: PanelFormat>() -> usize {
    let fit = (32767 / (F::MAX * 127 * 2)) as usize;
    let most = if F::SCALES.halves() { 4 } else { 8 };
    let mut depth = 1;
    while 2 * depth <= fit && 2 * depth <= most {
        depth *= 2;
    }
    depth
}

/// Adds the products of step `J`, times the factor of its half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<F: PanelFormat, const J: usize, const N: usize>(
    sums: &mut Sums<N>,
    group: &[u8],
    a: &[&[[i8; 4]; 8]; N],
    factors: &[Pair; 2],
) {
    let codes = step::<F, J>(group);
    let factors = factors[J / 4];
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

/// The integer scales and minima of 32 columns, `[half]`, of 16 rows; halves are equal if there is one per group.
pub(super) struct Factors {
    pub(super) scale: [__m128i; 2],
    pub(super) min: [__m128i; 2],
}

impl Factors {
    /// Of group `g`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new<F: PanelFormat>(header: &[u8], g: usize) -> Factors {
        let one = [_mm_set1_epi8(1); 2];
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
                let low = _mm_set1_epi8(15);
                Factors {
                    scale: [_mm_and_si128(a, low), _mm_and_si128(b, low)],
                    min: [
                        _mm_and_si128(_mm_srli_epi16::<4>(a), low),
                        _mm_and_si128(_mm_srli_epi16::<4>(b), low),
                    ],
                }
            }
        }
    }
}

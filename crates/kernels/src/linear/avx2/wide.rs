//! Many activation rows, 8-bit codes: int16 times int16, a tile of 16 rows and up to 4 columns.
//!
//! Unsigned codes above 129 would saturate the pairs of `vpmaddubsw`, so codes and activations become int16.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::PanelFormat;
use super::super::generic::gemm::{ActBlock, Recipe, STEP, TileFn};
use super::stream::Factors;
use super::{Pair, add, keep, load, load_f32, scaled, scales, step, store, store_f32};

/// `vpmaddwd` on unpacked integers.
pub(super) struct Wide<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][2 columns of 32][row][2]`, int16.
    codes: [[[u8; 64]; 16]; STEP],
    /// `[block][row]`.
    scale: [[f32; PANEL_ROWS]; STEP],
    /// `[group][row]`, int32.
    factors: [[u8; 64]; STEP],
}

impl<F: PanelFormat> Wide<F> {
    /// The word after those of the codes.
    const SCALE: usize = F::BLOCK / 2;
}

impl<F: PanelFormat> Recipe for Wide<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::SCALE + 1;
    const PANELS: usize = 2;
    const WIDTH: usize = 4;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(a: ActBlock<'_>, out: &mut [i32], step: usize) {
        for (j, [a, b]) in a.codes.as_chunks::<2>().0.iter().enumerate() {
            out[j * step] = (i32::from(*a) & 0xffff) | (i32::from(*b) << 16);
        }
        out[Self::SCALE * step] = a.d.to_bits().cast_signed();
    }

    fn tile(n: usize) -> TileFn<Unpacked> {
        match n {
            1 => tile::<F, 1>,
            2 => tile::<F, 2>,
            3 => tile::<F, 3>,
            _ => tile::<F, 4>,
        }
    }
}

/// The integers of step `J` as int16: columns 0, 1 and columns 2, 3.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn put<F: PanelFormat, const J: usize>(group: &[u8], out: &mut [[u8; 64]; 16]) {
    const N: i8 = -1;
    let codes = step::<F, J>(group);
    // Each byte goes to the upper half of an int16, then down with its sign.
    let low = _mm_setr_epi8(N, 0, N, 1, N, 4, N, 5, N, 8, N, 9, N, 12, N, 13);
    let high = _mm_setr_epi8(N, 2, N, 3, N, 6, N, 7, N, 10, N, 11, N, 14, N, 15);
    for (i, order) in [low, high].into_iter().enumerate() {
        let order = _mm256_broadcastsi128_si256(order);
        let pairs = codes.map(|v| _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(v, order)));
        store(pairs, &mut out[2 * J + i]);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<F: PanelFormat>(blocks: &[u8], out: &mut Unpacked) {
    const { assert!(!F::SCALES.halves() && !F::SCALES.min() || F::MAX <= 63) };
    const { assert!(F::SCALES.factors() == F::WHOLE || F::MAX <= 63) };
    let mut at = 0;
    for (b, block) in blocks.chunks_exact(F::BLOCK_BYTES).enumerate().take(STEP) {
        let (header, groups) = block.split_at(F::SCALES.header());
        store_f32(scales::<F>(header), &mut out.scale[b]);
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            let codes = &mut out.codes[at];
            put::<F, 0>(group, codes);
            put::<F, 1>(group, codes);
            put::<F, 2>(group, codes);
            put::<F, 3>(group, codes);
            put::<F, 4>(group, codes);
            put::<F, 5>(group, codes);
            put::<F, 6>(group, codes);
            put::<F, 7>(group, codes);
            at += 1;
            if F::SCALES.factors() {
                let [factor, _] = Factors::new::<F>(header, g).scale;
                let high = _mm_srli_si128::<8>(factor);
                store(
                    [_mm256_cvtepi8_epi32(factor), _mm256_cvtepi8_epi32(high)],
                    &mut out.factors[g],
                );
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<F: PanelFormat, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let records = activations.as_chunks::<N>().0.chunks_exact(Wide::<F>::FIELDS);
    for (b, record) in records.enumerate().take(STEP / F::GROUPS) {
        let mut total = [[_mm256_setzero_si256(); 2]; N];
        for g in 0..F::GROUPS {
            let i = sum::<N>(&unpacked.codes[b * F::GROUPS + g], &record[16 * g..]);
            if !F::SCALES.factors() {
                total = i;
                continue;
            }
            let [low, high] = load(&unpacked.factors[g]);
            for (total, i) in total.iter_mut().zip(i) {
                let i = [_mm256_mullo_epi32(i[0], low), _mm256_mullo_epi32(i[1], high)];
                *total = add(*total, i);
            }
        }
        let scale = load_f32(&unpacked.scale[b]);
        for (c, (out, total)) in c.iter_mut().zip(total).enumerate() {
            let d = _mm256_set1_ps(f32::from_bits(record[Wide::<F>::SCALE][c].cast_unsigned()));
            store_f32(scaled(scale, d, total, load_f32(out)), out);
        }
    }
}

/// Sums of the products of one group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum<const N: usize>(codes: &[[u8; 64]; 16], record: &[[i32; N]]) -> [Pair; N] {
    let mut sums: [Pair; N] = [[_mm256_setzero_si256(); 2]; N];
    for (codes, a) in codes.iter().zip(record) {
        let codes = load(codes);
        for (sum, a) in sums.iter_mut().zip(a) {
            let a = _mm256_set1_epi32(*a);
            for h in 0..2 {
                sum[h] = keep(_mm256_add_epi32(sum[h], _mm256_madd_epi16(codes[h], a)));
            }
        }
    }
    sums
}

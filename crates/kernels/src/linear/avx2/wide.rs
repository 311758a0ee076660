//! Many activation rows, 8-bit codes: int16 times int16, a tile of 16 rows and up to 4 columns.
//!
//! Unsigned codes above 129 would saturate the pairs of `vpmaddubsw`, so codes and activations become int16.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::Format;
use super::super::gemm::{Recipe, STEP, TileFn};
use super::stream::GroupScales;
use super::{Pair, halves, keep, load, load_f32, step, store, store_f32};

/// `vpmaddwd` on unpacked integers.
pub(super) struct Wide<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][2 columns of 32][row][2]`, int16.
    codes: [[[u8; 64]; 16]; STEP],
    scale: [[f32; PANEL_ROWS]; STEP],
}

/// The word after 16 of codes.
const SCALE: usize = 16;

impl<F: Format> Recipe for Wide<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = 17;
    const PANELS: usize = 2;
    const WIDTH: usize = 4;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(codes: &[i8; 32], _sums: [i32; 2], d: f32, out: &mut [i32], step: usize) {
        for (j, [a, b]) in codes.as_chunks::<2>().0.iter().enumerate() {
            out[j * step] = (i32::from(*a) & 0xffff) | (i32::from(*b) << 16);
        }
        out[SCALE * step] = d.to_bits().cast_signed();
    }

    fn tile(n: usize) -> TileFn<Unpacked> {
        match n {
            1 => tile::<1>,
            2 => tile::<2>,
            3 => tile::<3>,
            _ => tile::<4>,
        }
    }
}

/// The integers of step `J` as int16: columns 0, 1 and columns 2, 3.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn put<F: Format, const J: usize>(group: &[u8], out: &mut [[u8; 64]; 16]) {
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
fn unpack<F: Format>(blocks: &[u8], out: &mut Unpacked) {
    const { assert!(!F::SCALES.halves() && !F::SCALES.min() || F::MAX <= 63) };
    let mut at = 0;
    for block in blocks.chunks_exact(F::BLOCK_BYTES) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let d = halves(header, 0);
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
            store_f32(GroupScales::new::<F>(header, d, d, g).scale, &mut out.scale[at]);
            at += 1;
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    for (g, record) in activations.as_chunks::<N>().0.chunks_exact(SCALE + 1).enumerate().take(STEP)
    {
        let mut sums: [Pair; N] = [[_mm256_setzero_si256(); 2]; N];
        for (codes, a) in unpacked.codes[g].iter().zip(record) {
            let codes = load(codes);
            for (sum, a) in sums.iter_mut().zip(a) {
                let a = _mm256_set1_epi32(*a);
                for h in 0..2 {
                    sum[h] = keep(_mm256_add_epi32(sum[h], _mm256_madd_epi16(codes[h], a)));
                }
            }
        }
        let scale = load_f32(&unpacked.scale[g]);
        for (c, (out, sum)) in c.iter_mut().zip(sums).enumerate() {
            let d = _mm256_set1_ps(f32::from_bits(record[SCALE][c].cast_unsigned()));
            let mut acc = load_f32(out);
            for h in 0..2 {
                acc[h] =
                    _mm256_fmadd_ps(_mm256_mul_ps(scale[h], d), _mm256_cvtepi32_ps(sum[h]), acc[h]);
            }
            store_f32(acc, out);
        }
    }
}

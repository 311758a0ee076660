//! Many activation rows, codes below 64: a tile of 16 rows and up to 4 columns, added in int16.
//!
//! A lane starts at minus the zero point times the sum of its activation codes and takes wrapping additions: only the
//! end has to fit. So 16 * 127 * 2 products fit for 32 columns and a zero point of 16, and for 16 columns and 32.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::PanelFormat;
use super::super::generic::gemm::{
    ActBlock, Recipe, STEP, TileFn, put_codes, put_scale, scale_words, sum_pair,
};
use super::stream::Factors;
use super::{
    Pair, add, halves, keep, load, load_f32, pairs, scaled, scales, step, store, store_f32,
};

/// `vpmaddubsw` on unpacked codes.
pub(super) struct Narrow<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][step][row][4 columns]`, unsigned.
    codes: [[[u8; 64]; 8]; STEP],
    /// `[block][row]`.
    scale: [[f32; PANEL_ROWS]; STEP],
    min: [[f32; PANEL_ROWS]; STEP],
    /// `[group][half][row]`: the integer scale twice, as int16; halves are equal if there is one per group.
    factors: [[[u8; 64]; 2]; STEP],
    /// `[pair][row][2]`, int16: the minima of two groups, or of the halves of one.
    mins: [[u8; 64]; STEP],
}

impl<F: PanelFormat> Narrow<F> {
    /// Parts of 32 columns that are added in int16.
    const PARTS: usize = {
        let most = if F::ZERO > F::MAX - F::ZERO { F::ZERO } else { F::MAX - F::ZERO };
        assert!(F::MAX > 63 || most * 127 * 2 * 4 <= 32767);
        if F::SCALES.halves() || most * 127 * 2 * 8 > 32767 { 2 } else { 1 }
    };
    /// Words of a record: those of the codes, then what the sums start with, the scale, and what the minima need.
    const START: usize = F::BLOCK / 4;
    const SCALE: usize = Self::START + if F::ZERO == 0 { 0 } else { F::GROUPS * Self::PARTS };
    const MIN: usize = Self::SCALE + 1;
}

/// Minus the zero point times the sums of columns 0, 1 and 2, 3 of each four, as a pair of int16.
#[inline(always)]
fn start(codes: &[i8], zero: i32) -> i32 {
    let mut sums = [0i32; 4];
    for quad in codes.as_chunks::<4>().0 {
        for (sum, code) in sums.iter_mut().zip(quad) {
            *sum += i32::from(*code);
        }
    }
    sum_pair([-zero * (sums[0] + sums[1]), -zero * (sums[2] + sums[3])])
}

impl<F: PanelFormat> Recipe for Narrow<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::SCALE + scale_words::<F>();
    const PANELS: usize = 3;
    const WIDTH: usize = 4;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(a: ActBlock<'_>, out: &mut [i32], step: usize) {
        put_codes(a.codes, out, step);
        if F::ZERO != 0 {
            for (j, codes) in a.codes.chunks_exact(32 / Self::PARTS).enumerate() {
                out[(Self::START + j) * step] = start(codes, F::ZERO);
            }
        }
        put_scale::<F>(a, &mut out[Self::SCALE * step..], step);
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

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<F: PanelFormat>(blocks: &[u8], out: &mut Unpacked) {
    let mut at = 0;
    for (b, block) in blocks.chunks_exact(F::BLOCK_BYTES).enumerate().take(STEP) {
        let (header, groups) = block.split_at(F::SCALES.header());
        store_f32(scales::<F>(header), &mut out.scale[b]);
        if F::SCALES.min() {
            store_f32(halves(header, 32), &mut out.min[b]);
        }
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            let codes = &mut out.codes[at];
            store(step::<F, 0>(group), &mut codes[0]);
            store(step::<F, 1>(group), &mut codes[1]);
            store(step::<F, 2>(group), &mut codes[2]);
            store(step::<F, 3>(group), &mut codes[3]);
            store(step::<F, 4>(group), &mut codes[4]);
            store(step::<F, 5>(group), &mut codes[5]);
            store(step::<F, 6>(group), &mut codes[6]);
            store(step::<F, 7>(group), &mut codes[7]);
            at += 1;
            if !F::SCALES.factors() {
                continue;
            }
            let factors = Factors::new::<F>(header, g);
            store(pairs(factors.scale[0], factors.scale[0]), &mut out.factors[g][0]);
            store(pairs(factors.scale[1], factors.scale[1]), &mut out.factors[g][1]);
            if F::SCALES.min() && F::SCALES.halves() {
                store(pairs(factors.min[0], factors.min[1]), &mut out.mins[g]);
            } else if F::SCALES.min() && g % 2 == 1 {
                let before = Factors::new::<F>(header, g - 1);
                store(pairs(before.min[0], factors.min[0]), &mut out.mins[g / 2]);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<F: PanelFormat, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let records = activations.as_chunks::<N>().0.chunks_exact(Narrow::<F>::FIELDS);
    for (b, record) in records.enumerate().take(STEP / F::GROUPS) {
        let mut total = [[_mm256_setzero_si256(); 2]; N];
        for g in 0..F::GROUPS {
            let codes = unpacked.codes[b * F::GROUPS + g].chunks_exact(8 / Narrow::<F>::PARTS);
            for (part, codes) in codes.enumerate() {
                let factor = if F::SCALES.factors() {
                    load(&unpacked.factors[g][part])
                } else {
                    [_mm256_set1_epi16(1); 2]
                };
                let i = sum::<F, N>(codes, record, g * Narrow::<F>::PARTS + part, factor);
                for (total, i) in total.iter_mut().zip(i) {
                    *total = if F::GROUPS * Narrow::<F>::PARTS == 1 { i } else { add(*total, i) };
                }
            }
        }
        let (scale, min) = (load_f32(&unpacked.scale[b]), load_f32(&unpacked.min[b]));
        for (c, (out, total)) in c.iter_mut().zip(total).enumerate() {
            let d = float(record[Narrow::<F>::SCALE][c]);
            let mut acc = scaled(scale, d, total, load_f32(out));
            if F::SCALES.min() && F::WHOLE {
                let mut j = [_mm256_setzero_si256(); 2];
                for (mins, sums) in unpacked.mins.iter().zip(&record[Narrow::<F>::MIN..]) {
                    let (mins, sums) = (load(mins), _mm256_set1_epi32(sums[c]));
                    j = add(
                        j,
                        [_mm256_madd_epi16(mins[0], sums), _mm256_madd_epi16(mins[1], sums)],
                    );
                }
                for h in 0..2 {
                    let t = _mm256_mul_ps(d, _mm256_cvtepi32_ps(j[h]));
                    acc[h] = _mm256_fnmadd_ps(min[h], t, acc[h]);
                }
            } else if F::SCALES.min() {
                let t = float(record[Narrow::<F>::MIN][c]);
                acc = [_mm256_fnmadd_ps(min[0], t, acc[0]), _mm256_fnmadd_ps(min[1], t, acc[1])];
            }
            store_f32(acc, out);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn float(word: i32) -> __m256 {
    _mm256_set1_ps(f32::from_bits(word.cast_unsigned()))
}

/// Sums of products of part `part` of a block in int16, then times `factors`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum<F: PanelFormat, const N: usize>(
    codes: &[[u8; 64]],
    record: &[[i32; N]],
    part: usize,
    factors: Pair,
) -> [Pair; N] {
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    if F::ZERO != 0 {
        for (sum, start) in sums.iter_mut().zip(record[Narrow::<F>::START + part]) {
            *sum = [_mm256_set1_epi32(start); 2];
        }
    }
    for (codes, a) in codes.iter().zip(&record[part * codes.len()..]) {
        let codes = load(codes);
        for (sum, a) in sums.iter_mut().zip(a) {
            let a = _mm256_set1_epi32(*a);
            for h in 0..2 {
                sum[h] = keep(_mm256_add_epi16(sum[h], _mm256_maddubs_epi16(codes[h], a)));
            }
        }
    }
    for sum in &mut sums {
        *sum = [_mm256_madd_epi16(sum[0], factors[0]), _mm256_madd_epi16(sum[1], factors[1])];
    }
    sums
}

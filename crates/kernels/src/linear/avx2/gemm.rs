//! Many activation rows, codes below 64: a tile of 16 rows and up to 4 columns, added in int16.
//!
//! A lane starts at minus `CENTRE` times the sum of its activation codes and takes wrapping additions: only the end
//! has to fit. So 16 * 127 * 2 products fit for 32 columns at a centre of 16, and for 16 columns at a centre of 32.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::Format;
use super::super::gemm::{Recipe, STEP, TileFn, put_codes};
use super::stream::{GroupScales, sum_pair};
use super::{Pair, halves, keep, load, load_f32, step, store, store_f32};

/// `vpmaddubsw` on unpacked codes.
pub(super) struct Narrow<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][step][row][4 columns]`, unsigned.
    codes: [[[u8; 64]; 8]; STEP],
    scale: [[f32; PANEL_ROWS]; STEP],
    min: [[f32; PANEL_ROWS]; STEP],
    /// `[group][half][row]`: the scale twice, as int16.
    halves: [[[u8; 64]; 2]; STEP],
    /// `[group][row]`: the minima of both halves, as int16.
    mins: [[u8; 64]; STEP],
}

/// Words of an activation record: 8 of codes, then these.
const START: usize = 8;
const SCALE: usize = 9;
/// With one scale per 16 columns, the start of the second half; else what turns the centre into the zero point.
const SECOND: usize = 10;

impl<F: Format> Narrow<F> {
    /// What is taken from each code, so that sums fit int16.
    const CENTRE: i32 = {
        let steps = if F::SCALES.halves() { 4 } else { 8 };
        let centre = if F::ZERO == 0 && F::MAX > 16 { 16 } else { F::ZERO };
        let most = if centre > F::MAX - centre { centre } else { F::MAX - centre };
        assert!(F::MAX > 63 || most * 127 * 2 * steps <= 32767);
        centre
    };
    /// Whether the centre is not the zero point.
    const MOVED: bool = Self::CENTRE != F::ZERO;
    /// Where the word for the minima is: `d * sum`, or both sums as int16.
    const MIN: usize = if F::SCALES.halves() || Self::MOVED { 11 } else { 10 };
}

/// Minus `centre` times the sums of columns 0, 1 and 2, 3 of each four, as a pair of int16.
#[inline(always)]
fn start(codes: &[i8], centre: i32) -> i32 {
    let mut sums = [0i32; 4];
    for quad in codes.as_chunks::<4>().0 {
        for (sum, code) in sums.iter_mut().zip(quad) {
            *sum += i32::from(*code);
        }
    }
    sum_pair([-centre * (sums[0] + sums[1]), -centre * (sums[2] + sums[3])])
}

impl<F: Format> Recipe for Narrow<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::MIN + F::SCALES.min() as usize;
    const PANELS: usize = 3;
    const WIDTH: usize = 4;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(codes: &[i8; 32], sums: [i32; 2], d: f32, out: &mut [i32], step: usize) {
        put_codes(codes, out, step);
        out[SCALE * step] = d.to_bits().cast_signed();
        let sum = sums[0] + sums[1];
        if F::SCALES.halves() {
            out[START * step] = start(&codes[..16], Self::CENTRE);
            out[SECOND * step] = start(&codes[16..], Self::CENTRE);
        } else {
            out[START * step] = start(codes, Self::CENTRE);
            if Self::MOVED {
                out[SECOND * step] = (Self::CENTRE - F::ZERO) * sum;
            }
        }
        if F::SCALES.min() {
            out[Self::MIN * step] = if F::SCALES.halves() {
                sum_pair(sums)
            } else {
                (d * sum as f32).to_bits().cast_signed()
            };
        }
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
fn unpack<F: Format>(blocks: &[u8], out: &mut Unpacked) {
    let mut at = 0;
    for block in blocks.chunks_exact(F::BLOCK_BYTES) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let d = halves(header, 0);
        let dmin = if F::SCALES.min() { halves(header, 32) } else { d };
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
            let scales = GroupScales::new::<F>(header, d, dmin, g);
            store_f32(scales.scale, &mut out.scale[at]);
            if F::SCALES.halves() {
                store(scales.halves[0], &mut out.halves[at][0]);
                store(scales.halves[1], &mut out.halves[at][1]);
            }
            if F::SCALES.min() {
                store_f32(scales.min, &mut out.min[at]);
                store(scales.mins, &mut out.mins[at]);
            }
            at += 1;
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<F: Format, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let one = [_mm256_set1_epi16(1); 2];
    let records = activations.as_chunks::<N>().0.chunks_exact(Narrow::<F>::FIELDS);
    for (g, record) in records.enumerate().take(STEP) {
        let codes = &unpacked.codes[g];
        let mut i;
        if F::SCALES.halves() {
            i = sum::<N>(&codes[..4], &record[..4], &record[START], load(&unpacked.halves[g][0]));
            let second =
                sum::<N>(&codes[4..], &record[4..8], &record[SECOND], load(&unpacked.halves[g][1]));
            for (i, second) in i.iter_mut().zip(second) {
                *i = add(*i, second);
            }
        } else {
            i = sum::<N>(codes, &record[..8], &record[START], one);
            if Narrow::<F>::MOVED {
                for (i, word) in i.iter_mut().zip(record[SECOND]) {
                    *i = add(*i, [_mm256_set1_epi32(word); 2]);
                }
            }
        }
        let scale = load_f32(&unpacked.scale[g]);
        for (c, (out, i)) in c.iter_mut().zip(i).enumerate() {
            let d = float(record[SCALE][c]);
            let mut acc = load_f32(out);
            for h in 0..2 {
                acc[h] =
                    _mm256_fmadd_ps(_mm256_mul_ps(scale[h], d), _mm256_cvtepi32_ps(i[h]), acc[h]);
            }
            if F::SCALES.min() {
                let word = record[Narrow::<F>::MIN][c];
                let (min, mins) = (load_f32(&unpacked.min[g]), load(&unpacked.mins[g]));
                for h in 0..2 {
                    let t = if F::SCALES.halves() {
                        let j = _mm256_madd_epi16(mins[h], _mm256_set1_epi32(word));
                        _mm256_mul_ps(d, _mm256_cvtepi32_ps(j))
                    } else {
                        float(word)
                    };
                    acc[h] = _mm256_fnmadd_ps(min[h], t, acc[h]);
                }
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

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Pair, b: Pair) -> Pair {
    [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])]
}

/// Sums of products of some steps in int16, then times `factors`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum<const N: usize>(
    codes: &[[u8; 64]],
    activations: &[[i32; N]],
    start: &[i32; N],
    factors: Pair,
) -> [Pair; N] {
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (sum, start) in sums.iter_mut().zip(start) {
        *sum = [_mm256_set1_epi32(*start); 2];
    }
    for (codes, a) in codes.iter().zip(activations) {
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

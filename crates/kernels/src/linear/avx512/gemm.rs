//! Many activation rows: a tile of 16 rows and up to 12 columns in registers.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::Format;
use super::super::gemm::{Recipe, STEP, TileFn, put_codes};
use super::stream::GroupScales;
use super::{halves, load, load_f32, steps, store, store_f32};

/// `vpdpbusd` on unpacked codes.
pub(super) struct Vnni<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][step][row][4 columns]`, unsigned.
    codes: [[[u8; 64]; 8]; STEP],
    scale: [[f32; PANEL_ROWS]; STEP],
    min: [[f32; PANEL_ROWS]; STEP],
    halves: [[[f32; PANEL_ROWS]; 2]; STEP],
    half_mins: [[[f32; PANEL_ROWS]; 2]; STEP],
}

/// Words of an activation record: 8 of codes, then these.
const START: usize = 8;
const SCALE: usize = 9;
/// With one scale per 16 columns, the start of the second half.
const START_HIGH: usize = 10;

impl<F: Format> Vnni<F> {
    /// The first word that the minima need: `d * sum`, or the sums of the two halves.
    const MIN: usize = if F::SCALES.halves() { 11 } else { 10 };
}

impl<F: Format> Recipe for Vnni<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::MIN
        + match (F::SCALES.min(), F::SCALES.halves()) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
    const PANELS: usize = 3;
    const WIDTH: usize = if F::SCALES.halves() { 8 } else { 12 };
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(codes: &[i8; 32], sums: [i32; 2], d: f32, out: &mut [i32], step: usize) {
        put_codes(codes, out, step);
        out[SCALE * step] = d.to_bits().cast_signed();
        let sum = sums[0] + sums[1];
        if F::SCALES.halves() {
            out[START * step] = -F::ZERO * sums[0];
            out[START_HIGH * step] = -F::ZERO * sums[1];
        } else {
            out[START * step] = -F::ZERO * sum;
        }
        if F::SCALES.min() {
            if F::SCALES.halves() {
                for (h, sum) in sums.iter().enumerate() {
                    out[(Self::MIN + h) * step] = (*sum as f32).to_bits().cast_signed();
                }
            } else {
                out[Self::MIN * step] = (d * sum as f32).to_bits().cast_signed();
            }
        }
    }

    fn tile(n: usize) -> TileFn<Unpacked> {
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
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn unpack<F: Format>(blocks: &[u8], out: &mut Unpacked) {
    let mut at = 0;
    for block in blocks.chunks_exact(F::BLOCK_BYTES) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let d = halves(header, 0);
        let dmin = if F::SCALES.min() { halves(header, 32) } else { d };
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            for (codes, out) in steps::<F>(group).into_iter().zip(&mut out.codes[at]) {
                store(codes, out);
            }
            let scales = GroupScales::new::<F>(header, d, dmin, g);
            store_f32(scales.scale, &mut out.scale[at]);
            if F::SCALES.min() {
                store_f32(scales.min, &mut out.min[at]);
            }
            if F::SCALES.halves() {
                for h in 0..2 {
                    store_f32(scales.halves[h], &mut out.halves[at][h]);
                    if F::SCALES.min() {
                        store_f32(scales.half_mins[h], &mut out.half_mins[at][h]);
                    }
                }
            }
            at += 1;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn float(word: i32) -> __m512 {
    _mm512_set1_ps(f32::from_bits(word.cast_unsigned()))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<F: Format, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let mut acc = [_mm512_setzero_ps(); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = load_f32(c);
    }
    let records = activations.as_chunks::<N>().0.chunks_exact(Vnni::<F>::FIELDS);
    for (g, record) in records.enumerate().take(STEP) {
        let codes = &unpacked.codes[g];
        let scale = load_f32(&unpacked.scale[g]);
        let mut i = [_mm512_setzero_si512(); N];
        for (i, start) in i.iter_mut().zip(record[START]) {
            *i = _mm512_set1_epi32(start);
        }
        if F::SCALES.halves() {
            add::<N>(&mut i, &codes[..4], &record[..4]);
            let (low, high) = (load_f32(&unpacked.halves[g][0]), load_f32(&unpacked.halves[g][1]));
            let mut sum = acc;
            for ((i, sum), start) in i.iter_mut().zip(&mut sum).zip(record[START_HIGH]) {
                *sum = _mm512_mul_ps(_mm512_cvtepi32_ps(*i), low);
                *i = _mm512_set1_epi32(start);
            }
            add::<N>(&mut i, &codes[4..], &record[4..8]);
            for c in 0..N {
                sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i[c]), high, sum[c]);
                acc[c] =
                    _mm512_fmadd_ps(_mm512_mul_ps(scale, float(record[SCALE][c])), sum[c], acc[c]);
            }
        } else {
            add::<N>(&mut i, codes, &record[..8]);
            for c in 0..N {
                let d = _mm512_mul_ps(scale, float(record[SCALE][c]));
                acc[c] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(i[c]), acc[c]);
            }
        }
        if F::SCALES.min() {
            let min = load_f32(&unpacked.min[g]);
            let (low, high) =
                (load_f32(&unpacked.half_mins[g][0]), load_f32(&unpacked.half_mins[g][1]));
            for (c, acc) in acc.iter_mut().enumerate() {
                let mut t = float(record[Vnni::<F>::MIN][c]);
                if F::SCALES.halves() {
                    let high = _mm512_mul_ps(high, float(record[Vnni::<F>::MIN + 1][c]));
                    // Sums of products of small integers are exact, in any order.
                    t = _mm512_mul_ps(float(record[SCALE][c]), _mm512_fmadd_ps(low, t, high));
                }
                *acc = _mm512_fnmadd_ps(min, t, *acc);
            }
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        store_f32(acc, c);
    }
}

/// Adds the products of some steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add<const N: usize>(i: &mut [__m512i; N], codes: &[[u8; 64]], activations: &[[i32; N]]) {
    for (codes, a) in codes.iter().zip(activations) {
        let codes = load(codes);
        for (i, a) in i.iter_mut().zip(a) {
            *i = _mm512_dpbusd_epi32(*i, codes, _mm512_set1_epi32(*a));
        }
    }
}

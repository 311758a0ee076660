//! Many activation rows: a tile of 16 rows and up to 12 columns in registers.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::PANEL_ROWS;
use super::super::format::Format;
use super::super::gemm::{ActBlock, Recipe, STEP, TileFn, put_codes, put_sums, sum_words};
use super::stream::Factors;
use super::{halves, load, load_f32, pair, steps, store, store_f32};

/// `vpdpbusd` on unpacked codes.
pub(super) struct Vnni<F>(PhantomData<F>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Unpacked {
    /// `[group][step][row][4 columns]`, unsigned.
    codes: [[[u8; 64]; 8]; STEP],
    /// `[block][row]`.
    scale: [[f32; PANEL_ROWS]; STEP],
    min: [[f32; PANEL_ROWS]; STEP],
    /// `[group][half][row]`, int32; only the first half if there is one scale per group.
    factors: [[[u8; 64]; 2]; STEP],
    /// `[pair][row][2]`, int16: the minima of two groups, or of the halves of one.
    mins: [[u8; 64]; STEP],
}

impl<F: Format> Vnni<F> {
    /// Groups of codes that are multiplied with one factor, per 32 columns.
    const PARTS: usize = if F::SCALES.halves() { 2 } else { 1 };
    /// Words of a record: those of the codes, then what the sums start with, the scale, and what the minima need.
    const START: usize = F::BLOCK / 4;
    const SCALE: usize = Self::START + if F::ZERO == 0 { 0 } else { F::GROUPS * Self::PARTS };
    const MIN: usize = Self::SCALE + 1;
}

impl<F: Format> Recipe for Vnni<F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::MIN
        + match (F::SCALES.min(), F::WHOLE) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => sum_words::<F>(),
        };
    const PANELS: usize = 3;
    const WIDTH: usize = 12;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = unpack::<F>;

    #[inline(always)]
    fn fields(a: ActBlock<'_>, out: &mut [i32], step: usize) {
        put_codes(a.codes, out, step);
        if F::ZERO != 0 {
            for (j, sums) in a.sums.chunks_exact(2 / Self::PARTS).enumerate() {
                out[(Self::START + j) * step] = -F::ZERO * sums.iter().sum::<i32>();
            }
        }
        out[Self::SCALE * step] = a.d.to_bits().cast_signed();
        if F::SCALES.min() {
            let out = &mut out[Self::MIN * step..];
            if F::WHOLE {
                put_sums::<F>(a.sums, out, step);
            } else {
                out[0] = (a.d * a.sums.iter().sum::<i32>() as f32).to_bits().cast_signed();
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
    for (b, block) in blocks.chunks_exact(F::BLOCK_BYTES).enumerate().take(STEP) {
        let (header, groups) = block.split_at(F::SCALES.header());
        store_f32(halves(header, 0), &mut out.scale[b]);
        if F::SCALES.min() {
            store_f32(halves(header, 32), &mut out.min[b]);
        }
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            for (codes, out) in steps::<F>(group).into_iter().zip(&mut out.codes[at]) {
                store(codes, out);
            }
            at += 1;
            if !F::SCALES.factors() {
                continue;
            }
            let factors = Factors::new::<F>(header, g);
            store(factors.scale[0], &mut out.factors[g][0]);
            if F::SCALES.halves() {
                store(factors.scale[1], &mut out.factors[g][1]);
            }
            if F::SCALES.min() && F::SCALES.halves() {
                store(pair(factors.min[0], factors.min[1]), &mut out.mins[g]);
            } else if F::SCALES.min() && g % 2 == 1 {
                let before = Factors::new::<F>(header, g - 1);
                store(pair(before.min[0], factors.min[0]), &mut out.mins[g / 2]);
            }
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
    let records = activations.as_chunks::<N>().0.chunks_exact(Vnni::<F>::FIELDS);
    if F::WHOLE {
        for record in records.take(1) {
            whole::<F, N>(unpacked, record, c);
        }
        return;
    }
    let mut acc = [_mm512_setzero_ps(); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = load_f32(c);
    }
    for (g, record) in records.enumerate().take(STEP) {
        let i = dot::<F, N>(&unpacked.codes[g], record, 0);
        scaled::<F, N>((unpacked, g), record, i, &mut acc);
        if F::SCALES.min() {
            let min = load_f32(&unpacked.min[g]);
            for (acc, t) in acc.iter_mut().zip(record[Vnni::<F>::MIN]) {
                *acc = _mm512_fnmadd_ps(min, float(t), *acc);
            }
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        store_f32(acc, c);
    }
}

/// A block of 256 columns: all of it in integers, then once in f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn whole<F: Format, const N: usize>(
    unpacked: &Unpacked,
    record: &[[i32; N]],
    c: &mut [[f32; PANEL_ROWS]],
) {
    let mut total = [_mm512_setzero_si512(); N];
    for (g, codes) in unpacked.codes.iter().enumerate() {
        let parts = codes.chunks_exact(8 / Vnni::<F>::PARTS).zip(&unpacked.factors[g]);
        for (h, (codes, factor)) in parts.enumerate() {
            let mut i = dot::<F, N>(codes, record, g * Vnni::<F>::PARTS + h);
            if F::SCALES.factors() {
                let factor = load(factor);
                for i in &mut i {
                    *i = _mm512_mullo_epi32(*i, factor);
                }
            }
            for (total, i) in total.iter_mut().zip(i) {
                *total = _mm512_add_epi32(*total, i);
            }
        }
    }
    let mut acc = [_mm512_setzero_ps(); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = load_f32(c);
    }
    scaled::<F, N>((unpacked, 0), record, total, &mut acc);
    if F::SCALES.min() {
        let mut j = [_mm512_setzero_si512(); N];
        for (mins, sums) in unpacked.mins.iter().zip(&record[Vnni::<F>::MIN..]) {
            let mins = load(mins);
            for (j, sums) in j.iter_mut().zip(sums) {
                *j = _mm512_dpwssd_epi32(*j, mins, _mm512_set1_epi32(*sums));
            }
        }
        let min = load_f32(&unpacked.min[0]);
        for ((acc, j), d) in acc.iter_mut().zip(j).zip(record[Vnni::<F>::SCALE]) {
            *acc = _mm512_fnmadd_ps(min, _mm512_mul_ps(float(d), _mm512_cvtepi32_ps(j)), *acc);
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        store_f32(acc, c);
    }
}

/// `acc += scale * d * i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn scaled<F: Format, const N: usize>(
    (unpacked, block): (&Unpacked, usize),
    record: &[[i32; N]],
    i: [__m512i; N],
    acc: &mut [__m512; N],
) {
    let scale = load_f32(&unpacked.scale[block]);
    for ((acc, i), d) in acc.iter_mut().zip(i).zip(record[Vnni::<F>::SCALE]) {
        *acc = _mm512_fmadd_ps(_mm512_mul_ps(scale, float(d)), _mm512_cvtepi32_ps(i), *acc);
    }
}

/// The products of part `part` of a block's codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn dot<F: Format, const N: usize>(
    codes: &[[u8; 64]],
    record: &[[i32; N]],
    part: usize,
) -> [__m512i; N] {
    let mut i = [_mm512_setzero_si512(); N];
    if F::ZERO != 0 {
        for (i, start) in i.iter_mut().zip(record[Vnni::<F>::START + part]) {
            *i = _mm512_set1_epi32(start);
        }
    }
    for (codes, a) in codes.iter().zip(&record[part * codes.len()..]) {
        let codes = load(codes);
        for (i, a) in i.iter_mut().zip(a) {
            *i = _mm512_dpbusd_epi32(*i, codes, _mm512_set1_epi32(*a));
        }
    }
    i
}

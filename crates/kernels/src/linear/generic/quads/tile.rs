//! Many activation rows: a tile of 16 rows and a few columns in registers.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::super::gemm::{ActBlock, Recipe, STEP, TileFn, put_codes, put_scale, scale_words};
use super::{Factors, Quads, V, halves, scales, steps};
use crate::lanes::Simd;
use crate::linear::PANEL_ROWS;
use crate::linear::format::PanelFormat;

/// Four products at a time on unpacked codes.
pub(in crate::linear) struct Tiles<Q, F>(PhantomData<(Q, F)>);

/// One panel over one step.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(in crate::linear) struct Unpacked {
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

impl<Q: Quads, F: PanelFormat> Tiles<Q, F> {
    /// Groups of codes that are multiplied with one factor, per 32 columns.
    const PARTS: usize = if F::SCALES.halves() { 2 } else { 1 };
    /// Words of a record: those of the codes, then what the sums start with, the scale, and what the minima need.
    const START: usize = F::BLOCK / 4;
    const SCALE: usize = Self::START + if F::ZERO == 0 { 0 } else { F::GROUPS * Self::PARTS };
    const MIN: usize = Self::SCALE + 1;
}

impl<Q: Quads, F: PanelFormat> Recipe for Tiles<Q, F> {
    type F = F;
    type Unpacked = Unpacked;
    const FIELDS: usize = Self::SCALE + scale_words::<F>();
    const PANELS: usize = 3;
    const WIDTH: usize = Q::WIDTH;
    const UNPACK: unsafe fn(&[u8], &mut Unpacked) = Q::unpack::<F>;

    #[inline(always)]
    fn fields(a: ActBlock<'_>, out: &mut [i32], step: usize) {
        put_codes(a.codes, out, step);
        if F::ZERO != 0 {
            for (j, sums) in a.sums.chunks_exact(2 / Self::PARTS).enumerate() {
                out[(Self::START + j) * step] = -F::ZERO * sums.iter().sum::<i32>();
            }
        }
        put_scale::<F>(a, &mut out[Self::SCALE * step..], step);
    }

    fn tile(n: usize) -> TileFn<Unpacked> {
        Q::tile::<F>(n)
    }
}

/// Unpacks the panel blocks of a step.
#[inline(always)]
pub(in crate::linear) fn unpack<Q: Quads, F: PanelFormat>(
    quads: Q,
    blocks: &[u8],
    out: &mut Unpacked,
) {
    let lanes = quads.lanes();
    let mut at = 0;
    for (b, block) in blocks.chunks_exact(F::BLOCK_BYTES).enumerate().take(STEP) {
        let (header, groups) = block.split_at(F::SCALES.header());
        lanes.store(scales::<Q, F>(quads, header), &mut out.scale[b]);
        if F::SCALES.min() {
            lanes.store(halves(quads, header, 32), &mut out.min[b]);
        }
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            for (codes, out) in steps::<Q, F>(quads, group).into_iter().zip(&mut out.codes[at]) {
                quads.store(codes, out);
            }
            at += 1;
            if !F::SCALES.factors() {
                continue;
            }
            let factors = Factors::new::<F>(quads, header, g);
            quads.store(factors.scale[0], &mut out.factors[g][0]);
            if F::SCALES.halves() {
                quads.store(factors.scale[1], &mut out.factors[g][1]);
            }
            if F::SCALES.min() && F::SCALES.halves() {
                quads.store(quads.pair(factors.min[0], factors.min[1]), &mut out.mins[g]);
            } else if F::SCALES.min() && g % 2 == 1 {
                let before = Factors::new::<F>(quads, header, g - 1);
                quads.store(quads.pair(before.min[0], factors.min[0]), &mut out.mins[g / 2]);
            }
        }
    }
}

/// The f32 in a word of a record, in every row.
#[inline(always)]
fn float<Q: Quads>(quads: Q, word: i32) -> V<Q> {
    quads.lanes().splat(f32::from_bits(word.cast_unsigned()))
}

/// `c += unpacked * activations` over a step, for `N` columns.
#[inline(always)]
pub(in crate::linear) fn tile<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    unpacked: &Unpacked,
    activations: &[i32],
    c: &mut [f32],
) {
    let lanes = quads.lanes();
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let records = activations.as_chunks::<N>().0.chunks_exact(Tiles::<Q, F>::FIELDS);
    if F::WHOLE {
        for record in records.take(1) {
            whole::<Q, F, N>(quads, unpacked, record, c);
        }
        return;
    }
    let mut acc = [lanes.splat(0.0); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = lanes.load(c);
    }
    for (g, record) in records.enumerate().take(STEP) {
        let i = dot::<Q, F, N>(quads, &unpacked.codes[g], record, 0);
        scaled::<Q, F, N>(quads, unpacked, g, record, i, &mut acc);
        if F::SCALES.min() {
            let min = lanes.load(&unpacked.min[g]);
            for (acc, t) in acc.iter_mut().zip(record[Tiles::<Q, F>::MIN]) {
                *acc = lanes.fnma(min, float(quads, t), *acc);
            }
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        lanes.store(acc, c);
    }
}

/// A block of 256 columns: all of it in integers, then once in f32.
#[inline(always)]
fn whole<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    unpacked: &Unpacked,
    record: &[[i32; N]],
    c: &mut [[f32; PANEL_ROWS]],
) {
    let lanes = quads.lanes();
    let mut total = [quads.splat(0); N];
    for (g, codes) in unpacked.codes.iter().enumerate() {
        let parts = codes.chunks_exact(8 / Tiles::<Q, F>::PARTS).zip(&unpacked.factors[g]);
        for (h, (codes, factor)) in parts.enumerate() {
            let mut i = dot::<Q, F, N>(quads, codes, record, g * Tiles::<Q, F>::PARTS + h);
            if F::SCALES.factors() {
                let factor = quads.load(factor);
                for i in &mut i {
                    *i = quads.mul(*i, factor);
                }
            }
            for (total, i) in total.iter_mut().zip(i) {
                *total = quads.add(*total, i);
            }
        }
    }
    let mut acc = [lanes.splat(0.0); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = lanes.load(c);
    }
    scaled::<Q, F, N>(quads, unpacked, 0, record, total, &mut acc);
    if F::SCALES.min() {
        let mut j = [quads.splat(0); N];
        for (mins, sums) in unpacked.mins.iter().zip(&record[Tiles::<Q, F>::MIN..]) {
            let mins = quads.load(mins);
            for (j, sums) in j.iter_mut().zip(sums) {
                *j = quads.dot_pairs(*j, mins, *sums);
            }
        }
        let min = lanes.load(&unpacked.min[0]);
        for ((acc, j), d) in acc.iter_mut().zip(j).zip(record[Tiles::<Q, F>::SCALE]) {
            *acc = lanes.fnma(min, lanes.mul(float(quads, d), quads.float(j)), *acc);
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        lanes.store(acc, c);
    }
}

/// `acc += scale * d * i`.
#[inline(always)]
fn scaled<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    unpacked: &Unpacked,
    block: usize,
    record: &[[i32; N]],
    i: [Q::I; N],
    acc: &mut [V<Q>; N],
) {
    let lanes = quads.lanes();
    let scale = lanes.load(&unpacked.scale[block]);
    for ((acc, i), d) in acc.iter_mut().zip(i).zip(record[Tiles::<Q, F>::SCALE]) {
        *acc = lanes.fma(lanes.mul(scale, float(quads, d)), quads.float(i), *acc);
    }
}

/// The products of part `part` of a block's codes.
#[inline(always)]
fn dot<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    codes: &[[u8; 64]],
    record: &[[i32; N]],
    part: usize,
) -> [Q::I; N] {
    let mut i = [quads.splat(0); N];
    if F::ZERO != 0 {
        for (i, start) in i.iter_mut().zip(record[Tiles::<Q, F>::START + part]) {
            *i = quads.splat(start);
        }
    }
    let record = &record[part * codes.len()..];
    let (codes, record) = (codes.as_chunks::<4>().0, record.as_chunks::<4>().0);
    four(quads, &codes[0], &record[0], &mut i);
    if Tiles::<Q, F>::PARTS == 1 {
        four(quads, &codes[1], &record[1], &mut i);
    }
    i
}

/// Adds the products of four steps. They are written out because LLVM does not unroll a loop over wide tiles.
#[inline(always)]
fn four<Q: Quads, const N: usize>(
    quads: Q,
    codes: &[[u8; 64]; 4],
    record: &[[i32; N]; 4],
    i: &mut [Q::I; N],
) {
    products(quads, &codes[0], &record[0], i);
    products(quads, &codes[1], &record[1], i);
    products(quads, &codes[2], &record[2], i);
    products(quads, &codes[3], &record[3], i);
}

/// Adds the products of one step of four columns.
#[inline(always)]
fn products<Q: Quads, const N: usize>(quads: Q, codes: &[u8; 64], a: &[i32; N], i: &mut [Q::I; N]) {
    let codes = quads.load(codes);
    for (i, a) in i.iter_mut().zip(a) {
        *i = quads.dot_bytes(*i, codes, *a);
    }
}

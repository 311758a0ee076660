//! Few activation rows: each panel is read once, its codes are unpacked in registers.

use super::{Factors, Quads, V, halves, scales, steps};
use crate::lanes::Simd;
use crate::linear::fetch::Fetch;
use crate::linear::format::PanelFormat;
use crate::linear::{Job, PANEL_ROWS, Q8Row, Q8Rows};

/// Multiplies panels with `n <= N` activation rows.
#[inline(always)]
pub(in crate::linear) fn panels<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    job: &mut Job<'_, '_>,
) {
    let x = job.q8();
    let panel_bytes = x.cols / F::BLOCK * F::BLOCK_BYTES;
    let tiles = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, tile) in job.panels.chunks_exact(panel_bytes).zip(tiles) {
        let out = one::<Q, F, N>(quads, panel, &x);
        for (acc, out) in out.into_iter().zip(tile.as_chunks_mut().0) {
            quads.lanes().store(acc, out);
        }
    }
}

/// One panel. Rows that `x` lacks repeat its last one.
#[inline(always)]
fn one<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    panel: &[u8],
    x: &Q8Rows<'_>,
) -> [V<Q>; N] {
    let (lanes, fetch) = (quads.lanes(), Fetch::best());
    let rows = x.rows::<N>(0);
    let mut acc = [lanes.splat(0.0); N];
    for (b, block) in panel.chunks_exact(F::BLOCK_BYTES).enumerate() {
        let (header, groups) = block.split_at(F::SCALES.header());
        let mut total = [quads.splat(0); N];
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            fetch.quads::<F>(group, N);
            let group = Group { header, codes: group, at: b * F::GROUPS + g, g };
            add::<Q, F, N>(quads, &mut total, group, &rows);
        }
        let d = scales::<Q, F>(quads, header);
        for ((acc, total), row) in acc.iter_mut().zip(total).zip(&rows) {
            let d = lanes.mul(d, lanes.splat(row.scales[b * F::GROUPS]));
            *acc = lanes.fma(d, quads.float(total), *acc);
        }
        if F::SCALES.min() {
            let min = halves(quads, header, 32);
            for (acc, row) in acc.iter_mut().zip(&rows) {
                let d = lanes.splat(row.scales[b * F::GROUPS]);
                let sums = &row.sums[2 * b * F::GROUPS..][..2 * F::GROUPS];
                let j = minima::<Q, F>(quads, header, sums);
                *acc = lanes.fnma(min, lanes.mul(d, quads.float(j)), *acc);
            }
        }
    }
    acc
}

/// A group of a panel's block.
#[derive(Clone, Copy)]
struct Group<'a> {
    /// Of its block.
    header: &'a [u8],
    codes: &'a [u8],
    /// Which of all in the panel.
    at: usize,
    /// Which of its block.
    g: usize,
}

/// Adds the products of a group, times its factors.
#[inline(always)]
fn add<Q: Quads, F: PanelFormat, const N: usize>(
    quads: Q,
    total: &mut [Q::I; N],
    group: Group<'_>,
    rows: &[Q8Row<'_>; N],
) {
    let Group { header, codes, at, g } = group;
    let codes = steps::<Q, F>(quads, codes);
    let factors = Factors::new::<F>(quads, header, g);
    for (total, row) in total.iter_mut().zip(rows) {
        let a = row.codes.as_chunks::<32>().0[at].as_chunks::<4>().0;
        let [first, second]: [i32; 2] = row.sums.as_chunks().0[at];
        if F::SCALES.halves() {
            let i = dot(quads, start::<Q, F>(quads, first), &codes[..4], &a[..4]);
            *total = quads.add(*total, quads.mul(i, factors.scale[0]));
            let i = dot(quads, start::<Q, F>(quads, second), &codes[4..], &a[4..]);
            *total = quads.add(*total, quads.mul(i, factors.scale[1]));
        } else if F::SCALES.factors() {
            let i = dot(quads, start::<Q, F>(quads, first + second), &codes, a);
            *total = quads.add(*total, quads.mul(i, factors.scale[0]));
        } else {
            let sum = quads.add(*total, start::<Q, F>(quads, first + second));
            *total = dot(quads, sum, &codes, a);
        }
    }
}

/// What products of activation codes of this sum start with.
#[inline(always)]
fn start<Q: Quads, F: PanelFormat>(quads: Q, sum: i32) -> Q::I {
    quads.splat(sum.wrapping_mul(-F::ZERO))
}

/// Adds the products of weight codes with activation codes.
#[inline(always)]
fn dot<Q: Quads>(quads: Q, mut sum: Q::I, codes: &[Q::I], a: &[[i8; 4]]) -> Q::I {
    for (codes, a) in codes.iter().zip(a) {
        sum = quads.dot_bytes(sum, *codes, i32::from_le_bytes(a.map(i8::cast_unsigned)));
    }
    sum
}

/// Minima of a block times the sums of an activation row.
#[inline(always)]
fn minima<Q: Quads, F: PanelFormat>(quads: Q, header: &[u8], sums: &[i32]) -> Q::I {
    if !F::WHOLE {
        return quads.splat(sums[0] + sums[1]);
    }
    let mut j = quads.splat(0);
    for (g, sums) in sums.as_chunks::<2>().0.iter().enumerate() {
        let Factors { min, .. } = Factors::new::<F>(quads, header, g);
        if F::SCALES.halves() {
            for (min, sum) in min.into_iter().zip(sums) {
                j = quads.add(j, quads.mul(min, quads.splat(*sum)));
            }
        } else {
            j = quads.add(j, quads.mul(min[0], quads.splat(sums[0] + sums[1])));
        }
    }
    j
}

//! Latent attention over 16 lanes, for every instruction set that has them.
//!
//! Both products go through a pair of columns at a time: of queries for the scores, of `c` for the outputs. Its numbers
//! stay in the caches near the core while all register groups of positions, or of query rows, pass over them.

use super::layout::LatentShape;
use super::{LATENT_TILE, LatentQueries, LatentRows};
use crate::attention::{ByDepth, ByRow, ElemType, GROUP, Partials, Product, Single};
use crate::lanes::{Simd, exp, load_part, to_array};
use crate::math::LANES;

/// Columns that go together.
const COLUMNS: usize = 2;

/// The [`LATENT_ATTEND`](super::LATENT_ATTEND) op.
#[inline(always)]
pub(super) fn attend<S: Simd>(
    simd: S,
    rows: &LatentRows<'_>,
    queries: &LatentQueries<'_>,
    state: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    let most = queries.visible.iter().max().map_or(0, |seen| *seen as usize);
    if most == 0 {
        return;
    }
    let (shape, lanes) = (rows.shape, queries.lanes);
    let (wide, rest) = scratch.split_at_mut(LATENT_TILE * shape.wide());
    let (scores, keep) = rest.split_at_mut(LATENT_TILE * lanes);
    let (wide, scores) = (&mut wide[..most * shape.wide()], &mut scores[..most * lanes]);
    for (row, out) in
        rows.bytes.chunks_exact(shape.row_bytes()).zip(wide.chunks_exact_mut(shape.wide()))
    {
        widen(simd, &shape, row, out);
    }
    score(simd, &shape, queries, wide, scores);
    for column in (0..queries.visible.len()).step_by(LANES) {
        soften(simd, queries, column, scores, state, keep);
    }
    for (out, keep) in state.out.chunks_exact_mut(shape.stride()).zip(&*keep) {
        if *keep != 1.0 {
            for out in out.as_chunks_mut::<LANES>().0 {
                simd.store(simd.mul(simd.load(out), simd.splat(*keep)), out);
            }
        }
    }
    gather(simd, &shape, queries, wide, scores, state.out);
}

/// One cached row as f32: `c`, zeros up to the stride, `k_pe`.
#[inline(always)]
fn widen<S: Simd>(simd: S, shape: &LatentShape, row: &[u8], out: &mut [f32]) {
    let (first, second) = row.split_at(shape.rope_start());
    let (latent, rope) = out.split_at_mut(shape.stride());
    let rope = &mut rope[..shape.rope_dim];
    match shape.elem {
        ElemType::F32 => {
            widen_f32(simd, first, &mut latent[..shape.rank]);
            widen_f32(simd, second, rope);
        }
        ElemType::F16 => {
            widen_f16(simd, first, &mut latent[..shape.rank]);
            widen_f16(simd, second, rope);
        }
        ElemType::Q8_0 => {
            let (codes, scales) = first.split_at(shape.rank);
            let groups = latent[..shape.rank].chunks_mut(GROUP).zip(codes.chunks(GROUP));
            for ((out, codes), scale) in groups.zip(scales.as_chunks::<2>().0) {
                let scale = simd.splat(half::f16::from_le_bytes(*scale).to_f32());
                let (outs, out_rest) = out.as_chunks_mut::<LANES>();
                let (parts, rest) = codes.as_chunks::<LANES>();
                for (out, codes) in outs.iter_mut().zip(parts) {
                    simd.store(simd.mul(simd.load_i8(codes), scale), out);
                }
                let mut last = [0; LANES];
                last[..rest.len()].copy_from_slice(rest);
                let last = to_array(simd, simd.mul(simd.load_i8(&last), scale));
                out_rest.copy_from_slice(&last[..out_rest.len()]);
            }
            widen_f16(simd, second, rope);
        }
    }
    latent[shape.rank..].fill(0.0);
}

#[inline(always)]
fn widen_f32<S: Simd>(simd: S, bytes: &[u8], out: &mut [f32]) {
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    let (parts, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    for (out, bytes) in outs.iter_mut().zip(parts) {
        simd.store(simd.load_bytes(bytes), out);
    }
    for (out, bytes) in out_rest.iter_mut().zip(rest.as_chunks::<4>().0) {
        *out = f32::from_le_bytes(*bytes);
    }
}

#[inline(always)]
fn widen_f16<S: Simd>(simd: S, bytes: &[u8], out: &mut [f32]) {
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    let (parts, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    for (out, bytes) in outs.iter_mut().zip(parts) {
        simd.store(simd.load_f16(bytes), out);
    }
    let mut last = [0; 2 * LANES];
    last[..rest.len()].copy_from_slice(rest);
    let last = to_array(simd, simd.load_f16(&last));
    out_rest.copy_from_slice(&last[..out_rest.len()]);
}

/// `scores`: `[positions][lanes]`.
#[inline(always)]
fn score<S: Simd>(
    simd: S,
    shape: &LatentShape,
    queries: &LatentQueries<'_>,
    wide: &[f32],
    scores: &mut [f32],
) {
    let (lanes, stride) = (queries.lanes, shape.wide());
    let positions = wide.len() / stride;
    let q = bytemuck::cast_slice::<f32, u8>(queries.q);
    let count = positions.div_ceil(S::ROWS);
    let all = queries.visible.len().div_ceil(LANES);
    for column in (0..all).step_by(COLUMNS) {
        let columns = (all - column).min(COLUMNS);
        for i in 0..count {
            let (first, end) = (i * positions / count, (i + 1) * positions / count);
            // Of `part` of the row, which starts at `at` and whose queries start at row `query`.
            let mut product = |at: usize, query: usize, depth: usize| {
                let product = Product {
                    a: &wide[first * stride + at..],
                    a_stride: stride,
                    b: &q[(query * lanes + column * LANES) * size_of::<f32>()..],
                    b_step: lanes * size_of::<f32>(),
                    b_column: LANES * size_of::<f32>(),
                    depth,
                    out: &mut scores[first * lanes + column * LANES..],
                    out_stride: lanes,
                    add: query > 0,
                };
                product.run::<S, Single, ByRow>(simd, end - first, columns);
            };
            product(0, 0, shape.rank);
            product(shape.stride(), shape.rank, shape.rope_dim);
        }
    }
}

/// Scores of the 16 lanes from `column` on become weights; the state's maxima and sums take them in, and `keep` is what
/// its outputs are to be multiplied by.
#[inline(always)]
fn soften<S: Simd>(
    simd: S,
    queries: &LatentQueries<'_>,
    column: usize,
    scores: &mut [f32],
    state: &mut Partials<'_>,
    keep: &mut [f32],
) {
    let end = queries.visible.len().min(column + LANES);
    let (max, sum) = (&mut state.max[column..end], &mut state.sum[column..end]);
    let mut seen = [0.0; LANES];
    for (seen, visible) in seen.iter_mut().zip(&queries.visible[column..end]) {
        *seen = *visible as f32;
    }
    let seen = simd.load(&seen);
    let old = load_part(simd, max);
    let mut new = old;
    let rows = || (0..).map(|position| simd.splat(position as f32));
    for (position, row) in rows().zip(scores.chunks_exact(queries.lanes)) {
        let score = simd.load(vector(row, column));
        let score = simd.less(position, seen, score, simd.splat(f32::NEG_INFINITY));
        new = simd.max(score, new);
    }
    let factor = simd.less(old, new, exp(simd, simd.sub(old, new)), simd.splat(1.0));
    let mut total = simd.mul(load_part(simd, sum), factor);
    for (position, row) in rows().zip(scores.chunks_exact_mut(queries.lanes)) {
        let place = vector_mut(row, column);
        let weight = exp(simd, simd.sub(simd.load(place), new));
        let weight = simd.less(position, seen, weight, simd.splat(0.0));
        simd.store(weight, place);
        total = simd.add(total, weight);
    }
    max.copy_from_slice(&to_array(simd, new)[..end - column]);
    sum.copy_from_slice(&to_array(simd, total)[..end - column]);
    simd.store(factor, vector_mut(keep, column));
}

#[inline(always)]
fn vector(row: &[f32], column: usize) -> &[f32; LANES] {
    row[column..].first_chunk().expect("`call` checked that lanes are whole vectors")
}

#[inline(always)]
fn vector_mut(row: &mut [f32], column: usize) -> &mut [f32; LANES] {
    row[column..].first_chunk_mut().expect("`call` checked that lanes are whole vectors")
}

/// Adds the weighted `c` of all positions to `out`, `[n_rows, stride]`.
#[inline(always)]
fn gather<S: Simd>(
    simd: S,
    shape: &LatentShape,
    queries: &LatentQueries<'_>,
    wide: &[f32],
    weights: &[f32],
    out: &mut [f32],
) {
    let (visible, lanes) = (queries.visible, queries.lanes);
    let (stride, step) = (shape.stride(), shape.wide());
    // Columns `columns` of `n` rows from `row` on gather positions `from..to`.
    let mut part = |(row, n): (usize, usize), from: usize, to: usize, (column, columns)| {
        if to <= from {
            return;
        }
        let wide: &[u8] = bytemuck::cast_slice(&wide[from * step + column * LANES..]);
        let product = Product {
            a: &weights[from * lanes + row..],
            a_stride: lanes,
            b: wide,
            b_step: step * size_of::<f32>(),
            b_column: LANES * size_of::<f32>(),
            depth: to - from,
            out: &mut out[row * stride + column * LANES..],
            out_stride: stride,
            add: true,
        };
        product.run::<S, Single, ByDepth>(simd, n, columns);
    };
    let count = visible.len().div_ceil(S::ROWS);
    let group = |i: usize| {
        let (first, end) = (i * visible.len() / count, (i + 1) * visible.len() / count);
        let least = visible[first..end].iter().min().map_or(0, |seen| *seen as usize);
        (first, end - first, least)
    };
    for column in (0..stride / LANES).step_by(COLUMNS) {
        let columns = (column, (stride / LANES - column).min(COLUMNS));
        for i in 0..count {
            let (first, n, least) = group(i);
            part((first, n), 0, least, columns);
        }
    }
    // What only some rows of a group see.
    for i in 0..count {
        let (first, n, least) = group(i);
        for (row, seen) in visible.iter().enumerate().skip(first).take(n) {
            part((row, 1), least, *seen as usize, (0, stride / LANES));
        }
    }
}

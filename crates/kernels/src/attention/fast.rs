//! Attention over 16 lanes, for every instruction set that has them.
//!
//! ```text
//! scores[row][position] = q[row] . key[position]      tile by tile, rows in register groups
//! max, weights = exp(scores - max), sum               row by row, 16 positions at a time
//! out[row] = Σ weights[row][position] * value         16 elements at a time, rows in register groups
//! ```
//! A group of rows goes through the positions all of it sees together; what only some of its rows see is added row
//! by row, so nothing a row may not see is ever multiplied into it. Elements of f16 are converted as they are read,
//! once per group; those of q8_0 once for all rows, a cache-sized piece at a time.

use super::layout::{BLOCK, ElemType, GROUP, HeadShape, TILE};
use super::product::{ByRow, Elem, Half, Product, Single};
use super::{CHUNK, HeadBlock, Partials, QueryRows};
use crate::lanes::{Simd, exp, to_array};
use crate::math::{LANES, max_lanes, sum_lanes};

/// The [`ATTEND`](super::ATTEND) op.
#[inline(always)]
pub(super) fn attend<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    let (scores, buffer) = scratch.split_at_mut(rows.visible.len() * BLOCK);
    score(simd, block, rows, scores, buffer);
    for ((seen, scores), (max, sum)) in rows
        .visible
        .iter()
        .zip(scores.chunks_exact_mut(BLOCK))
        .zip(out.max.iter_mut().zip(out.sum.iter_mut()))
    {
        (*max, *sum) = soften(simd, scores, *seen as usize);
    }
    gather(simd, block, rows, scores, out.out, buffer);
}

/// Neighbouring rows that share registers.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    n: usize,
    /// Positions all of them see.
    least: usize,
    /// Positions any of them sees.
    most: usize,
}

/// Rows in groups of nearly equal size, at most [`Simd::ROWS`]: group `i` of `count`.
#[inline(always)]
fn group(visible: &[u32], i: usize, count: usize) -> Rows {
    let (first, end) = (i * visible.len() / count, (i + 1) * visible.len() / count);
    let seen = &visible[first..end];
    let least = seen.iter().min().map_or(0, |n| *n as usize);
    let most = seen.iter().max().map_or(0, |n| *n as usize);
    Rows { first, n: end - first, least, most }
}

/// `scores`: `[n_rows, BLOCK]`, whole tiles up to what each group sees.
#[inline(always)]
fn score<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    scores: &mut [f32],
    buffer: &mut [f32],
) {
    let (dim, tile_bytes) = (block.shape.key_dim, block.shape.key_tile_bytes());
    let all = (0, BLOCK / TILE);
    match block.shape.k {
        ElemType::F32 => {
            score_tiles::<S, Single>(simd, rows, (block.keys, tile_bytes), all, scores);
        }
        ElemType::F16 => {
            score_tiles::<S, Half>(simd, rows, (block.keys, tile_bytes), all, scores);
        }
        ElemType::Q8_0 => {
            let most = rows.visible.iter().max().map_or(0, |n| *n as usize).div_ceil(TILE);
            let step = (CHUNK / (dim * TILE)).max(1);
            for first in (0..most).step_by(step) {
                let end = (first + step).min(most);
                for tile in first..end {
                    let keys = &block.keys[tile * tile_bytes..][..tile_bytes];
                    widen_keys(
                        simd,
                        &block.shape,
                        keys,
                        &mut buffer[(tile - first) * dim * TILE..][..dim * TILE],
                    );
                }
                let wide = (bytemuck::cast_slice(&*buffer), dim * TILE * size_of::<f32>());
                score_tiles::<S, Single>(simd, rows, wide, (first, end), scores);
            }
        }
    }
}

/// Scores of the tiles `first..end`, the first of which starts `keys.0`; the next are `keys.1` bytes apart.
#[inline(always)]
fn score_tiles<S: Simd, E: Elem>(
    simd: S,
    rows: &QueryRows<'_>,
    keys: (&[u8], usize),
    (first, end): (usize, usize),
    scores: &mut [f32],
) {
    let count = rows.visible.len().div_ceil(S::ROWS);
    let dim = rows.q.len() / rows.visible.len().max(1);
    for i in 0..count {
        let group = group(rows.visible, i, count);
        let product = Product {
            a: &rows.q[group.first * dim..],
            a_stride: dim,
            b: keys.0,
            b_step: E::BYTES,
            b_column: keys.1,
            depth: dim,
            out: &mut scores[group.first * BLOCK + first * TILE..],
            out_stride: BLOCK,
            add: false,
        };
        product.run::<S, E, ByRow>(
            simd,
            group.n,
            group.most.div_ceil(TILE).min(end).saturating_sub(first),
        );
    }
}

/// One tile of q8_0 keys as f32 `[key_dim][TILE]`.
#[inline(always)]
fn widen_keys<S: Simd>(simd: S, shape: &HeadShape, tile: &[u8], out: &mut [f32]) {
    let (scales, codes) = tile.split_at(shape.key_scale_bytes());
    let (scales, codes) = (scales.as_chunks().0, codes.as_chunks().0);
    let out = out.as_chunks_mut::<LANES>().0;
    for ((out, codes), scale) in out.chunks_mut(GROUP).zip(codes.chunks(GROUP)).zip(scales) {
        let scale = simd.load_f16(scale);
        for (out, codes) in out.iter_mut().zip(codes) {
            simd.store(simd.mul(simd.load_i8(codes), scale), out);
        }
    }
}

/// Scores of the first `seen` positions become weights; returns the greatest score and the sum of weights.
#[inline(always)]
fn soften<S: Simd>(simd: S, scores: &mut [f32], seen: usize) -> (f32, f32) {
    let nothing = simd.splat(f32::NEG_INFINITY);
    let (tiles, _) = scores[..seen.next_multiple_of(TILE)].as_chunks_mut::<TILE>();
    let mut max = nothing;
    for (i, tile) in tiles.iter_mut().enumerate() {
        let x = simd.first(simd.load(tile), seen - i * TILE, nothing);
        simd.store(x, tile);
        max = simd.max(x, max);
    }
    let max = max_lanes(to_array(simd, max));
    let mut sum = simd.splat(0.0);
    for tile in tiles {
        let weights = exp(simd, simd.sub(simd.load(tile), simd.splat(max)));
        simd.store(weights, tile);
        sum = simd.add(sum, weights);
    }
    (max, sum_lanes(to_array(simd, sum)))
}

/// `out`: `[n_rows, value_stride]`, overwritten.
#[inline(always)]
fn gather<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    weights: &[f32],
    out: &mut [f32],
    buffer: &mut [f32],
) {
    let (stride, tile_bytes) = (block.shape.value_stride(), block.shape.value_tile_bytes());
    match block.shape.v {
        ElemType::F32 => {
            gather_rows::<S, Single>(simd, rows.visible, block.values, (0, BLOCK), weights, out)
        }
        ElemType::F16 => {
            gather_rows::<S, Half>(simd, rows.visible, block.values, (0, BLOCK), weights, out);
        }
        ElemType::Q8_0 => {
            let most = rows.visible.iter().max().map_or(0, |n| *n as usize);
            let step = (CHUNK / (stride * TILE)).max(1) * TILE;
            for first in (0..most.max(1)).step_by(step) {
                let end = (first + step).min(BLOCK);
                for tile in first / TILE..end.min(most).div_ceil(TILE) {
                    let values = &block.values[tile * tile_bytes..][..tile_bytes];
                    let at = (tile * TILE - first) * stride;
                    widen_values(simd, &block.shape, values, &mut buffer[at..][..TILE * stride]);
                }
                let wide = bytemuck::cast_slice(&*buffer);
                gather_rows::<S, Single>(simd, rows.visible, wide, (first, end), weights, out);
            }
        }
    }
}

/// Adds positions `first..end`, the first of which starts `values`; overwrites `out` if it is the block's first.
#[inline(always)]
fn gather_rows<S: Simd, E: Elem>(
    simd: S,
    visible: &[u32],
    values: &[u8],
    (first, end): (usize, usize),
    weights: &[f32],
    out: &mut [f32],
) {
    let count = visible.len().div_ceil(S::ROWS);
    let stride = out.len() / visible.len().max(1);
    let columns = stride / LANES;
    for i in 0..count {
        let group = group(visible, i, count);
        // Positions `from..to` for `n` rows from `row` on.
        let mut part = |row: usize, n: usize, from: usize, to: usize, add: bool| {
            let product = Product {
                a: &weights[row * BLOCK + from..],
                a_stride: BLOCK,
                b: &values[(from - first) * columns * E::BYTES..],
                b_step: columns * E::BYTES,
                b_column: E::BYTES,
                depth: to - from,
                out: &mut out[row * stride..],
                out_stride: stride,
                add,
            };
            product.run::<S, E, ByRow>(simd, n, columns);
        };
        let together = group.least.clamp(first, end);
        if first == 0 || together > first {
            part(group.first, group.n, first, together, first > 0);
        }
        for (row, seen) in visible.iter().enumerate().skip(group.first).take(group.n) {
            let alone = (*seen as usize).clamp(first, end);
            if alone > together {
                part(row, 1, together, alone, true);
            }
        }
    }
}

/// One tile of q8_0 values as f32 `[TILE][stride]`.
#[inline(always)]
fn widen_values<S: Simd>(simd: S, shape: &HeadShape, tile: &[u8], out: &mut [f32]) {
    let stride = shape.value_stride();
    let (scales, codes) = tile.split_at(shape.value_scale_bytes());
    let scales = scales.chunks_exact(stride.div_ceil(GROUP) * 2);
    for ((out, codes), scales) in
        out.chunks_exact_mut(stride).zip(codes.chunks_exact(stride)).zip(scales)
    {
        for ((out, codes), scale) in
            out.chunks_mut(GROUP).zip(codes.chunks(GROUP)).zip(scales.as_chunks().0)
        {
            let scale = simd.splat(half::f16::from_le_bytes(*scale).to_f32());
            for (out, codes) in out.as_chunks_mut().0.iter_mut().zip(codes.as_chunks().0) {
                simd.store(simd.mul(simd.load_i8(codes), scale), out);
            }
        }
    }
}

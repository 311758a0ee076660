//! Attention over 16 lanes, for every instruction set that has them.
//!
//! ```text
//! scores[row][position] = q[row] . key[position]      tile by tile, rows in register groups; bounded, leant
//! max, weights = exp(scores - max), sum               row by row, 16 positions at a time
//! out[row] = Σ weights[row][position] * value         16 elements at a time, rows in register groups
//! ```
//! A group of rows goes through the positions all of it sees together; what only some of its rows see is added row
//! by row, so nothing a row may not see is ever multiplied into it. Elements of f16 are converted as they are read,
//! once per group; those of q8_0 once for all rows, a cache-sized piece at a time.

use std::ops::Range;

use super::layout::{BLOCK, ElemType, GROUP, HeadShape, TILE};
use super::product::{ByRow, Elem, Half, Product, Single};
use super::{Alibi, CHUNK, HeadBlock, Partials, QueryRows, ScoreSum, Seen};
use crate::lanes::{Simd, exp, tanh, to_array};
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
    let (scores, buffer) = scratch.split_at_mut(rows.seen.len() * BLOCK);
    let sums = out.max.iter_mut().zip(out.sum.iter_mut());
    weigh(simd, block, rows, scores, buffer, sums);
    gather(simd, block, rows, scores, out.out, buffer);
}

/// The [`SCORE_SUMS`](super::SCORE_SUMS) op.
#[inline(always)]
pub(super) fn score_sums<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [ScoreSum],
    scratch: &mut [f32],
) {
    let (scores, buffer) = scratch.split_at_mut(rows.seen.len() * BLOCK);
    let sums = out.iter_mut().map(|out| (&mut out.max, &mut out.sum));
    weigh(simd, block, rows, scores, buffer, sums);
}

/// The [`SCORES`](super::SCORES) op.
#[inline(always)]
pub(super) fn scores<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [f32],
    scratch: &mut [f32],
) {
    adjusted(simd, block, rows, out, scratch);
}

/// The [`MASSES`](super::MASSES) op.
#[inline(always)]
pub(super) fn masses<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    sums: &[ScoreSum],
    masses: &mut [f32; BLOCK],
    scratch: &mut [f32],
) {
    let (scores, buffer) = scratch.split_at_mut(rows.seen.len() * BLOCK);
    adjusted(simd, block, rows, scores, buffer);
    for ((seen, scores), of) in rows.seen.iter().zip(scores.chunks_exact_mut(BLOCK)).zip(sums) {
        let (max, inverse) = (simd.splat(of.max), simd.splat(1.0 / of.sum));
        let nothing = simd.splat(f32::NEG_INFINITY);
        let first = seen.range().start / TILE;
        let (tiles, before) = seen_tiles(scores, *seen);
        if before > 0 {
            tiles[0][..before].fill(f32::NEG_INFINITY);
        }
        let end = before + seen.range().len();
        let masses = masses.as_chunks_mut::<TILE>().0.iter_mut().skip(first);
        for (i, (tile, masses)) in tiles.iter().zip(masses).enumerate() {
            let x = simd.first(simd.load(tile), end - i * TILE, nothing);
            let weights = simd.mul(exp(simd, simd.sub(x, max)), inverse);
            simd.store(simd.add(simd.load(masses), weights), masses);
        }
    }
}

/// Scores of what rows see: `[n_rows, BLOCK]`.
#[inline(always)]
fn adjusted<S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    scores: &mut [f32],
    buffer: &mut [f32],
) {
    score(simd, block, rows, scores, buffer);
    if let Some(cap) = rows.softcap {
        for (seen, scores) in rows.seen.iter().zip(scores.chunks_exact_mut(BLOCK)) {
            bound(simd, scores, *seen, cap);
        }
    }
    for ((seen, scores), alibi) in
        rows.seen.iter().zip(scores.chunks_exact_mut(BLOCK)).zip(rows.alibi)
    {
        lean(simd, scores, *seen, *alibi);
    }
}

/// Weights of what rows see, into `scores`, and for each row the greatest score and the sum of weights.
#[inline(always)]
fn weigh<'o, S: Simd>(
    simd: S,
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    scores: &mut [f32],
    buffer: &mut [f32],
    sums: impl Iterator<Item = (&'o mut f32, &'o mut f32)>,
) {
    adjusted(simd, block, rows, scores, buffer);
    for ((seen, scores), (max, sum)) in
        rows.seen.iter().zip(scores.chunks_exact_mut(BLOCK)).zip(sums)
    {
        (*max, *sum) = soften(simd, scores, *seen);
    }
}

/// Neighbouring rows that share registers.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    n: usize,
    /// First position any of them sees.
    from: usize,
    /// First position all of them have reached.
    together: usize,
    /// End of what all of them see.
    least: usize,
    /// End of what any of them sees.
    most: usize,
}

/// Rows in groups of nearly equal size, at most [`Simd::ROWS`]: group `i` of `count`.
#[inline(always)]
fn group(seen: &[Seen], i: usize, count: usize) -> Rows {
    let (first, end) = (i * seen.len() / count, (i + 1) * seen.len() / count);
    let mut group = Rows { first, n: end - first, from: BLOCK, together: 0, least: BLOCK, most: 0 };
    for seen in &seen[first..end] {
        let Range { start, end } = seen.range();
        group.from = group.from.min(if end > 0 { start } else { BLOCK });
        group.together = group.together.max(start);
        group.least = group.least.min(end);
        group.most = group.most.max(end);
    }
    group
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
    let (all, keys) = (0..BLOCK / TILE, Keys { tiles: block.keys, tile_bytes });
    match block.shape.k {
        ElemType::F32 => {
            score_tiles::<S, Single>(simd, rows, keys, all, scores);
        }
        ElemType::F16 => {
            score_tiles::<S, Half>(simd, rows, keys, all, scores);
        }
        ElemType::Q8_0 => {
            let Rows { from, most, .. } = group(rows.seen, 0, 1);
            let most = most.div_ceil(TILE);
            let step = (CHUNK / (dim * TILE)).max(1);
            for first in (from / TILE..most).step_by(step) {
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
                let tiles = bytemuck::cast_slice(&*buffer);
                let wide = Keys { tiles, tile_bytes: dim * TILE * size_of::<f32>() };
                score_tiles::<S, Single>(simd, rows, wide, first..end, scores);
            }
        }
    }
}

/// Tiles of keys, one after the other.
#[derive(Clone, Copy)]
struct Keys<'a> {
    tiles: &'a [u8],
    tile_bytes: usize,
}

/// Scores of the tiles `tiles` of a block, of which `keys` has the first and those after it.
#[inline(always)]
fn score_tiles<S: Simd, E: Elem>(
    simd: S,
    rows: &QueryRows<'_>,
    keys: Keys<'_>,
    tiles: Range<usize>,
    scores: &mut [f32],
) {
    let count = rows.seen.len().div_ceil(S::ROWS);
    let dim = rows.q.len() / rows.seen.len().max(1);
    for i in 0..count {
        let group = group(rows.seen, i, count);
        let start = tiles.start.max(group.from / TILE);
        let columns = group.most.div_ceil(TILE).min(tiles.end).saturating_sub(start);
        if columns == 0 {
            continue;
        }
        let product = Product {
            a: &rows.q[group.first * dim..],
            a_stride: dim,
            b: &keys.tiles[(start - tiles.start) * keys.tile_bytes..],
            b_step: E::BYTES,
            b_column: keys.tile_bytes,
            depth: dim,
            out: &mut scores[group.first * BLOCK + start * TILE..],
            out_stride: BLOCK,
            add: false,
        };
        product.run::<S, E, ByRow>(simd, group.n, columns);
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

/// The tiles of a row's scores that hold positions it sees, and the first of those positions' place there.
#[inline(always)]
fn seen_tiles(scores: &mut [f32], seen: Seen) -> (&mut [[f32; TILE]], usize) {
    let Range { start, end } = seen.range();
    let first = start / TILE * TILE;
    (scores[first..end.next_multiple_of(TILE)].as_chunks_mut::<TILE>().0, start - first)
}

/// Bounds the scores of a row: `cap * tanh(s / cap)`.
#[inline(always)]
fn bound<S: Simd>(simd: S, scores: &mut [f32], seen: Seen, cap: f32) {
    let (cap, inverse) = (simd.splat(cap), simd.splat(1.0 / cap));
    for tile in seen_tiles(scores, seen).0 {
        let x = simd.mul(simd.load(tile), inverse);
        simd.store(simd.mul(cap, tanh(simd, x)), tile);
    }
}

/// Adds ALiBi to the scores of a row.
#[inline(always)]
fn lean<S: Simd>(simd: S, scores: &mut [f32], seen: Seen, alibi: Alibi) {
    let lanes: [f32; TILE] = std::array::from_fn(|i| i as f32);
    let lanes = simd.load(&lanes);
    let first = seen.range().start / TILE * TILE;
    for (i, tile) in seen_tiles(scores, seen).0.iter_mut().enumerate() {
        // whole numbers, which f32 adds exactly
        let ahead = simd.add(simd.splat(alibi.offset + (first + i * TILE) as f32), lanes);
        let zero = simd.splat(0.0);
        let behind = simd.sub(zero, simd.max(ahead, simd.sub(zero, ahead)));
        simd.store(simd.fma(simd.splat(alibi.slope), behind, simd.load(tile)), tile);
    }
}

/// Scores of the positions that a row sees become weights; returns the greatest score and the sum of weights.
#[inline(always)]
fn soften<S: Simd>(simd: S, scores: &mut [f32], seen: Seen) -> (f32, f32) {
    let nothing = simd.splat(f32::NEG_INFINITY);
    let (tiles, before) = seen_tiles(scores, seen);
    if before > 0 {
        tiles[0][..before].fill(f32::NEG_INFINITY);
    }
    let end = before + seen.range().len();
    let mut max = nothing;
    for (i, tile) in tiles.iter_mut().enumerate() {
        let x = simd.first(simd.load(tile), end - i * TILE, nothing);
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
    let whole = Piece { values: block.values, first: 0, end: BLOCK, starts: true };
    match block.shape.v {
        ElemType::F32 => {
            gather_rows::<S, Single>(simd, rows.seen, &whole, weights, out);
        }
        ElemType::F16 => {
            gather_rows::<S, Half>(simd, rows.seen, &whole, weights, out);
        }
        ElemType::Q8_0 => {
            let Rows { from, most, .. } = group(rows.seen, 0, 1);
            let step = (CHUNK / (stride * TILE)).max(1) * TILE;
            let start = from.min(most) / step * step;
            for first in (start..most.max(start + 1)).step_by(step) {
                let end = (first + step).min(BLOCK);
                for tile in first.max(from) / TILE..end.min(most).div_ceil(TILE) {
                    let values = &block.values[tile * tile_bytes..][..tile_bytes];
                    let at = (tile * TILE - first) * stride;
                    widen_values(simd, &block.shape, values, &mut buffer[at..][..TILE * stride]);
                }
                let wide = bytemuck::cast_slice(&*buffer);
                let part = Piece { values: wide, first, end, starts: first == start };
                gather_rows::<S, Single>(simd, rows.seen, &part, weights, out);
            }
        }
    }
}

/// Values of neighbouring positions.
struct Piece<'a> {
    values: &'a [u8],
    /// Position of the first.
    first: usize,
    /// Position after the last.
    end: usize,
    /// Whether outputs are overwritten rather than added to.
    starts: bool,
}

/// Adds what rows see of a piece. Positions that all rows of a group see are added to them together, those before and
/// after row by row.
#[inline(always)]
fn gather_rows<S: Simd, E: Elem>(
    simd: S,
    seen: &[Seen],
    piece: &Piece<'_>,
    weights: &[f32],
    out: &mut [f32],
) {
    let count = seen.len().div_ceil(S::ROWS);
    let stride = out.len() / seen.len().max(1);
    let columns = stride / LANES;
    let inside = |position: usize| position.clamp(piece.first, piece.end);
    for i in 0..count {
        let group = group(seen, i, count);
        // Positions `from..to` for `n` rows from `row` on.
        let mut part = |row: usize, n: usize, from: usize, to: usize, add: bool| {
            let product = Product {
                a: &weights[row * BLOCK + from..],
                a_stride: BLOCK,
                b: &piece.values[(from - piece.first) * columns * E::BYTES..],
                b_step: columns * E::BYTES,
                b_column: E::BYTES,
                depth: to - from,
                out: &mut out[row * stride..],
                out_stride: stride,
                add,
            };
            product.run::<S, E, ByRow>(simd, n, columns);
        };
        let members = || seen.iter().enumerate().skip(group.first).take(group.n);
        let from = inside(group.together);
        let to = inside(group.least).max(from);
        let ragged = inside(group.from) < from;
        if ragged {
            for (row, seen) in members() {
                let Range { start, end } = seen.range();
                let (start, end) = (inside(start), inside(end).min(from));
                if piece.starts || start < end {
                    part(row, 1, start, end.max(start), !piece.starts);
                }
            }
        }
        if from < to || (piece.starts && !ragged) {
            part(group.first, group.n, from, to, ragged || !piece.starts);
        }
        for (row, seen) in members() {
            let end = inside(seen.range().end);
            if end > to {
                part(row, 1, to, end, true);
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

//! Attention in plain loops: what every other kernel must repeat to the bit.

use super::{BLOCK, HeadBlock, Partials, QueryRows, ScoreSum};
use crate::math::{LANES, exp, greater, max_lanes, sum_lanes, tanh};

/// The [`ATTEND`](super::ATTEND) op.
pub(super) fn attend(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    let shape = block.shape;
    let results = out
        .max
        .iter_mut()
        .zip(out.sum.iter_mut())
        .zip(out.out.chunks_exact_mut(shape.value_stride()));
    for (row, (seen, ((max, sum), out))) in rows.seen.iter().zip(results).enumerate() {
        let first = seen.range().start;
        let scores = &mut scratch[..seen.range().len()];
        let sums = weigh(block, rows, row, scores);
        (*max, *sum) = (sums.max, sums.sum);
        out.fill(0.0);
        for (position, p) in (first..).zip(scores.iter()) {
            for (e, out) in out[..shape.value_dim].iter_mut().enumerate() {
                *out = p.mul_add(shape.value_at(block.values, position, e), *out);
            }
        }
    }
}

/// The [`SCORE_SUMS`](super::SCORE_SUMS) op.
pub(super) fn score_sums(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [ScoreSum],
    scratch: &mut [f32],
) {
    for (row, (seen, out)) in rows.seen.iter().zip(out).enumerate() {
        *out = weigh(block, rows, row, &mut scratch[..seen.range().len()]);
    }
}

/// The [`SCORES`](super::SCORES) op.
pub(super) fn scores(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    out: &mut [f32],
    _scratch: &mut [f32],
) {
    for (row, (seen, out)) in rows.seen.iter().zip(out.chunks_exact_mut(BLOCK)).enumerate() {
        score(block, rows, row, &mut out[seen.range()]);
    }
}

/// The [`MASSES`](super::MASSES) op.
pub(super) fn masses(
    block: &HeadBlock<'_>,
    rows: &QueryRows<'_>,
    sums: &[ScoreSum],
    masses: &mut [f32; BLOCK],
    scratch: &mut [f32],
) {
    for (row, (seen, of)) in rows.seen.iter().zip(sums).enumerate() {
        let (seen, inverse) = (seen.range(), 1.0 / of.sum);
        let scores = &mut scratch[..seen.len()];
        score(block, rows, row, scores);
        for (mass, score) in masses[seen].iter_mut().zip(scores) {
            *mass += exp(*score - of.max) * inverse;
        }
    }
}

/// A row's weights of what it sees, into `scores`, and what its scores come to.
fn weigh(block: &HeadBlock<'_>, rows: &QueryRows<'_>, row: usize, scores: &mut [f32]) -> ScoreSum {
    score(block, rows, row, scores);
    let first = rows.seen[row].range().start;
    let mut greatest = [f32::NEG_INFINITY; LANES];
    for (position, score) in (first..).zip(scores.iter()) {
        greatest[position % LANES] = greater(*score, greatest[position % LANES]);
    }
    let max = max_lanes(greatest);
    let mut sums = [0.0; LANES];
    for (position, score) in (first..).zip(scores.iter_mut()) {
        *score = exp(*score - max);
        sums[position % LANES] += *score;
    }
    ScoreSum { max, sum: sum_lanes(sums) }
}

/// A row's scores of what it sees.
fn score(block: &HeadBlock<'_>, rows: &QueryRows<'_>, row: usize, scores: &mut [f32]) {
    let shape = block.shape;
    let query = &rows.q[row * shape.key_dim..][..shape.key_dim];
    let first = rows.seen[row].range().start;
    for (position, score) in (first..).zip(scores.iter_mut()) {
        *score = 0.0;
        for (d, q) in query.iter().enumerate() {
            *score = q.mul_add(shape.key_at(block.keys, position, d), *score);
        }
        if let Some(cap) = rows.softcap {
            *score = cap * tanh(*score * (1.0 / cap));
        }
        if let Some(alibi) = rows.alibi.get(row) {
            let distance = alibi.offset + position as f32;
            *score = alibi.slope.mul_add(0.0 - distance.abs(), *score);
        }
    }
}

/// The [`MERGE`](super::MERGE) op.
#[inline(always)]
pub(super) fn merge(state: &mut Partials<'_>, block: &Partials<'_>, stride: usize) {
    let rows =
        state.max.iter_mut().zip(state.sum.iter_mut()).zip(state.out.chunks_exact_mut(stride));
    let added = block.max.iter().zip(block.sum.iter()).zip(block.out.chunks_exact(stride));
    for (((max, sum), out), ((block_max, block_sum), block_out)) in rows.zip(added) {
        if *block_sum == 0.0 {
            continue;
        }
        if *sum == 0.0 {
            (*max, *sum) = (*block_max, *block_sum);
            out.copy_from_slice(block_out);
            continue;
        }
        let new = greater(*block_max, *max);
        let (keep, take) = (exp(*max - new), exp(*block_max - new));
        *max = new;
        *sum = block_sum.mul_add(take, *sum * keep);
        for (out, add) in out.iter_mut().zip(block_out) {
            *out = add.mul_add(take, *out * keep);
        }
    }
}

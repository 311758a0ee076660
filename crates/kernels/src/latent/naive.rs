//! Latent attention in plain loops: what every other kernel must repeat to the bit.

use super::{LatentQueries, LatentRows};
use crate::attention::Partials;
use crate::math::{exp, greater};

/// The [`LATENT_ATTEND`](super::LATENT_ATTEND) op.
pub(super) fn attend(
    rows: &LatentRows<'_>,
    queries: &LatentQueries<'_>,
    state: &mut Partials<'_>,
    scratch: &mut [f32],
) {
    let shape = rows.shape;
    let (width, stride) = (shape.width(), shape.stride());
    let most = queries.visible.iter().max().map_or(0, |seen| *seen as usize);
    let (wide, scores) = scratch.split_at_mut(most * width);
    for (bytes, wide) in
        rows.bytes.chunks_exact(shape.row_bytes()).zip(wide.chunks_exact_mut(width))
    {
        let (latent, rope) = wide.split_at_mut(shape.rank);
        shape.load(bytes, latent, rope);
    }
    let results = state.max.iter_mut().zip(state.sum.iter_mut());
    let results = results.zip(state.out.chunks_exact_mut(stride));
    for ((row, visible), ((max, sum), out)) in queries.visible.iter().enumerate().zip(results) {
        let seen = *visible as usize;
        let scores = &mut scores[..seen];
        let old = *max;
        for (score, wide) in scores.iter_mut().zip(wide.chunks_exact(width)) {
            *score = 0.0;
            for (d, x) in wide.iter().enumerate() {
                *score = x.mul_add(queries.q[d * queries.lanes + row], *score);
            }
            *max = greater(*score, *max);
        }
        let keep = if old < *max { exp(old - *max) } else { 1.0 };
        *sum *= keep;
        for x in out.iter_mut() {
            *x *= keep;
        }
        for (score, wide) in scores.iter().zip(wide.chunks_exact(width)) {
            let weight = exp(score - *max);
            *sum += weight;
            for (out, c) in out.iter_mut().zip(&wide[..shape.rank]) {
                *out = weight.mul_add(*c, *out);
            }
        }
    }
}

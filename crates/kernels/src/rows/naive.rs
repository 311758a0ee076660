//! Row ops in plain loops: what every other kernel must repeat to the bit.

use super::{PEAK, Pairs};
use crate::math::{LANES, sum_lanes};

pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut sums = [0.0f32; LANES];
    for (i, x) in x.iter().enumerate() {
        sums[i % LANES] = x.mul_add(*x, sums[i % LANES]);
    }
    let scale = 1.0 / (sum_lanes(sums) / x.len() as f32 + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

pub(super) fn layer_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut sums = [0.0f32; LANES];
    for (i, x) in x.iter().enumerate() {
        sums[i % LANES] += x;
    }
    let mean = sum_lanes(sums) / x.len() as f32;
    let mut squares = [0.0f32; LANES];
    for (i, x) in x.iter().enumerate() {
        squares[i % LANES] = (x - mean).mul_add(x - mean, squares[i % LANES]);
    }
    let scale = 1.0 / (sum_lanes(squares) / x.len() as f32 + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = (x - mean) * scale * weight;
    }
}

/// Plain loops that the compiler vectorizes under each instruction set; one lane per element, so bits cannot differ.
#[inline(always)]
pub(super) fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// Likewise.
#[inline(always)]
pub(super) fn add_product(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a.mul_add(*b, *out);
    }
}

#[inline(always)]
pub(super) fn add_weighted(x: &[f32], rows: &[u32], weights: &[f32], sums: &mut [f32]) {
    let sums = sums.as_chunks_mut::<LANES>().0;
    for ((x, row), weight) in x.as_chunks::<LANES>().0.iter().zip(rows).zip(weights) {
        for (sum, x) in sums[*row as usize].iter_mut().zip(x) {
            *sum = weight.mul_add(*x, *sum);
        }
    }
}

#[inline(always)]
pub(super) fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
    match pairs {
        Pairs::HalfSplit => {
            let (first, second) = x.split_at_mut(cos.len());
            for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (a.mul_add(*cos, -(*b * sin)), a.mul_add(*sin, *b * cos));
            }
        }
        Pairs::Interleaved => {
            for (([a, b], cos), sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                (*a, *b) = (a.mul_add(*cos, -(*b * sin)), a.mul_add(*sin, *b * cos));
            }
        }
    }
}

#[inline(always)]
pub(super) fn peaks(row: &[f32], out: &mut [f32]) {
    for (out, stretch) in out.iter_mut().zip(row.chunks(PEAK)) {
        let finite = stretch.iter().all(|x| x.is_finite());
        let most = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // of zeros the positive one, whichever comes first
        *out = if finite { most + 0.0 } else { f32::NAN };
    }
}

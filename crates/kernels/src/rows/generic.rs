//! Row ops over 16 lanes, for every instruction set that has them.

use super::PEAK;
use crate::lanes::{Simd, load_part, to_array};
use crate::math::{LANES, max_lanes, sum_lanes};

#[inline(always)]
pub(super) fn rms_norm<S: Simd>(simd: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mut sums = simd.splat(0.0);
    for vector in vectors {
        let v = simd.load(vector);
        sums = simd.fma(v, v, sums);
    }
    let v = load_part(simd, rest);
    sums = simd.fma(v, v, sums);
    let scale = 1.0 / (sum_lanes(to_array(simd, sums)) / x.len() as f32 + eps).sqrt();
    let (weights, weight_rest) = weight.as_chunks::<LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    let by = simd.splat(scale);
    for ((out, x), weight) in outs.iter_mut().zip(vectors).zip(weights) {
        simd.store(simd.mul(simd.mul(simd.load(x), by), simd.load(weight)), out);
    }
    for ((out, x), weight) in out_rest.iter_mut().zip(rest).zip(weight_rest) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
pub(super) fn layer_norm<S: Simd>(simd: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mut sums = simd.splat(0.0);
    for vector in vectors {
        sums = simd.add(sums, simd.load(vector));
    }
    sums = simd.add(sums, load_part(simd, rest));
    let mean = sum_lanes(to_array(simd, sums)) / x.len() as f32;
    let middle = simd.splat(mean);
    let mut squares = simd.splat(0.0);
    for vector in vectors {
        let v = simd.sub(simd.load(vector), middle);
        squares = simd.fma(v, v, squares);
    }
    // lanes beyond the row stand at the mean
    let v = simd.sub(simd.first(load_part(simd, rest), rest.len(), middle), middle);
    squares = simd.fma(v, v, squares);
    let scale = 1.0 / (sum_lanes(to_array(simd, squares)) / x.len() as f32 + eps).sqrt();
    let (weights, weight_rest) = weight.as_chunks::<LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    let by = simd.splat(scale);
    for ((out, x), weight) in outs.iter_mut().zip(vectors).zip(weights) {
        let v = simd.mul(simd.sub(simd.load(x), middle), by);
        simd.store(simd.mul(v, simd.load(weight)), out);
    }
    for ((out, x), weight) in out_rest.iter_mut().zip(rest).zip(weight_rest) {
        *out = (x - mean) * scale * weight;
    }
}

#[inline(always)]
pub(super) fn peaks<S: Simd>(simd: S, row: &[f32], out: &mut [f32]) {
    let lowest = simd.splat(f32::NEG_INFINITY);
    for (out, stretch) in out.iter_mut().zip(row.chunks(PEAK)) {
        // times 0 is NaN for what is not finite, and adds nothing otherwise
        let (mut most, mut zeros) = (lowest, simd.splat(0.0));
        let (vectors, rest) = stretch.as_chunks::<LANES>();
        for vector in vectors {
            let v = simd.load(vector);
            most = simd.max(v, most);
            zeros = simd.fma(v, simd.splat(0.0), zeros);
        }
        let v = load_part(simd, rest);
        most = simd.max(simd.first(v, rest.len(), lowest), most);
        zeros = simd.fma(v, simd.splat(0.0), zeros);
        *out = max_lanes(to_array(simd, most)) + sum_lanes(to_array(simd, zeros));
    }
}

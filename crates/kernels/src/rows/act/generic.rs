//! Activations over 16 lanes, for every instruction set that has them.
//!
//! Which activation it is, is known outside of the loops: each has loops of its own.

use super::{GELU_CUBIC, GELU_LINEAR, Gated, Unary};
use crate::lanes::{Simd, erfc, exp, exp_m1, ln_1p, load_part, tanh, to_array};
use crate::math::LANES;

/// The [`ACT`](super::ACT) op.
#[inline(always)]
pub(in crate::rows) fn act_all<S: Simd>(simd: S, act: Unary, x: &mut [f32]) {
    match act {
        Unary::Silu => each(simd, Unary::Silu, x),
        Unary::Sigmoid => each(simd, Unary::Sigmoid, x),
        Unary::Gelu => each(simd, Unary::Gelu, x),
        Unary::GeluErf => each(simd, Unary::GeluErf, x),
        Unary::Relu => each(simd, Unary::Relu, x),
        Unary::Relu2 => each(simd, Unary::Relu2, x),
        Unary::Softplus => each(simd, Unary::Softplus, x),
        Unary::Tanh => each(simd, Unary::Tanh, x),
        Unary::Exp => each(simd, Unary::Exp, x),
        Unary::Identity => {}
        Unary::Softcap(c) => each(simd, Unary::Softcap(c), x),
        Unary::Clamp(c) => each(simd, Unary::Clamp(c), x),
        Unary::Xielu { alpha_p, alpha_n, beta, eps } => {
            each(simd, Unary::Xielu { alpha_p, alpha_n, beta, eps }, x);
        }
    }
}

/// The [`GATED`](super::GATED) op.
#[inline(always)]
pub(in crate::rows) fn gated_all<S: Simd>(
    simd: S,
    act: Gated,
    gates: &[f32],
    ups: &[f32],
    out: &mut [f32],
) {
    match act {
        Gated::Unary(Unary::Silu) => each_pair(simd, Gated::Unary(Unary::Silu), gates, ups, out),
        Gated::Unary(Unary::Sigmoid) => {
            each_pair(simd, Gated::Unary(Unary::Sigmoid), gates, ups, out)
        }
        Gated::Unary(Unary::Gelu) => each_pair(simd, Gated::Unary(Unary::Gelu), gates, ups, out),
        Gated::Unary(Unary::GeluErf) => {
            each_pair(simd, Gated::Unary(Unary::GeluErf), gates, ups, out)
        }
        Gated::Unary(Unary::Relu) => each_pair(simd, Gated::Unary(Unary::Relu), gates, ups, out),
        Gated::Unary(Unary::Relu2) => each_pair(simd, Gated::Unary(Unary::Relu2), gates, ups, out),
        Gated::Unary(Unary::Softplus) => {
            each_pair(simd, Gated::Unary(Unary::Softplus), gates, ups, out)
        }
        Gated::Unary(Unary::Tanh) => each_pair(simd, Gated::Unary(Unary::Tanh), gates, ups, out),
        Gated::Unary(Unary::Exp) => each_pair(simd, Gated::Unary(Unary::Exp), gates, ups, out),
        Gated::Unary(Unary::Identity) => {
            each_pair(simd, Gated::Unary(Unary::Identity), gates, ups, out)
        }
        Gated::Unary(Unary::Softcap(c)) => {
            each_pair(simd, Gated::Unary(Unary::Softcap(c)), gates, ups, out)
        }
        Gated::Unary(Unary::Clamp(c)) => {
            each_pair(simd, Gated::Unary(Unary::Clamp(c)), gates, ups, out)
        }
        Gated::Unary(Unary::Xielu { alpha_p, alpha_n, beta, eps }) => {
            each_pair(
                simd,
                Gated::Unary(Unary::Xielu { alpha_p, alpha_n, beta, eps }),
                gates,
                ups,
                out,
            );
        }
        Gated::SwigluOai { alpha, limit } => {
            each_pair(simd, Gated::SwigluOai { alpha, limit }, gates, ups, out)
        }
        Gated::ClampedSwiglu { limit, after: false } => {
            each_pair(simd, Gated::ClampedSwiglu { limit, after: false }, gates, ups, out);
        }
        Gated::ClampedSwiglu { limit, after: true } => {
            each_pair(simd, Gated::ClampedSwiglu { limit, after: true }, gates, ups, out);
        }
        Gated::Situ { gate, up } => each_pair(simd, Gated::Situ { gate, up }, gates, ups, out),
    }
}

#[inline(always)]
fn each<S: Simd>(simd: S, act: Unary, x: &mut [f32]) {
    let (vectors, rest) = x.as_chunks_mut::<LANES>();
    for vector in vectors {
        simd.store(unary(simd, act, simd.load(vector)), vector);
    }
    let last = to_array(simd, unary(simd, act, load_part(simd, rest)));
    rest.copy_from_slice(&last[..rest.len()]);
}

#[inline(always)]
fn each_pair<S: Simd>(simd: S, act: Gated, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let (gates, gate_rest) = gate.as_chunks::<LANES>();
    let (ups, up_rest) = up.as_chunks::<LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    for ((out, gate), up) in outs.iter_mut().zip(gates).zip(ups) {
        simd.store(gated(simd, act, simd.load(gate), simd.load(up)), out);
    }
    let (gate, up) = (load_part(simd, gate_rest), load_part(simd, up_rest));
    let last = to_array(simd, gated(simd, act, gate, up));
    out_rest.copy_from_slice(&last[..out_rest.len()]);
}

/// `x / (1 + exp(y))`.
#[inline(always)]
fn logistic<S: Simd>(simd: S, x: S::V, y: S::V) -> S::V {
    simd.div(x, simd.add(simd.splat(1.0), exp(simd, y)))
}

#[inline(always)]
fn unary<S: Simd>(simd: S, act: Unary, x: S::V) -> S::V {
    let zero = simd.splat(0.0);
    match act {
        Unary::Silu => logistic(simd, x, simd.sub(zero, x)),
        Unary::Sigmoid => logistic(simd, simd.splat(1.0), simd.sub(zero, x)),
        Unary::Gelu => {
            let (cubic, linear) = (simd.splat(GELU_CUBIC), simd.splat(GELU_LINEAR));
            let slope = simd.fma(simd.mul(x, x), cubic, linear);
            logistic(simd, x, simd.mul(x, slope))
        }
        Unary::GeluErf => {
            let tail = erfc(simd, simd.mul(x, simd.splat(-std::f32::consts::FRAC_1_SQRT_2)));
            simd.mul(simd.mul(simd.splat(0.5), x), tail)
        }
        Unary::Relu => at_least(simd, x, zero),
        Unary::Relu2 => {
            let x = at_least(simd, x, zero);
            simd.mul(x, x)
        }
        Unary::Softplus => {
            let size = simd.max(x, simd.sub(zero, x));
            let rest = ln_1p(simd, exp(simd, simd.sub(zero, size)));
            simd.add(simd.max(x, zero), rest)
        }
        Unary::Tanh => tanh(simd, x),
        Unary::Exp => exp(simd, x),
        Unary::Identity => x,
        Unary::Softcap(c) => simd.mul(simd.splat(c), tanh(simd, simd.mul(x, simd.splat(1.0 / c)))),
        Unary::Clamp(c) => clamp(simd, x, c),
        Unary::Xielu { alpha_p, alpha_n, beta, eps } => {
            let above = simd.mul(simd.mul(simd.splat(alpha_p), x), x);
            let low = exp_m1(simd, simd.min(x, simd.splat(eps)));
            let below = simd.mul(simd.splat(alpha_n), simd.sub(low, x));
            simd.fma(simd.splat(beta), x, simd.less(zero, x, above, below))
        }
    }
}

#[inline(always)]
fn gated<S: Simd>(simd: S, act: Gated, g: S::V, u: S::V) -> S::V {
    match act {
        Gated::Unary(act) => simd.mul(unary(simd, act, g), u),
        Gated::SwigluOai { alpha, limit } => {
            let g = at_most(simd, g, simd.splat(limit));
            let factor = logistic(simd, g, simd.mul(g, simd.splat(-alpha)));
            simd.mul(factor, simd.add(clamp(simd, u, limit), simd.splat(1.0)))
        }
        Gated::ClampedSwiglu { limit, after } => {
            let bound = simd.splat(limit);
            let factor = if after {
                at_most(simd, unary(simd, Unary::Silu, g), bound)
            } else {
                unary(simd, Unary::Silu, at_most(simd, g, bound))
            };
            simd.mul(factor, clamp(simd, u, limit))
        }
        Gated::Situ { gate, up } => {
            let factor = unary(simd, Unary::Softcap(gate), g);
            let factor = simd.mul(factor, unary(simd, Unary::Sigmoid, g));
            simd.mul(factor, unary(simd, Unary::Softcap(up), u))
        }
    }
}

/// NaN stays NaN.
#[inline(always)]
fn at_most<S: Simd>(simd: S, x: S::V, bound: S::V) -> S::V {
    simd.less(bound, x, bound, x)
}

/// NaN stays NaN.
#[inline(always)]
fn at_least<S: Simd>(simd: S, x: S::V, bound: S::V) -> S::V {
    simd.less(x, bound, bound, x)
}

/// NaN stays NaN.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::V, limit: f32) -> S::V {
    at_least(simd, at_most(simd, x, simd.splat(limit)), simd.splat(-limit))
}

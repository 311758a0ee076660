//! Activations one number at a time: what every other kernel must repeat to the bit.

use super::{GELU_CUBIC, GELU_LINEAR, Gated, Unary};
use crate::math::{erfc, exp, exp_m1, greater, ln_1p, tanh};

/// The [`ACT`](super::ACT) op.
pub(super) fn act_all(act: Unary, x: &mut [f32]) {
    for x in x {
        *x = unary(act, *x);
    }
}

/// The [`GATED`](super::GATED) op.
pub(super) fn gated_all(act: Gated, gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gated(act, *gate, *up);
    }
}

fn unary(act: Unary, x: f32) -> f32 {
    match act {
        Unary::Silu => x / (1.0 + exp(-x)),
        Unary::Sigmoid => 1.0 / (1.0 + exp(-x)),
        Unary::Gelu => x / (1.0 + exp(x * (x * x).mul_add(GELU_CUBIC, GELU_LINEAR))),
        Unary::GeluErf => 0.5 * x * erfc(x * -std::f32::consts::FRAC_1_SQRT_2),
        Unary::Relu => at_least(x, 0.0),
        Unary::Relu2 => at_least(x, 0.0) * at_least(x, 0.0),
        Unary::Softplus => greater(x, 0.0) + ln_1p(exp(-greater(x, -x))),
        Unary::Tanh => tanh(x),
        Unary::Exp => exp(x),
        Unary::Identity => x,
        Unary::Softcap(c) => c * tanh(x * (1.0 / c)),
        Unary::Clamp(c) => at_least(at_most(x, c), -c),
        Unary::Xielu { alpha_p, alpha_n, beta, eps } => {
            let low = if x < eps { x } else { eps };
            let curved = if 0.0 < x { alpha_p * x * x } else { alpha_n * (exp_m1(low) - x) };
            beta.mul_add(x, curved)
        }
    }
}

fn gated(act: Gated, g: f32, u: f32) -> f32 {
    match act {
        Gated::Unary(act) => unary(act, g) * u,
        Gated::SwigluOai { alpha, limit } => {
            let (g, u) = (at_most(g, limit), at_least(at_most(u, limit), -limit));
            g / (1.0 + exp(g * -alpha)) * (u + 1.0)
        }
        Gated::ClampedSwiglu { limit, after } => {
            let factor = if after {
                at_most(unary(Unary::Silu, g), limit)
            } else {
                unary(Unary::Silu, at_most(g, limit))
            };
            factor * at_least(at_most(u, limit), -limit)
        }
        Gated::Situ { gate, up } => {
            let factor = unary(Unary::Softcap(gate), g) * unary(Unary::Sigmoid, g);
            factor * unary(Unary::Softcap(up), u)
        }
    }
}

/// NaN stays NaN.
fn at_most(x: f32, bound: f32) -> f32 {
    if bound < x { bound } else { x }
}

/// NaN stays NaN.
fn at_least(x: f32, bound: f32) -> f32 {
    if x < bound { bound } else { x }
}

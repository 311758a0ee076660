//! Activations of a program as the kernels name them.

use kernels::rows::{Gated, Unary};
use program::{Act, Gate};

pub(super) fn unary(act: Act) -> Unary {
    match act {
        Act::Silu => Unary::Silu,
        Act::Sigmoid => Unary::Sigmoid,
        Act::Gelu => Unary::Gelu,
        Act::GeluErf => Unary::GeluErf,
        Act::Relu => Unary::Relu,
        Act::Relu2 => Unary::Relu2,
        Act::Softplus => Unary::Softplus,
        Act::Tanh => Unary::Tanh,
        Act::Exp => Unary::Exp,
        Act::Identity => Unary::Identity,
        Act::Softcap(c) => Unary::Softcap(c),
        Act::Clamp(c) => Unary::Clamp(c),
        Act::Xielu { alpha_p, alpha_n, beta, eps } => Unary::Xielu { alpha_p, alpha_n, beta, eps },
    }
}

pub(super) fn gated(gate: Gate) -> Gated {
    match gate {
        // experts have no other use for it
        Gate::Act(act) | Gate::Alone(act) => Gated::Unary(unary(act)),
        Gate::SwigluOai { alpha, limit } => Gated::SwigluOai { alpha, limit },
        Gate::ClampedSwiglu { limit, after } => Gated::ClampedSwiglu { limit, after },
        Gate::Situ { gate, up } => Gated::Situ { gate, up },
    }
}

//! [`Act`] and [`Gate`]: activations of one and of two inputs.

/// An activation of one input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    Gelu,
    /// `0.5 x (1 + erf(x / sqrt(2)))`.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    Relu2,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `tanh(x)`.
    Tanh,
    /// `exp(x)`.
    Exp,
    /// `x`.
    Identity,
    /// `c * tanh(x / c)`, of logits as a rule.
    Softcap(f32),
    /// `x` within `-c` and `c`.
    Clamp(f32),
    /// `alpha_p x^2 + beta x` above 0, `alpha_n (expm1(min(x, eps)) - x) + beta x` elsewhere (arXiv:2411.13010).
    Xielu {
        /// Of the square.
        alpha_p: f32,
        /// Of the exponential.
        alpha_n: f32,
        /// Of the linear part.
        beta: f32,
        /// A number just below 0.
        eps: f32,
    },
}

/// An activation of a gate `g` and of what it lets through, `u`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `act(g) * u`.
    Act(Act),
    /// `act(g)`: of experts, which have no `u` then. Their gate and up are one weight, which holds rows of one matrix.
    Alone(Act),
    /// `g' sigmoid(alpha g') * (u' + 1)`, `g' = min(g, limit)`, `u' = clamp(u, -limit, limit)`: gpt-oss, with 1.702 and 7.
    SwigluOai {
        /// Factor within the sigmoid.
        alpha: f32,
        /// Bound on both inputs.
        limit: f32,
    },
    /// `silu(min(g, limit)) * clamp(u, -limit, limit)`, or `min(silu(g), limit)` as its first factor.
    ClampedSwiglu {
        /// Bound on both.
        limit: f32,
        /// Whether the gate is bounded after silu rather than before.
        after: bool,
    },
    /// `gate tanh(g / gate) sigmoid(g) * up tanh(u / up)`: Kimi K3.
    Situ {
        /// Bound on the gate.
        gate: f32,
        /// Bound on `u`.
        up: f32,
    },
}

impl From<Act> for Gate {
    fn from(act: Act) -> Self {
        Gate::Act(act)
    }
}

impl Act {
    /// Whether its parameters are numbers it can be computed with.
    pub(crate) fn is_sound(&self) -> bool {
        match *self {
            Act::Softcap(c) | Act::Clamp(c) => c.is_finite() && c > 0.0,
            Act::Xielu { alpha_p, alpha_n, beta, eps } => {
                [alpha_p, alpha_n, beta].iter().all(|x| x.is_finite())
                    && eps.is_finite()
                    && eps <= 0.0
            }
            Act::Silu
            | Act::Sigmoid
            | Act::Gelu
            | Act::GeluErf
            | Act::Relu
            | Act::Relu2
            | Act::Softplus
            | Act::Tanh
            | Act::Exp
            | Act::Identity => true,
        }
    }
}

impl Gate {
    /// Whether its parameters are numbers it can be computed with.
    pub(crate) fn is_sound(&self) -> bool {
        let bound = |x: f32| x.is_finite() && x > 0.0;
        match *self {
            Gate::Act(act) | Gate::Alone(act) => act.is_sound(),
            Gate::SwigluOai { alpha, limit } => alpha.is_finite() && bound(limit),
            Gate::ClampedSwiglu { limit, .. } => bound(limit),
            Gate::Situ { gate, up } => bound(gate) && bound(up),
        }
    }
}

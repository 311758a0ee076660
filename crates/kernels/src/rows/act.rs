//! Activations of one and of two inputs.

pub(super) mod generic;
mod naive;

use crate::lanes::Portable;
use crate::{Isa, Kernel, Level, Slot};

/// An activation of one input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, as `x / (1 + exp(..))`.
    Gelu,
    /// `0.5 x erfc(-x / sqrt(2))`.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    Relu2,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `tanh(x)`.
    Tanh,
    /// `exp(x)`, finite everywhere: that of 88 above it.
    Exp,
    /// `x`.
    Identity,
    /// `c * tanh(x / c)`.
    Softcap(f32),
    /// `x` within `-c` and `c`.
    Clamp(f32),
    /// `alpha_p x^2 + beta x` above 0, `alpha_n (expm1(min(x, eps)) - x) + beta x` elsewhere.
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
pub enum Gated {
    /// `act(g) * u`.
    Unary(Unary),
    /// `g' sigmoid(alpha g') * (u' + 1)`, `g' = min(g, limit)`, `u' = clamp(u, -limit, limit)`.
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
    /// `gate tanh(g / gate) sigmoid(g) * up tanh(u / up)`.
    Situ {
        /// Bound on the gate.
        gate: f32,
        /// Bound on `u`.
        up: f32,
    },
}

/// `-2 sqrt(2 / pi)`: [`Unary::Gelu`] is `x / (1 + exp(x * (GELU_LINEAR + GELU_CUBIC x^2)))`.
const GELU_LINEAR: f32 = -1.595_769;
/// `GELU_LINEAR * 0.044715`.
const GELU_CUBIC: f32 = -7.135_481_6e-2;

/// Signature of [`ACT`].
pub type ActFn = unsafe fn(Unary, &mut [f32]);

/// `x = act(x)`, element by element.
pub static ACT: Slot<ActFn> = Slot {
    op: "act",
    naive: Kernel { name: "act/naive", isa: Isa::NONE, level: Level::Naive, run: naive::act_all },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::ACT,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE_ACT],
};

/// [`ACT`] for any instruction set.
pub(super) const PORTABLE_ACT: Kernel<ActFn> = Kernel {
    name: "act/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |act, x| generic::act_all(Portable, act, x),
};

impl Kernel<ActFn> {
    /// Replace each of any number of elements.
    pub fn call(&self, act: Unary, x: &mut [f32]) {
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(act, x) }
    }
}

/// Signature of [`GATED`].
pub type GatedFn = unsafe fn(Gated, &[f32], &[f32], &mut [f32]);

/// `out = act(gate, up)`, element by element.
pub static GATED: Slot<GatedFn> = Slot {
    op: "gated",
    naive: Kernel {
        name: "gated/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::gated_all,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::GATED,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE_GATED],
};

/// [`GATED`] for any instruction set.
pub(super) const PORTABLE_GATED: Kernel<GatedFn> = Kernel {
    name: "gated/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |act, gate, up, out| generic::gated_all(Portable, act, gate, up, out),
};

impl Kernel<GatedFn> {
    /// Combine gates and ups, any number of them.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn call(&self, act: Gated, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert_eq!((gate.len(), up.len()), (out.len(), out.len()), "gates, ups and results");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(act, gate, up, out) }
    }
}

//! Activations of one and of two inputs, alone and after matrices.

use program::{Act, Executor, Gate, Recorder, Result, ValueId};
use quant::GgmlType;

use super::ops::{VOCAB, check, input, weight};

pub(super) const ACTS: [Act; 13] = [
    Act::Silu,
    Act::Sigmoid,
    Act::Gelu,
    Act::GeluErf,
    Act::Relu,
    Act::Relu2,
    Act::Softplus,
    Act::Tanh,
    Act::Exp,
    Act::Identity,
    Act::Softcap(3.0),
    Act::Clamp(2.5),
    Act::Xielu { alpha_p: 0.8, alpha_n: 0.9, beta: 0.5, eps: -1e-6 },
];

pub(super) fn all_gates() -> impl Iterator<Item = Gate> {
    let more = [
        Gate::SwigluOai { alpha: 1.702, limit: 7.0 },
        Gate::SwigluOai { alpha: 1.702, limit: 0.5 },
        Gate::ClampedSwiglu { limit: 0.4, after: false },
        Gate::ClampedSwiglu { limit: 0.4, after: true },
        Gate::Situ { gate: 1.5, up: 0.7 },
    ];
    ACTS.into_iter().map(Gate::Act).chain(more)
}

fn matrix(r: &Recorder, name: &str, x: ValueId, rows: usize) -> Result<ValueId> {
    let cols = r.shape(x).cols();
    r.linear(name, x, weight(r, &format!("{name}.weight"), GgmlType::F32, rows, cols))
}

pub(super) fn unary(executor: &dyn Executor) {
    for act in ACTS {
        for cols in [1, 37, 515] {
            check(executor, 1e-11, &format!("{act:?} of {cols}"), |r| {
                r.act("act", act, r.scale("large", input(r, cols)?, 9.0)?)
            });
        }
        check(executor, 1e-9, &format!("{act:?} after a matrix, before another"), |r| {
            let up = r.act("act", act, matrix(r, "up", input(r, 37)?, 50)?)?;
            matrix(r, "down", up, 33)
        });
        check(executor, 1e-9, &format!("{act:?} of a matrix and a sum"), |r| {
            let x = input(r, 37)?;
            let sum = r.add("sum", matrix(r, "up", x, 37)?, x)?;
            r.add("residual", r.act("act", act, sum)?, x)
        });
    }
}

pub(super) fn gates(executor: &dyn Executor) {
    for gate in all_gates() {
        for cols in [1, 37, 515] {
            check(executor, 1e-11, &format!("{gate:?} of {cols}"), |r| {
                let other = weight(r, "token_embd.gate.weight", GgmlType::F32, VOCAB, cols);
                let g = r.scale("large", r.embed(other)?, 9.0)?;
                r.gated_act("act", gate, g, r.scale("up", input(r, cols)?, 3.0)?)
            });
        }
        check(executor, 1e-9, &format!("{gate:?} of two matrices"), |r| {
            let x = input(r, 37)?;
            let (g, u) = (matrix(r, "gate", x, 50)?, matrix(r, "up", x, 50)?);
            matrix(r, "down", r.gated_act("act", gate, g, u)?, 33)
        });
    }
}

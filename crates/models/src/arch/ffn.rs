//! Feed-forward layers: that of every token, and those of a few.

use program::{Act, ExpertBiases, ExpertWeights, Gate, ValueId};

use super::decoder::Layer;
use crate::{Bias, Experts, Result};

/// A layer `down . gate(gate . x, up . x)`.
#[derive(Clone, Copy)]
pub(super) struct Gated {
    /// Of the tensors `ffn_gate`, `ffn_up` and `ffn_down`.
    pub(super) suffix: &'static str,
    /// Width inside.
    pub(super) width: usize,
    pub(super) act: Gate,
    pub(super) bias: Bias,
    /// Gate and up are rows of one tensor, `ffn_up`, in this order.
    pub(super) joint: bool,
}

impl Gated {
    /// The layer's own, as most models have it.
    pub(super) fn of(l: &Layer<'_>) -> Gated {
        Gated {
            suffix: "",
            width: l.config.intermediate_size,
            act: l.config.gate,
            bias: Bias::IfPresent,
            joint: false,
        }
    }

    /// That of every token beside experts.
    pub(super) fn shared(l: &Layer<'_>, e: &Experts) -> Gated {
        let (width, act) = (e.shared_intermediate_size, e.shared_act);
        Gated { suffix: "_shexp", width, act, ..Gated::of(l) }
    }

    pub(super) fn record(self, l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
        let Gated { suffix, width, act, bias, joint } = self;
        if let Gate::Alone(act) = act {
            let hidden_size = l.r.shape(x).cols();
            let u = l.linear(&format!("ffn_up{suffix}"), x, width, bias)?;
            let u = l.r.act(&format!("ffn_act{suffix}"), act, u)?;
            return l.linear(&format!("ffn_down{suffix}"), u, hidden_size, bias);
        }
        let hidden_size = l.r.shape(x).cols();
        let [gate, up, down] = ["gate", "up", "down"].map(|name| format!("ffn_{name}{suffix}"));
        let [g, u] = if joint {
            l.joint(&up, x, [&gate, &up], [width; 2], bias)?
        } else {
            [l.linear(&gate, x, width, bias)?, l.linear(&up, x, width, bias)?]
        };
        let g = l.r.gated_act(&format!("ffn_act{suffix}"), act, g, u)?;
        l.linear(&down, g, hidden_size, bias)
    }
}

/// A layer without a gate: `down . act(up . x)`.
pub(super) fn ungated(l: &Layer<'_>, act: Act, x: ValueId) -> Result<ValueId> {
    let hidden_size = l.r.shape(x).cols();
    let u = l.linear("ffn_up", x, l.config.intermediate_size, Bias::IfPresent)?;
    let u = l.r.act("ffn_act", act, u)?;
    l.linear("ffn_down", u, hidden_size, Bias::IfPresent)
}

/// The layer as its settings say: experts and one that every token uses beside them, or dense with SiLU.
pub(super) fn feed(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let Some(e) = &l.config.experts else { return Gated::of(l).record(l, x) };
    with_shared(l, e, x, experts(l, e, x, x)?)
}

/// `f` plus what the expert that every token uses makes of `x`, if there is one.
pub(super) fn with_shared(l: &Layer<'_>, e: &Experts, x: ValueId, f: ValueId) -> Result<ValueId> {
    if e.shared_intermediate_size == 0 {
        return Ok(f);
    }
    let shared = Gated::shared(l, e).record(l, x)?;
    l.add("ffn_out", f, shared)
}

/// The weighted sum of the experts of `x` that the router chooses for each row, by what it reads of it, `by`.
pub(super) fn experts(l: &Layer<'_>, e: &Experts, x: ValueId, by: ValueId) -> Result<ValueId> {
    let scores = l.linear("ffn_gate_inp", by, e.n_experts, e.biases)?; // [n, n_experts]
    mixed(l, e, x, scores)
}

/// The same by these scores.
pub(super) fn mixed(l: &Layer<'_>, e: &Experts, x: ValueId, scores: ValueId) -> Result<ValueId> {
    let hidden_size = l.r.shape(x).cols();
    let (n, width) = (e.n_experts, e.intermediate_size);
    let bias = e.bias.map(|name| l.w.tensor(name, n)).transpose()?;
    let factors = e.factors.then(|| l.w.tensor("ffn_down_exps.scale", n)).transpose()?;
    let routes = l.r.route("ffn_routes", scores, e.router(bias, factors))?; // [n, 2 * n_experts_used]
    let [gate, up] = if matches!(e.act, Gate::Alone(_)) {
        [l.w.stack("ffn_up_exps", n, width, hidden_size)?; 2]
    } else if e.joint {
        [l.w.stack("ffn_gate_up_exps", n, 2 * width, hidden_size)?; 2]
    } else {
        let [gate, up] =
            ["ffn_gate_exps", "ffn_up_exps"].map(|name| l.w.stack(name, n, width, hidden_size));
        [gate?, up?]
    };
    let weights = ExpertWeights {
        gate,
        up,
        down: l.w.stack("ffn_down_exps", n, hidden_size, width)?,
        biases: match e.biases {
            Bias::Never => None,
            Bias::Always | Bias::IfPresent => Some(ExpertBiases {
                gate: l.w.biases("ffn_gate_exps", n, width)?,
                up: l.w.biases("ffn_up_exps", n, width)?,
                down: l.w.biases("ffn_down_exps", n, hidden_size)?,
            }),
        },
        n_experts: n,
        weighs_inputs: e.weighs_inputs,
    };
    Ok(l.r.experts("ffn_exps", weights, e.act, x, routes)?) // [n, hidden_size]
}

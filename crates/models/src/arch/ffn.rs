//! Feed-forward layers: that of every token, and those of a few.

use program::{Act, ExpertWeights, ValueId};

use super::decoder::Layer;
use crate::{Bias, Experts, Result};

/// A layer `down . (act(gate . x) * (up . x))`.
#[derive(Clone, Copy)]
pub(super) struct Gated {
    /// Of the tensors `ffn_gate`, `ffn_up` and `ffn_down`.
    pub(super) suffix: &'static str,
    /// Width inside.
    pub(super) width: usize,
    pub(super) act: Act,
    pub(super) bias: Bias,
}

impl Gated {
    /// The layer's own, as most models have it.
    pub(super) fn of(l: &Layer<'_>) -> Gated {
        Gated { suffix: "", width: l.config.intermediate_size, act: Act::Silu, bias: Bias::Never }
    }

    /// That of every token beside experts.
    pub(super) fn shared(e: &Experts) -> Gated {
        let width = e.shared_intermediate_size;
        Gated { suffix: "_shexp", width, act: Act::Silu, bias: Bias::Never }
    }

    pub(super) fn record(self, l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
        let Gated { suffix, width, act, bias } = self;
        let hidden_size = l.r.shape(x).cols();
        let g = l.linear(&format!("ffn_gate{suffix}"), x, width, bias)?;
        let u = l.linear(&format!("ffn_up{suffix}"), x, width, bias)?;
        let g = l.r.gated_act(&format!("ffn_act{suffix}"), act, g, u)?;
        l.linear(&format!("ffn_down{suffix}"), g, hidden_size, bias)
    }
}

/// The layer as its settings say: experts, or dense with SiLU and no bias.
pub(super) fn feed(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    match &l.config.experts {
        Some(e) => experts(l, e, x),
        None => Gated::of(l).record(l, x),
    }
}

/// The weighted sum of the experts that each row's router chooses.
pub(super) fn experts(l: &Layer<'_>, e: &Experts, x: ValueId) -> Result<ValueId> {
    let hidden_size = l.r.shape(x).cols();
    let (n, width) = (e.n_experts, e.intermediate_size);
    let scores = l.linear("ffn_gate_inp", x, n, Bias::Never)?; // [n, n_experts]
    let bias = e.bias.then(|| l.w.bias("exp_probs_b", n)).transpose()?;
    let routes = l.r.route("ffn_routes", scores, e.router(bias))?; // [n, 2 * n_experts_used]
    let weights = ExpertWeights {
        gate: l.w.stack("ffn_gate_exps", n, width, hidden_size)?,
        up: l.w.stack("ffn_up_exps", n, width, hidden_size)?,
        down: l.w.stack("ffn_down_exps", n, hidden_size, width)?,
        n_experts: n,
    };
    Ok(l.r.experts("ffn_exps", weights, Act::Silu, x, routes)?) // [n, hidden_size]
}

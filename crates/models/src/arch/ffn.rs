//! Feed-forward layers: that of every token, and those of a few.

use program::{Act, ExpertWeights, Recorder, ValueId};

use crate::{Experts, Result, Weights};

/// `down . (silu(gate . x) * (up . x))` of the tensors `ffn_gate`, `ffn_up` and `ffn_down` with this suffix.
pub(super) fn gated(
    r: &Recorder,
    w: &Weights<'_>,
    suffix: &str,
    width: usize,
    x: ValueId,
) -> Result<ValueId> {
    let hidden_size = r.shape(x).cols();
    let [gate, up, act, down] =
        ["ffn_gate", "ffn_up", "ffn_act", "ffn_down"].map(|name| format!("{name}{suffix}"));
    let g = r.linear(&gate, x, w.matrix(&gate, width, hidden_size)?)?;
    let u = r.linear(&up, x, w.matrix(&up, width, hidden_size)?)?;
    let g = r.gated_act(&act, Act::Silu, g, u)?;
    Ok(r.linear(&down, g, w.matrix(&down, hidden_size, width)?)?)
}

/// The weighted sum of the experts that each row's router chooses.
pub(super) fn experts(r: &Recorder, w: &Weights<'_>, e: &Experts, x: ValueId) -> Result<ValueId> {
    let hidden_size = r.shape(x).cols();
    let (n, width) = (e.n_experts, e.intermediate_size);
    let scores = r.linear("ffn_gate_inp", x, w.matrix("ffn_gate_inp", n, hidden_size)?)?; // [n, n_experts]
    let bias = e.bias.then(|| w.bias("exp_probs_b", n)).transpose()?;
    let routes = r.route("ffn_routes", scores, e.router(bias))?; // [n, 2 * n_experts_used]
    let weights = ExpertWeights {
        gate: w.stack("ffn_gate_exps", n, width, hidden_size)?,
        up: w.stack("ffn_up_exps", n, width, hidden_size)?,
        down: w.stack("ffn_down_exps", n, hidden_size, width)?,
        n_experts: n,
    };
    Ok(r.experts("ffn_exps", weights, Act::Silu, x, routes)?) // [n, hidden_size]
}

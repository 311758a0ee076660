//! GroveMoE: experts in chunks, each with a further expert that is used where one of the chunk is chosen.
//!
//! The further ones read what the experts' sum is, and a row weighs them by the scores of the experts that have their
//! numbers: so llama.cpp computes files of this kind. Source: arXiv:2508.07785, section 3; tensor names of GGUF's `grovemoe`.

use program::{ExpertWeights, Router, ValueId};

use super::Architecture;
use super::attention::Heads;
use super::decoder::{Layer, Norms, blocks};
use super::{ffn, qwen3};
use crate::config::experts::Chunks;
use crate::{Error, Experts, Result};

pub(super) static GROVE_MOE: Architecture = Architecture {
    name: "grovemoe",
    config: |keys| {
        let mut c = (qwen3::QWEN3_MOE.config)(keys)?;
        let width = keys.required("expert_chunk_feed_forward_length", 1..=1 << 24)?;
        let scale = keys.require("expert_group_scale", keys.positive("expert_group_scale")?)?;
        for experts in c.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
            let n = experts.n_experts;
            let per_chunk = keys.required("experts_per_group", 1..=n as u64)?;
            if !n.is_multiple_of(per_chunk) {
                let expected = format!("a divisor of expert_count {n}");
                return Err(Error::key(&keys.name("experts_per_group"), expected, per_chunk));
            }
            experts.chunks = Some(Chunks { per_chunk, intermediate_size: width, scale });
        }
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::NORMED, feed),
};

/// The experts of each row, and those of their chunks.
fn feed(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let e = l.config.experts.as_ref().ok_or_else(|| Error::incomplete(l.model))?;
    let chunks = e.chunks.ok_or_else(|| Error::incomplete(l.model))?;
    let scores = l.linear("ffn_gate_inp", x, e.n_experts, e.biases)?; // [n, n_experts]
    let own = ffn::mixed(l, e, x, scores)?;
    let shared = shared(l, e, chunks, own, scores)?;
    let shared = l.r.scale("ffn_chexps_scaled", shared, chunks.scale)?;
    l.add("ffn_out", own, shared)
}

/// The weighted sum of what the chunks of the chosen experts make of `x`.
fn shared(
    l: &Layer<'_>,
    e: &Experts,
    chunks: Chunks,
    x: ValueId,
    scores: ValueId,
) -> Result<ValueId> {
    let Chunks { per_chunk, intermediate_size: width, .. } = chunks;
    let (n, hidden_size) = (e.n_experts / per_chunk, l.r.shape(x).cols());
    let n_used = e.n_experts_used.min(n);
    let router = Router { n_used, per_chunk, normalize: true, ..e.router(None, None) };
    let routes = l.r.route("ffn_chunk_routes", scores, router)?; // [n, 2 * n_used]
    let [gate, up] =
        ["ffn_gate_chexps", "ffn_up_chexps"].map(|name| l.w.stack(name, n, width, hidden_size));
    let weights = ExpertWeights {
        gate: gate?,
        up: up?,
        down: l.w.stack("ffn_down_chexps", n, hidden_size, width)?,
        biases: None,
        n_experts: n,
        weighs_inputs: false,
    };
    Ok(l.r.experts("ffn_chexps", weights, e.act, x, routes)?) // [n, hidden_size]
}

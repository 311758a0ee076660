//! Qwen3: norms on each head of q and k before the rotation, no biases, a head width of its own.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3`.

use program::{Recorder, ValueId};

use super::{Architecture, attention, ffn};
use crate::{ModelConfig, Result, Weights};

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn record(&self, r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
        let (hidden_size, eps) = (c.hidden_size, c.rms_norm_eps);
        let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
        for i in 0..c.n_layers {
            r.layer(Some(i));
            let w = w.layer(i);
            x = attend(r, &w, c, i, x)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let f = ffn::gated(r, &w, "", c.intermediate_size, h)?;
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

/// `x` and what layer `i` attends to, with norms on each head of q and k.
pub(super) fn attend(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    i: usize,
    x: ValueId,
) -> Result<ValueId> {
    let ModelConfig { hidden_size, n_heads, n_kv_heads, head_dim, value_dim, .. } = *c;
    let eps = c.rms_norm_eps;
    let h = r.rms_norm("attn_norm", x, w.vector("attn_norm", hidden_size)?, eps)?;
    let q = r.linear("attn_q", h, w.matrix("attn_q", n_heads * head_dim, hidden_size)?)?;
    let k = r.linear("attn_k", h, w.matrix("attn_k", n_kv_heads * head_dim, hidden_size)?)?;
    let v = r.linear("attn_v", h, w.matrix("attn_v", n_kv_heads * value_dim, hidden_size)?)?;
    let q = r.view("q", q, n_heads)?; // [n, n_heads, head_dim]
    let k = r.view("k", k, n_kv_heads)?;
    let v = r.view("v", v, n_kv_heads)?;
    let q = r.rms_norm("attn_q_norm", q, w.vector("attn_q_norm", head_dim)?, eps)?;
    let k = r.rms_norm("attn_k_norm", k, w.vector("attn_k_norm", head_dim)?, eps)?;
    attention::half_split(r, w, c, (i, x), [q, k, v])
}

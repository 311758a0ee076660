//! Qwen1.5, Qwen2 and Qwen2.5: biases on q, k and v; half-split rotation; multi-head or grouped-query attention.
//!
//! Source: arXiv:2407.10671, section 2.2; tensor names of GGUF's `qwen2`.

use program::{Recorder, ValueId};

use super::{Architecture, attention, ffn};
use crate::{ModelConfig, Result, Weights};

pub(super) struct Qwen2;

impl Architecture for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
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

/// `x` and what layer `i` attends to, with biases on q, k and v.
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
    let q = r.linear("attn_q", h, w.biased("attn_q", n_heads * head_dim, hidden_size)?)?;
    let k = r.linear("attn_k", h, w.biased("attn_k", n_kv_heads * head_dim, hidden_size)?)?;
    let v = r.linear("attn_v", h, w.biased("attn_v", n_kv_heads * value_dim, hidden_size)?)?;
    let q = r.view("q", q, n_heads)?; // [n, n_heads, head_dim]
    let k = r.view("k", k, n_kv_heads)?;
    let v = r.view("v", v, n_kv_heads)?;
    attention::half_split(r, w, c, (i, x), [q, k, v])
}

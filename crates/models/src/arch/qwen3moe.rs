//! Qwen3-MoE: the attention of Qwen3, experts whose weights are normalized.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3moe`.

use program::{AttentionSpec, CacheSpec, Recorder, RopePairs, ValueId};

use super::{Architecture, ffn};
use crate::{Error, ModelConfig, Result, Weights};

pub(super) struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn experts(&self) -> bool {
        true
    }

    fn record(&self, r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
        let ModelConfig { hidden_size, n_heads, n_kv_heads, head_dim, value_dim, .. } = *c;
        let e = c.experts.as_ref().ok_or_else(|| Error::incomplete(c))?;
        let eps = c.rms_norm_eps;
        let at = AttentionSpec {
            rope: Some(c.rope(RopePairs::HalfSplit, None)),
            scale: c.attention_scale(),
        };

        let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
        for i in 0..c.n_layers {
            r.layer(Some(i));
            let w = w.layer(i);
            let cache = r.cache(CacheSpec { layer: i, n_kv_heads, key_dim: head_dim, value_dim });

            let h = r.rms_norm("attn_norm", x, w.vector("attn_norm", hidden_size)?, eps)?;
            let q = r.linear("attn_q", h, w.matrix("attn_q", n_heads * head_dim, hidden_size)?)?;
            let k =
                r.linear("attn_k", h, w.matrix("attn_k", n_kv_heads * head_dim, hidden_size)?)?;
            let v =
                r.linear("attn_v", h, w.matrix("attn_v", n_kv_heads * value_dim, hidden_size)?)?;
            let q = r.view("q", q, n_heads)?; // [n, n_heads, head_dim]
            let k = r.view("k", k, n_kv_heads)?;
            let v = r.view("v", v, n_kv_heads)?;
            let q = r.rms_norm("attn_q_norm", q, w.vector("attn_q_norm", head_dim)?, eps)?;
            let k = r.rms_norm("attn_k_norm", k, w.vector("attn_k_norm", head_dim)?, eps)?;
            let a = r.attention("attn", &at, cache, [q, k, v])?; // [n, n_heads * value_dim]
            let a = r.linear(
                "attn_output",
                a,
                w.matrix("attn_output", hidden_size, n_heads * value_dim)?,
            )?;
            x = r.add("attn_residual", x, a)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let f = ffn::experts(r, &w, e, h)?;
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

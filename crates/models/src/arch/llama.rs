//! Llama 1 to 3 and what shares their shape: interleaved rotation, which may be slowed by factors from the file.
//!
//! Source: arXiv:2302.13971, section 2.2; arXiv:2407.21783, section 3.2; tensor names of GGUF's `llama`.

use program::{Act, Attention, CacheKind, CacheSpec, Recorder, RopePairs, ValueId};

use super::Architecture;
use crate::{ModelConfig, Result, Weights};

pub(super) struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn record(&self, r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
        let ModelConfig {
            hidden_size,
            intermediate_size,
            n_heads,
            n_kv_heads,
            head_dim,
            value_dim,
            ..
        } = *c;
        let eps = c.rms_norm_eps;
        // Llama 3.1 and later: a divisor for each frequency.
        let factors = w.optional_vector("rope_freqs", c.rope_dims / 2)?;
        let rope = c.rope(RopePairs::Interleaved, factors);

        let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
        for i in 0..c.n_layers {
            r.layer(Some(i));
            let w = w.layer(i);
            let kind = CacheKind::Heads { n_kv_heads, key_dim: head_dim, value_dim, window: None };
            let cache = r.cache(CacheSpec { layer: i, kind });

            let h = r.rms_norm("attn_norm", x, w.vector("attn_norm", hidden_size)?, eps)?;
            let q =
                r.linear("attn_q", h, w.maybe_biased("attn_q", n_heads * head_dim, hidden_size)?)?;
            let k = r.linear(
                "attn_k",
                h,
                w.maybe_biased("attn_k", n_kv_heads * head_dim, hidden_size)?,
            )?;
            let v = r.linear(
                "attn_v",
                h,
                w.maybe_biased("attn_v", n_kv_heads * value_dim, hidden_size)?,
            )?;
            let q = r.view("q", q, n_heads)?; // [n, n_heads, head_dim]
            let k = r.view("k", k, n_kv_heads)?;
            let v = r.view("v", v, n_kv_heads)?;
            let at = Attention::causal(cache, Some(rope.clone()), c.attention_scale());
            let a = r.attention("attn", at, &[q, k, v])?; // [n, n_heads * value_dim]
            let a = r.linear(
                "attn_output",
                a,
                w.maybe_biased("attn_output", hidden_size, n_heads * value_dim)?,
            )?;
            x = r.add("attn_residual", x, a)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let gate = r.linear(
                "ffn_gate",
                h,
                w.maybe_biased("ffn_gate", intermediate_size, hidden_size)?,
            )?;
            let up =
                r.linear("ffn_up", h, w.maybe_biased("ffn_up", intermediate_size, hidden_size)?)?;
            let g = r.gated_act("ffn_act", Act::Silu, gate, up)?;
            let f = r.linear(
                "ffn_down",
                g,
                w.maybe_biased("ffn_down", hidden_size, intermediate_size)?,
            )?;
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

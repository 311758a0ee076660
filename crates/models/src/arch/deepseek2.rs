//! DeepSeek-V2, V2-Lite, V3 and R1: latent attention, then a dense layer or experts beside a shared one.
//!
//! Source: arXiv:2405.04434, section 2; arXiv:2412.19437, section 2.1; tensor names of GGUF's `deepseek2`.

use program::{CacheKind, CacheSpec, LatentAttention, LatentUp, Recorder, RopePairs, ValueId};

use super::{Architecture, ffn};
use crate::{Error, Latent, ModelConfig, Result, Weights};

pub(super) struct DeepSeek2;

impl Architecture for DeepSeek2 {
    fn name(&self) -> &'static str {
        "deepseek2"
    }

    fn latent(&self) -> bool {
        true
    }

    fn experts(&self) -> bool {
        true
    }

    fn record(&self, r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
        let ModelConfig { hidden_size, n_heads, value_dim, rope_dims, .. } = *c;
        let (l, e) =
            c.latent.as_ref().zip(c.experts.as_ref()).ok_or_else(|| Error::incomplete(c))?;
        let eps = c.rms_norm_eps;
        let (rank, nope_dim) = (l.kv_lora_rank, l.nope_dim);
        let rope = c.rope(RopePairs::Interleaved, None);

        let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
        for i in 0..c.n_layers {
            r.layer(Some(i));
            let w = w.layer(i);
            let kind = CacheKind::Latent { rank, rope_dim: rope_dims };
            let cache = r.cache(CacheSpec { layer: i, kind });

            let h = r.rms_norm("attn_norm", x, w.vector("attn_norm", hidden_size)?, eps)?;
            let q = r.view("q", query(r, &w, c, l, h)?, n_heads)?; // [n, n_heads, nope_dim + rope_dims]
            let q_nope = r.slice("q_nope", q, 0, nope_dim)?;
            let q_pe = r.slice("q_pe", q, nope_dim, rope_dims)?;
            let kv = r.linear(
                "attn_kv_a_mqa",
                h,
                w.matrix("attn_kv_a_mqa", rank + rope_dims, hidden_size)?,
            )?;
            let latent = r.slice("kv", kv, 0, rank)?;
            let norm = w.vector("attn_kv_a_norm", rank)?;
            let latent = r.rms_norm("attn_kv_a_norm", latent, norm, eps)?;
            let k_pe = r.slice("k_pe", kv, rank, rope_dims)?;
            let (rope, up) = (Some(rope.clone()), up(&w, c, l)?);
            let at = LatentAttention::causal(cache, rope, up, c.attention_scale());
            let a = r.latent_attention("attn", at, [q_nope, q_pe, latent, k_pe])?;
            let output = w.matrix("attn_output", hidden_size, n_heads * value_dim)?;
            x = r.add("attn_residual", x, r.linear("attn_output", a, output)?)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let mut f = if e.in_layer(i) {
                ffn::experts(r, &w, e, h)?
            } else {
                ffn::gated(r, &w, "", c.intermediate_size, h)?
            };
            if e.in_layer(i) && e.shared_intermediate_size > 0 {
                let shared = ffn::gated(r, &w, "_shexp", e.shared_intermediate_size, h)?;
                f = r.add("ffn_out", f, shared)?;
            }
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

/// `[n, n_heads * head_dim]`, through a narrow layer but in V2-Lite.
fn query(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    l: &Latent,
    h: ValueId,
) -> Result<ValueId> {
    let width = c.n_heads * c.head_dim;
    let Some(rank) = l.q_lora_rank else {
        return Ok(r.linear("attn_q", h, w.matrix("attn_q", width, c.hidden_size)?)?);
    };
    let a = r.linear("attn_q_a", h, w.matrix("attn_q_a", rank, c.hidden_size)?)?;
    let a = r.rms_norm("attn_q_a_norm", a, w.vector("attn_q_a_norm", rank)?, c.rms_norm_eps)?;
    Ok(r.linear("attn_q_b", a, w.matrix("attn_q_b", width, rank)?)?)
}

fn up(w: &Weights<'_>, c: &ModelConfig, l: &Latent) -> Result<LatentUp> {
    let (heads, rank) = (c.n_heads, l.kv_lora_rank);
    if l.joint {
        let kv_b = w.matrix("attn_kv_b", heads * (l.nope_dim + c.value_dim), rank)?;
        return Ok(LatentUp::Joint { kv_b });
    }
    let k_b = w.stack("attn_k_b", heads, rank, l.nope_dim)?;
    Ok(LatentUp::Split { k_b, v_b: w.stack("attn_v_b", heads, c.value_dim, rank)? })
}

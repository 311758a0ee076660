//! Attention over latents, as DeepSeek's models have it.

use program::{CacheKind, CacheSpec, LatentAttention, LatentUp, Rope, ValueId};

use super::attention;
use super::decoder::Layer;
use crate::{Bias, Error, Latent, LayerConfig, Result};

/// What the layer attends to, through the output projection: `[n, hidden_size]`.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let a = find(l, h)?;
    l.linear("attn_output", a, l.model.hidden_size, Bias::Never)
}

/// What the layer attends to: `[n, n_heads * value_dim]`.
pub(super) fn find(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let LayerConfig { n_heads, head_dim, ref rope, ref score, ref latent, .. } = *l.config;
    let latent = latent.as_ref().ok_or_else(|| Error::incomplete(l.model))?;
    let (rank, nope_dim) = (latent.kv_lora_rank, latent.nope_dim);
    let rope_dim = head_dim.saturating_sub(nope_dim);
    let kind = CacheKind::Latent { rank, rope_dim };
    let cache = l.r.cache(CacheSpec { layer: l.index, kind });

    let q = l.r.view("q", queries(l, latent, h)?, n_heads)?; // [n, n_heads, nope_dim + rope_dim]
    let q_nope = l.r.slice("q_nope", q, 0, nope_dim)?;
    let q_pe = l.r.slice("q_pe", q, nope_dim, rope_dim)?;
    let kv = l.linear("attn_kv_a_mqa", h, rank + rope_dim, Bias::Never)?;
    let c = l.r.slice("kv", kv, 0, rank)?;
    let c = l.norm("attn_kv_a_norm", c)?;
    let k_pe = l.r.slice("k_pe", kv, rank, rope_dim)?;
    let factors = attention::factors(l)?;
    let rope = rope.clone().map(|rope| Rope { factors, ..rope });
    let up = up(l, latent)?;
    let at = LatentAttention { cache, rope, up, score: score.clone() };
    Ok(l.r.latent_attention("attn", at, [q_nope, q_pe, c, k_pe])?)
}

/// `[n, n_heads * head_dim]`, through a narrow layer but in V2-Lite.
fn queries(l: &Layer<'_>, latent: &Latent, h: ValueId) -> Result<ValueId> {
    let width = l.config.n_heads * l.config.head_dim;
    let Some(rank) = latent.q_lora_rank else {
        return l.linear("attn_q", h, width, Bias::Never);
    };
    let a = l.linear("attn_q_a", h, rank, Bias::Never)?;
    l.linear("attn_q_b", l.norm("attn_q_a_norm", a)?, width, Bias::Never)
}

fn up(l: &Layer<'_>, latent: &Latent) -> Result<LatentUp> {
    let LayerConfig { n_heads: heads, value_dim, .. } = *l.config;
    let (rank, nope_dim) = (latent.kv_lora_rank, latent.nope_dim);
    if latent.joint {
        let kv_b = l.w.matrix("attn_kv_b", heads * (nope_dim + value_dim), rank)?;
        return Ok(LatentUp::Joint { kv_b });
    }
    let k_b = l.w.stack("attn_k_b", heads, rank, nope_dim)?;
    Ok(LatentUp::Split { k_b, v_b: l.w.stack("attn_v_b", heads, value_dim, rank)? })
}

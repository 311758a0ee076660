//! Attention over latents, as DeepSeek's models have it.

use program::{
    Act, CacheKind, CacheSpec, LatentAttention, LatentUp, Rope, Score, Selection, ValueId,
};

use super::attention::{self, GateWidth};
use super::decoder::Layer;
use crate::{Bias, Error, Latent, LayerConfig, Result};

/// So many zeros stand for the part of a key that rotates where there is none.
const ZEROS: usize = 2;

/// What the layer attends to, through the output projection: `[n, hidden_size]`.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let a = find(l, h)?;
    l.linear("attn_output", a, l.model.hidden_size, Bias::Never)
}

/// What heads found, `a`, each or each element of it weighed by a gate of `h`, through the output projection.
pub(super) fn gated(l: &Layer<'_>, a: ValueId, h: ValueId, width: GateWidth) -> Result<ValueId> {
    let (groups, cols) = match width {
        GateWidth::Heads => (l.config.n_heads, l.config.n_heads),
        GateWidth::Elements => (1, l.r.shape(a).cols()),
    };
    let gate = l.linear("attn_gate", h, cols, Bias::Never)?;
    let a = l.r.view("attn_heads", a, groups)?;
    let a = l.r.gated_act("attn_gated", Act::Sigmoid, gate, a)?;
    l.linear("attn_output", l.r.view("attn_joined", a, 1)?, l.model.hidden_size, Bias::Never)
}

/// What the layer attends to: `[n, n_heads * value_dim]`.
pub(super) fn find(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    find_chosen(l, h, |_| Ok(None))
}

/// The same of what `choose` chooses, given what queries are made of.
pub(super) fn find_chosen(
    l: &Layer<'_>,
    h: ValueId,
    choose: impl FnOnce(ValueId) -> Result<Option<(Selection, ValueId)>>,
) -> Result<ValueId> {
    let LayerConfig { n_heads, head_dim, ref rope, ref score, ref latent, .. } = *l.config;
    let latent = latent.as_ref().ok_or_else(|| Error::incomplete(l.model))?;
    let (rank, nope_dim) = (latent.kv_lora_rank, latent.nope_dim);
    let rope_dim = head_dim.saturating_sub(nope_dim);
    let kind = CacheKind::Latent { rank, rope_dim: if rope_dim > 0 { rope_dim } else { ZEROS } };
    let cache = l.r.cache(CacheSpec { layer: l.index, kind });

    let (q, source) = queries(l, latent, h)?;
    let chosen = choose(source)?;
    let q = l.r.view("q", q, n_heads)?; // [n, n_heads, nope_dim + rope_dim]
    let q_nope = l.r.slice("q_nope", q, 0, nope_dim)?;
    let rotates = |name: &str, x, start| match rope_dim {
        0 => l.r.scale(name, l.r.slice("zeros", x, 0, ZEROS)?, 0.0),
        _ => l.r.slice(name, x, start, rope_dim),
    };
    let q_pe = rotates("q_pe", q, nope_dim)?;
    let kv = l.linear("attn_kv_a_mqa", h, rank + rope_dim, Bias::Never)?;
    let c = l.r.slice("kv", kv, 0, rank)?;
    let c = l.norm("attn_kv_a_norm", c)?;
    let k_pe = rotates("k_pe", kv, rank)?;
    let k_pe = if latent.key_norm { l.norm("attn_k_norm", k_pe)? } else { k_pe };
    let factors = attention::factors(l)?;
    let rope = rope.clone().map(|rope| Rope { factors, ..rope });
    let up = up(l, latent)?;
    let sinks = latent.sinks.then(|| l.w.vector("attn_sinks", n_heads)).transpose()?;
    let score = Score { sinks, ..score.clone() };
    let select = chosen.map(|(select, _)| select);
    let at = LatentAttention { cache, rope, up, score, select };
    let inputs: Vec<ValueId> =
        [q_nope, q_pe, c, k_pe].into_iter().chain(chosen.map(|(_, chosen)| chosen)).collect();
    Ok(l.r.latent_attention("attn", at, inputs)?)
}

/// `[n, n_heads * head_dim]`, through a narrow layer but in V2-Lite; and what they are made of last.
fn queries(l: &Layer<'_>, latent: &Latent, h: ValueId) -> Result<(ValueId, ValueId)> {
    let width = l.config.n_heads * l.config.head_dim;
    let Some(rank) = latent.q_lora_rank else {
        return Ok((l.linear("attn_q", h, width, Bias::Never)?, h));
    };
    let a = l.norm("attn_q_a_norm", l.linear("attn_q_a", h, rank, Bias::Never)?)?;
    Ok((l.linear("attn_q_b", a, width, Bias::Never)?, a))
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

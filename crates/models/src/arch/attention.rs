//! Attention over keys and values, in parts that architectures put together.

use program::{Attention, CacheKind, CacheSpec, Mask, Rope, ValueId, WeightId};

use super::decoder::Layer;
use crate::{Bias, LayerConfig, Result};

/// Queries, keys and values of `h`: `[n, heads, dim]` each.
pub(super) fn heads(l: &Layer<'_>, h: ValueId, bias: Bias) -> Result<[ValueId; 3]> {
    let LayerConfig { n_heads, n_kv_heads, head_dim, value_dim, .. } = *l.config;
    let q = l.linear("attn_q", h, n_heads * head_dim, bias)?;
    let k = l.linear("attn_k", h, n_kv_heads * head_dim, bias)?;
    let v = l.linear("attn_v", h, n_kv_heads * value_dim, bias)?;
    let (q, k) = (l.r.view("q", q, n_heads)?, l.r.view("k", k, n_kv_heads)?);
    Ok([q, k, l.r.view("v", v, n_kv_heads)?])
}

/// Norms on each head of q and k.
pub(super) fn norm_heads(l: &Layer<'_>, [q, k, v]: [ValueId; 3]) -> Result<[ValueId; 3]> {
    Ok([l.norm("attn_q_norm", q)?, l.norm("attn_k_norm", k)?, v])
}

/// What the layer attends to, through the output projection: `[n, hidden_size]`. `factors` divide the frequencies of
/// the rotation.
pub(super) fn attend(
    l: &Layer<'_>,
    qkv: [ValueId; 3],
    factors: Option<WeightId>,
    bias: Bias,
) -> Result<ValueId> {
    let LayerConfig { n_kv_heads, head_dim: key_dim, value_dim, ref rope, ref score, .. } =
        *l.config;
    let window = match score.mask {
        Mask::Window(n) | Mask::Chunk(n) => Some(n as usize),
        Mask::Causal | Mask::Full => None,
    };
    let kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window };
    let at = Attention {
        cache: l.r.cache(CacheSpec { layer: l.index, kind }),
        appends: true,
        rope: rope.clone().map(|rope| Rope { factors, ..rope }),
        score: score.clone(),
    };
    let a = l.r.attention("attn", at, &qkv)?; // [n, n_heads * value_dim]
    l.linear("attn_output", a, l.model.hidden_size, bias)
}

//! What comes after queries, keys and values, where that is the same in several architectures.

use program::{Attention, CacheKind, CacheSpec, Recorder, RopePairs, ValueId};

use crate::{ModelConfig, Result, Weights};

/// `x` and what layer `i` attends to: half-split rotation, attention over the cache, output projection without a bias.
/// `[q, k, v]` are `[n, heads, dim]`.
pub(super) fn half_split(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    (i, x): (usize, ValueId),
    qkv: [ValueId; 3],
) -> Result<ValueId> {
    let ModelConfig { hidden_size, n_heads, n_kv_heads, head_dim, value_dim, .. } = *c;
    let rope = Some(c.rope(RopePairs::HalfSplit, None));
    let kind = CacheKind::Heads { n_kv_heads, key_dim: head_dim, value_dim, window: None };
    let cache = r.cache(CacheSpec { layer: i, kind });
    let at = Attention::causal(cache, rope, c.attention_scale());
    let a = r.attention("attn", at, &qkv)?; // [n, n_heads * value_dim]
    let a =
        r.linear("attn_output", a, w.matrix("attn_output", hidden_size, n_heads * value_dim)?)?;
    Ok(r.add("attn_residual", x, a)?)
}

//! [`Latent`]: the hyper-parameters of multi-head latent attention (arXiv:2405.04434, section 2.1).

use gguf::Gguf;
use program::RopeScaling;

use super::{Heads, MAX_HEADS};
use crate::keys::Keys;
use crate::{Error, Result};

/// Keys and values of all heads come from one short vector per position. `head_dim` of the model is the width of a whole
/// key, of which the last `rope_dims` rotate and are shared by all heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Width of the vector that keys and values are made of.
    pub kv_lora_rank: usize,
    /// Width of the vector that queries are made of; `None` if they are made of the layer's input (V2-Lite).
    pub q_lora_rank: Option<usize>,
    /// Width of the part of a key that does not rotate: `head_dim - rope_dims`.
    pub nope_dim: usize,
    /// Keys and values are made by one tensor, `attn_kv_b`, as older files have it.
    pub joint: bool,
    /// The scores' factor is `mscale^2 / sqrt(head_dim)`: above 1 where YaRN lengthens the context.
    pub mscale: f32,
}

impl Heads {
    /// Newer files give the widths of keys and values apart from those of the cache.
    pub(super) fn latent(keys: &Keys<'_>, n_layers: usize) -> Result<Heads> {
        let count = "attention.head_count";
        let n_heads = keys.require(count, keys.per_layer(count, n_layers, 1..=MAX_HEADS)?)?;
        keys.per_layer("attention.head_count_kv", n_layers, 1..=MAX_HEADS)?;
        let width = |key: &str| match keys.count(&format!("{key}_mla"), 1..=MAX_HEADS)? {
            Some(width) => Ok(width),
            None => keys.require(key, keys.count(key, 1..=MAX_HEADS)?),
        };
        let (head_dim, value_dim) =
            (width("attention.key_length")?, width("attention.value_length")?);
        Ok(Heads { n_heads, n_kv_heads: 1, head_dim, value_dim })
    }
}

impl Latent {
    /// `scaling` is put right: these models take YaRN's factor on the scores, not on cos and sin.
    pub(super) fn read(
        gguf: &Gguf,
        keys: &Keys<'_>,
        heads: &Heads,
        rope_dims: usize,
        scaling: &mut RopeScaling,
        notes: &mut Vec<String>,
    ) -> Result<Latent> {
        let rank = |key: &str| keys.require(key, keys.count(key, 1..=MAX_HEADS)?);
        keys.require("rope.dimension_count", keys.get("rope.dimension_count"))?;
        let nope_dim = heads.head_dim - rope_dims;
        if nope_dim == 0 {
            let expected = format!("less than the head size {}", heads.head_dim);
            return Err(Error::key(&keys.name("rope.dimension_count"), expected, rope_dims));
        }
        let has = |name: &str| gguf.tensor(name).is_some();
        Ok(Latent {
            kv_lora_rank: rank("attention.kv_lora_rank")?,
            q_lora_rank: if has("blk.0.attn_q.weight") {
                None
            } else {
                Some(rank("attention.q_lora_rank")?)
            },
            nope_dim,
            joint: has("blk.0.attn_kv_b.weight") && !has("blk.0.attn_k_b.weight"),
            mscale: mscale(keys, scaling, notes)?,
        })
    }
}

/// `rope.scaling.yarn_log_multiplier` is 0.1 times the `mscale_all_dim` of published configurations, whose `mscale` is the
/// same, so that nothing is left for cos and sin. Without it llama.cpp, which made most files, applies
/// `1 + 0.1 ln(factor)` to both: so do we.
fn mscale(keys: &Keys<'_>, scaling: &mut RopeScaling, notes: &mut Vec<String>) -> Result<f32> {
    const KEY: &str = "rope.scaling.yarn_log_multiplier";
    let zero = keys.get(KEY).and_then(|value| value.as_f32()) == Some(0.0);
    let multiplier = if zero { None } else { keys.positive(KEY)? };
    let RopeScaling::Yarn { factor, attention_factor, .. } = scaling else { return Ok(1.0) };
    let log = factor.max(1.0).ln();
    let Some(multiplier) = multiplier else {
        notes.push(format!(
            "key `{}` is missing: attention is scaled as llama.cpp does then, not as the model was published",
            keys.name(KEY)
        ));
        return Ok(*attention_factor);
    };
    *attention_factor /= 1.0 + 0.1 * log;
    Ok(*attention_factor * (1.0 + multiplier * log))
}

//! [`Latent`]: the hyper-parameters of multi-head latent attention (arXiv:2405.04434, section 2.1).

use program::{RopePairs, RopeScaling};

use super::ModelConfig;
use super::read::{Heads, MAX_HEADS, with_heads};
use crate::keys::Keys;
use crate::{Error, Result};

/// Keys and values of all heads come from one short vector per position. `head_dim` of the layer is the width of a whole
/// key, of which the last `head_dim - nope_dim` rotate and are shared by all heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Width of the vector that keys and values are made of.
    pub kv_lora_rank: usize,
    /// Width of the vector that queries are made of; `None` if they are made of the layer's input (V2-Lite).
    pub q_lora_rank: Option<usize>,
    /// Width of the part of a key that does not rotate.
    pub nope_dim: usize,
    /// Keys and values are made by one tensor, `attn_kv_b`, as older files have it.
    pub joint: bool,
    /// A norm on the part of a key that rotates, with the vector `attn_k_norm`.
    pub key_norm: bool,
    /// The vector `attn_sinks` has a score for each head that takes weight from the others.
    pub sinks: bool,
}

/// A decoder of latent attention, its feed-forward layers taken for dense.
///
/// # Errors
/// A key that is missing or out of range.
pub(crate) fn decoder(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    with_counts(keys, pairs, 1)
}

/// The same with layers without key-value heads: those that recur.
///
/// # Errors
/// As [`decoder`].
pub(crate) fn with_recurrent(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    with_counts(keys, pairs, 0)
}

fn with_counts(keys: &Keys<'_>, pairs: RopePairs, least: u64) -> Result<ModelConfig> {
    let mut c = with_heads(keys, pairs, heads(keys, least)?, 1)?;
    keys.require("rope.dimension_count", keys.get("rope.dimension_count"))?;
    let rank = |key: &str| keys.required(key, 1..=MAX_HEADS);
    let kv_lora_rank = rank("attention.kv_lora_rank")?;
    let first = c.layers.iter().position(|layer| layer.n_kv_heads > 0).unwrap_or(0);
    let has = |name: &str| keys.has(&format!("blk.{first}.{name}.weight"));
    let queries = has("attn_q");
    let q_lora_rank = if queries { None } else { Some(rank("attention.q_lora_rank")?) };
    let joint = has("attn_kv_b") && !has("attn_k_b");
    let head_dim = c.first_layer().head_dim;
    let mut rope = c.first_layer().rope.clone();
    let (mut rope_dims, mut mscale) = (0, 1.0);
    if let Some(rope) = &mut rope {
        (rope_dims, mscale) = (rope.dims, self::mscale(keys, &mut rope.scaling)?);
    }
    let nope_dim = head_dim - rope_dims;
    if nope_dim == 0 {
        let expected = format!("less than the head size {head_dim}");
        return Err(Error::key(&keys.name("rope.dimension_count"), expected, rope_dims));
    }
    let mscale = f64::from(mscale);
    for layer in &mut c.layers {
        layer.rope.clone_from(&rope);
        layer.score.scale = (mscale * mscale / (head_dim as f64).sqrt()) as f32;
        let (key_norm, sinks) = (false, false);
        let latent = Latent { kv_lora_rank, q_lora_rank, nope_dim, joint, key_norm, sinks };
        layer.latent = Some(latent);
    }
    Ok(c)
}

/// Give layers with a window latents and heads of other widths: `attention.kv_lora_rank_swa`,
/// `attention.key_length_mla_swa` and `attention.value_length_mla_swa`, where the file has them.
///
/// # Errors
/// A key out of range; heads no wider than what rotates of them.
pub(crate) fn windowed(keys: &Keys<'_>, c: &mut ModelConfig, windows: &[bool]) -> Result<()> {
    const KEY: &str = "attention.key_length_mla_swa";
    let count = |key: &str| keys.count(key, 1..=MAX_HEADS);
    let (rank, key) = (count("attention.kv_lora_rank_swa")?, count(KEY)?);
    let value = count("attention.value_length_mla_swa")?;
    for layer in c.layers.iter_mut().zip(windows).filter(|(_, sees)| **sees).map(|(l, _)| l) {
        let rotates = layer.rope.as_ref().map_or(0, |rope| rope.dims);
        layer.head_dim = key.unwrap_or(layer.head_dim);
        layer.value_dim = value.unwrap_or(layer.value_dim);
        let Some(nope_dim) = layer.head_dim.checked_sub(rotates).filter(|dim| *dim > 0) else {
            let expected = format!("more than {rotates}, which rotate");
            return Err(Error::key(&keys.name(KEY), expected, layer.head_dim));
        };
        layer.score.scale = (1.0 / (layer.head_dim as f64).sqrt()) as f32;
        if let Some(latent) = &mut layer.latent {
            latent.nope_dim = nope_dim;
            latent.kv_lora_rank = rank.unwrap_or(latent.kv_lora_rank);
        }
    }
    c.layers.iter_mut().flat_map(|layer| &mut layer.latent).for_each(|l| l.key_norm = true);
    Ok(())
}

/// Newer files give the widths of keys and values apart from those of the cache.
fn heads(keys: &Keys<'_>, least: u64) -> Result<Vec<Heads>> {
    let count = "attention.head_count";
    let n_heads = keys.require(count, keys.per_layer(count, 1..=MAX_HEADS)?)?;
    let latents = keys.per_layer("attention.head_count_kv", least..=MAX_HEADS)?;
    let latents = latents.unwrap_or_else(|| vec![1; n_heads.len()]);
    let width = |key: &str| match keys.count(&format!("{key}_mla"), 1..=MAX_HEADS)? {
        Some(width) => Ok(width),
        None => keys.required(key, 1..=MAX_HEADS),
    };
    let (head_dim, value_dim) = (width("attention.key_length")?, width("attention.value_length")?);
    let layer = |(n_heads, latents): (usize, usize)| Heads {
        n_heads,
        n_kv_heads: latents.min(1),
        head_dim,
        value_dim,
        may_not_rotate: true,
    };
    Ok(n_heads.into_iter().zip(latents).map(layer).collect())
}

/// `rope.scaling.yarn_log_multiplier` is 0.1 times the `mscale_all_dim` of published configurations, whose `mscale` is the
/// same, so that nothing is left for cos and sin: the scores' factor is `mscale^2 / sqrt(head_dim)`. Mistral's `mscale` is 1
/// whatever the other is. Without it llama.cpp, which made most files, applies
/// `1 + 0.1 ln(factor)` to both: so do we.
fn mscale(keys: &Keys<'_>, scaling: &mut RopeScaling) -> Result<f32> {
    const KEY: &str = "rope.scaling.yarn_log_multiplier";
    let multiplier = keys.positive_or_zero(KEY)?;
    let RopeScaling::Yarn { factor, attention_factor, .. } = scaling else { return Ok(1.0) };
    let log = factor.max(1.0).ln();
    let Some(multiplier) = multiplier else {
        keys.note(format!(
            "key `{}` is missing: attention is scaled as llama.cpp does then, not as the model was published",
            keys.name(KEY)
        ));
        return Ok(*attention_factor);
    };
    let both = 1.0 + multiplier * log;
    *attention_factor /= if keys.architecture() == "mistral4" { both } else { 1.0 + 0.1 * log };
    Ok(*attention_factor * both)
}

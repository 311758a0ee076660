//! A configuration as a file's metadata: what `models` reads, written.

use anyhow::Context as _;
use gguf::{OwnedValue, Writer};
use models::{Experts, Latent, Mixture, ModelConfig};
use program::{Gating, RopeScaling};

use super::shapes::Shape;

/// Numbers of file types in `general.file_type`.
const FILE_TYPES: &[(&str, u32)] = &[
    ("F32", 0),
    ("F16", 1),
    ("Q4_0", 2),
    ("Q4_1", 3),
    ("Q8_0", 7),
    ("Q5_0", 8),
    ("Q5_1", 9),
    ("Q2_K", 10),
    ("Q3_K_S", 11),
    ("Q3_K_M", 12),
    ("Q3_K_L", 13),
    ("Q4_K_S", 14),
    ("Q4_K_M", 15),
    ("Q5_K_S", 16),
    ("Q5_K_M", 17),
    ("Q6_K", 18),
    ("IQ4_NL", 25),
    ("IQ4_XS", 30),
    ("BF16", 32),
    ("TQ1_0", 36),
    ("TQ2_0", 37),
];

/// The keys of one architecture.
struct Keys<'a> {
    writer: &'a mut Writer,
    architecture: &'a str,
}

impl Keys<'_> {
    fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.writer.set(format!("{}.{key}", self.architecture), value);
    }

    fn count(&mut self, key: &str, n: usize) -> anyhow::Result<()> {
        let n = u32::try_from(n).with_context(|| format!("{key} is {n}"))?;
        self.set(key, n);
        Ok(())
    }
}

/// Sets `general.*` and the keys of the architecture.
///
/// # Errors
/// If a number is too large for its key, or the type has no number.
pub(crate) fn set(writer: &mut Writer, shape: &Shape, mixture: &Mixture) -> anyhow::Result<()> {
    let c = &shape.config;
    let number = FILE_TYPES.iter().find(|row| row.0 == mixture.name());
    let (_, number) = *number.with_context(|| format!("{} has no number", mixture.name()))?;
    let name = c.name.as_deref().unwrap_or(&shape.name);
    writer
        .set("general.architecture", &*c.architecture)
        .set("general.name", format!("{name} (random weights)"))
        .set("general.file_type", number);
    let keys = &mut Keys { writer, architecture: &c.architecture };
    keys.count("block_count", c.n_layers)?;
    keys.count("context_length", c.context_length)?;
    keys.count("embedding_length", c.hidden_size)?;
    keys.count("feed_forward_length", c.intermediate_size)?;
    keys.count("vocab_size", c.vocab_size)?;
    keys.count("attention.head_count", c.n_heads)?;
    keys.set("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
    keys.set("rope.freq_base", c.rope_theta);
    keys.count("rope.dimension_count", c.rope_dims)?;
    match &c.latent {
        Some(latent) => latent_heads(keys, c, latent)?,
        None => {
            keys.count("attention.head_count_kv", c.n_kv_heads)?;
            keys.count("attention.key_length", c.head_dim)?;
            keys.count("attention.value_length", c.value_dim)?;
        }
    }
    rope_scaling(keys, c);
    c.experts.as_ref().map_or(Ok(()), |experts| set_experts(keys, experts))
}

fn latent_heads(keys: &mut Keys<'_>, c: &ModelConfig, latent: &Latent) -> anyhow::Result<()> {
    keys.count("attention.kv_lora_rank", latent.kv_lora_rank)?;
    if let Some(rank) = latent.q_lora_rank {
        keys.count("attention.q_lora_rank", rank)?;
    }
    if latent.joint {
        // as older files: every head has its keys and values
        keys.count("attention.head_count_kv", c.n_heads)?;
        keys.count("attention.key_length", c.head_dim)?;
        return keys.count("attention.value_length", c.value_dim);
    }
    keys.count("attention.head_count_kv", 1)?;
    keys.count("attention.key_length", latent.kv_lora_rank + c.rope_dims)?;
    keys.count("attention.value_length", latent.kv_lora_rank)?;
    keys.count("attention.key_length_mla", c.head_dim)?;
    keys.count("attention.value_length_mla", c.value_dim)
}

fn rope_scaling(keys: &mut Keys<'_>, c: &ModelConfig) {
    match c.rope_scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => {
            keys.set("rope.scaling.type", "linear");
            keys.set("rope.scaling.factor", factor);
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
            keys.set("rope.scaling.type", "yarn");
            keys.set("rope.scaling.factor", factor);
            keys.set("rope.scaling.original_context_length", original_context);
            keys.set("rope.scaling.yarn_beta_fast", beta_fast);
            keys.set("rope.scaling.yarn_beta_slow", beta_slow);
            if let Some(latent) = &c.latent {
                // `mscale` is 1 + multiplier * ln(factor); published multipliers have four digits
                let multiplier = (latent.mscale - 1.0) / factor.ln();
                let multiplier = (multiplier * 1e4).round() / 1e4;
                keys.set("rope.scaling.yarn_log_multiplier", multiplier);
            } else {
                let usual = 1.0 + 0.1 * factor.max(1.0).ln();
                keys.set("rope.scaling.attn_factor", attention_factor / usual);
            }
        }
    }
}

fn set_experts(keys: &mut Keys<'_>, e: &Experts) -> anyhow::Result<()> {
    keys.count("expert_count", e.n_experts)?;
    keys.count("expert_used_count", e.n_experts_used)?;
    keys.count("expert_feed_forward_length", e.intermediate_size)?;
    if keys.architecture == "qwen2moe" {
        keys.count("expert_shared_feed_forward_length", e.shared_intermediate_size)?;
    }
    if keys.architecture == "deepseek2" {
        keys.count("expert_shared_count", e.shared_intermediate_size / e.intermediate_size)?;
        keys.count("leading_dense_block_count", e.n_dense_layers)?;
        keys.set("expert_weights_scale", e.scale);
        keys.set("expert_weights_norm", e.normalize);
        let gating = match e.gating {
            Gating::Softmax => 1_u32,
            Gating::Sigmoid => 2,
        };
        keys.set("expert_gating_func", gating);
    }
    if let Some(groups) = &e.groups {
        keys.count("expert_group_count", groups.n_groups)?;
        keys.count("expert_group_used_count", groups.n_used)?;
    }
    Ok(())
}

//! `config.json` as Hugging Face has it: the shape of a model without its weights. Its keys become those of a GGUF file,
//! which the architecture reads. A new kind is a row in [`KINDS`].

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use models::{ModelConfig, Outline};
use serde::Deserialize;

use crate::exit::Failure;

/// The keys that shapes come from; others are not looked at.
#[derive(Debug, Deserialize)]
struct Config {
    model_type: Option<String>,
    hidden_size: Option<u64>,
    intermediate_size: Option<u64>,
    num_hidden_layers: Option<u64>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    vocab_size: Option<u64>,
    max_position_embeddings: Option<u64>,
    tie_word_embeddings: Option<bool>,
    #[serde(flatten)]
    windows: WindowConfig,
    #[serde(flatten)]
    mixture: MixtureConfig,
    #[serde(flatten)]
    latent: LatentConfig,
}

/// Keys of windows: Gemma's.
#[derive(Debug, Deserialize)]
struct WindowConfig {
    sliding_window: Option<u64>,
    sliding_window_pattern: Option<u64>,
    layer_types: Option<Vec<String>>,
}

/// Keys of mixtures of experts: Qwen's and DeepSeek's.
#[derive(Debug, Deserialize)]
struct MixtureConfig {
    num_experts: Option<u64>,
    n_routed_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    moe_intermediate_size: Option<u64>,
    shared_expert_intermediate_size: Option<u64>,
    n_shared_experts: Option<u64>,
    first_k_dense_replace: Option<u64>,
    decoder_sparse_step: Option<u64>,
    mlp_only_layers: Option<Vec<u64>>,
    n_group: Option<u64>,
    topk_group: Option<u64>,
    norm_topk_prob: Option<bool>,
    routed_scaling_factor: Option<f32>,
}

/// Keys of latent attention.
#[derive(Debug, Deserialize)]
struct LatentConfig {
    kv_lora_rank: Option<u64>,
    q_lora_rank: Option<u64>,
    qk_nope_head_dim: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    v_head_dim: Option<u64>,
}

type Convert = fn(&Config) -> Result<Outline, Failure>;

/// `model_type` and what it means here.
static KINDS: &[(&str, Convert)] = &[
    ("qwen2", |config| dense(config, "qwen2", None)),
    ("qwen3", |config| dense(config, "qwen3", Some(128))),
    ("llama", |config| dense(config, "llama", None)),
    ("gemma2", |config| gemma(config, "gemma2")),
    ("gemma3_text", |config| gemma(config, "gemma3")),
    ("qwen2_moe", |config| qwen_moe(config, "qwen2moe", None)),
    ("qwen3_moe", |config| qwen_moe(config, "qwen3moe", Some(128))),
    ("deepseek_v2", |config| deepseek(config, false)),
    ("deepseek_v3", |config| deepseek(config, true)),
];

/// Largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Read a `config.json`.
///
/// # Errors
/// I/O; [`Failure::Malformed`] for a file that is none, lacks a key, or is of a kind that is not known here.
pub(super) fn read(path: &Path) -> anyhow::Result<ModelConfig> {
    let reading = || format!("reading {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(reading)?;
    // not the length that the file says it has: pipes and devices have none
    file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(reading)?;
    if text.len() as u64 > MOST_BYTES {
        let message = format!("more than {MOST_BYTES} bytes are too many for a config.json");
        return Err(Failure::Malformed(message)).with_context(reading);
    }
    parse(&text).with_context(reading)
}

fn parse(text: &str) -> Result<ModelConfig, Failure> {
    let malformed =
        |error: serde_json::Error| Failure::Malformed(gguf::escape(error.to_string(), 200));
    let config: Config = serde_json::from_str(text).map_err(malformed)?;
    let kind = config.model_type.as_deref().unwrap_or_default();
    let Some((_, convert)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        let known: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
        let kind = gguf::escape(kind, 60);
        return Err(Failure::Malformed(format!(
            "`model_type` is \"{kind}\": expected {}",
            known.join(", ")
        )));
    };
    convert(&config)?.config().map_err(|error| Failure::Malformed(error.to_string()))
}

/// A decoder with a gated feed-forward layer. Norms and rotation, which say nothing about a cost, are as they may be.
fn dense(config: &Config, architecture: &str, head_dim: Option<u64>) -> Result<Outline, Failure> {
    let hidden_size = count("hidden_size", config.hidden_size, 1 << 20)?;
    let n_heads = count("num_attention_heads", config.num_attention_heads, 1 << 16)?;
    let kv_heads = config.num_key_value_heads.or(Some(n_heads.into()));
    let n_kv_heads = count("num_key_value_heads", kv_heads, 1 << 16)?;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(Failure::Malformed(format!(
            "`num_key_value_heads` is {n_kv_heads}: expected a divisor of {n_heads} heads"
        )));
    }
    let default = head_dim.unwrap_or(u64::from(hidden_size / n_heads));
    let head_dim = count("head_dim", config.head_dim.or(Some(default)), 1 << 16)?;
    let context = config.max_position_embeddings.or(Some(4096));
    let vocab_size = count("vocab_size", config.vocab_size, 1 << 24)?;
    let mut outline = Outline::new(architecture, vocab_size as usize);
    for (key, count) in [
        ("embedding_length", hidden_size),
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_kv_heads),
        ("attention.key_length", head_dim),
        ("feed_forward_length", count("intermediate_size", config.intermediate_size, 1 << 24)?),
        ("block_count", count("num_hidden_layers", config.num_hidden_layers, 512)?),
        ("context_length", count("max_position_embeddings", context, 1 << 24)?),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6_f32);
    if !config.tie_word_embeddings.unwrap_or(architecture.starts_with("gemma")) {
        outline.tensor("output.weight");
    }
    Ok(outline)
}

/// A window on most layers. Which ones is said in one of two ways, or known.
fn gemma(config: &Config, architecture: &str) -> Result<Outline, Failure> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let mut outline = dense(config, architecture, Some(256))?;
    let windows = &config.windows;
    let window = count("sliding_window", windows.sliding_window, 1 << 24)?;
    outline.set("attention.sliding_window", window);
    if let Some(types) = &windows.layer_types {
        let slides: Vec<bool> = types.iter().map(|ty| ty == "sliding_attention").collect();
        outline.set(PATTERN, slides);
    } else if let Some(period) = windows.sliding_window_pattern {
        outline.set(PATTERN, count("sliding_window_pattern", Some(period), 512)?);
    }
    Ok(outline)
}

/// Experts in every layer; Qwen2's have a shared one beside them.
fn qwen_moe(
    config: &Config,
    architecture: &str,
    head_dim: Option<u64>,
) -> Result<Outline, Failure> {
    let mixture = &config.mixture;
    let mixed = mixture.decoder_sparse_step.is_some_and(|step| step != 1)
        || mixture.mlp_only_layers.as_ref().is_some_and(|layers| !layers.is_empty());
    if mixed {
        let message = "layers without experts between those with them".to_owned();
        return Err(Failure::Malformed(message));
    }
    let mut outline = dense(config, architecture, head_dim)?;
    if architecture == "qwen2moe" {
        let key = "shared_expert_intermediate_size";
        let width = count(key, mixture.shared_expert_intermediate_size, 1 << 24)?;
        outline.set("expert_shared_feed_forward_length", width);
    }
    experts(&mut outline, config, "num_experts", mixture.num_experts)?;
    Ok(outline)
}

/// Latent attention, and experts after a few dense layers. V3 chooses experts by sigmoids and with a bias.
fn deepseek(config: &Config, sigmoid: bool) -> Result<Outline, Failure> {
    let (mixture, latent) = (&config.mixture, &config.latent);
    let width = |key: &str, value| count(key, value, 1 << 16);
    let nope_dim = width("qk_nope_head_dim", latent.qk_nope_head_dim)?;
    let rope_dims = width("qk_rope_head_dim", latent.qk_rope_head_dim)?;
    let mut outline = dense(config, "deepseek2", Some(u64::from(nope_dim + rope_dims)))?;
    let n_routed = mixture.n_routed_experts;
    let n_experts = experts(&mut outline, config, "n_routed_experts", n_routed)?;
    if let Some(n_groups) = mixture.n_group.filter(|n| *n > 1) {
        let n_used = count("topk_group", mixture.topk_group, n_groups)?;
        let n_groups = count("n_group", Some(n_groups), n_experts.into())?;
        outline.set("expert_group_count", n_groups).set("expert_group_used_count", n_used);
    }
    let n_layers = count("num_hidden_layers", config.num_hidden_layers, 512)?;
    let n_dense = count_or_none("first_k_dense_replace", mixture.first_k_dense_replace, 512)?;
    let n_dense = n_dense.min(n_layers);
    match latent.q_lora_rank {
        Some(rank) => outline.set("attention.q_lora_rank", width("q_lora_rank", Some(rank))?),
        None => outline.tensor("blk.0.attn_q.weight"),
    };
    if sigmoid {
        outline.tensor(&format!("blk.{n_dense}.exp_probs_b.bias"));
    }
    let n_shared = count_or_none("n_shared_experts", mixture.n_shared_experts, 4096)?;
    for (key, count) in [
        ("leading_dense_block_count", n_dense),
        ("expert_shared_count", n_shared),
        ("expert_gating_func", if sigmoid { 2 } else { 1 }),
        ("attention.kv_lora_rank", width("kv_lora_rank", latent.kv_lora_rank)?),
        ("attention.key_length_mla", nope_dim + rope_dims),
        ("attention.value_length_mla", width("v_head_dim", latent.v_head_dim)?),
        ("rope.dimension_count", rope_dims),
    ] {
        outline.set(key, count);
    }
    Ok(outline)
}

/// Experts, of which there are `n` by the key of this name. Returns their number.
fn experts(
    outline: &mut Outline,
    config: &Config,
    key: &str,
    n: Option<u64>,
) -> Result<u32, Failure> {
    let mixture = &config.mixture;
    let n_experts = count(key, n, 4096)?;
    let n_used = count("num_experts_per_tok", mixture.num_experts_per_tok, n_experts.into())?;
    let width = count("moe_intermediate_size", mixture.moe_intermediate_size, 1 << 24)?;
    outline.set("expert_count", n_experts).set("expert_used_count", n_used);
    outline.set("expert_feed_forward_length", width);
    outline.set("expert_weights_norm", mixture.norm_topk_prob.unwrap_or(false));
    outline.set("expert_weights_scale", mixture.routed_scaling_factor.unwrap_or(1.0));
    Ok(n_experts)
}

/// 0 if the key is missing.
fn count_or_none(key: &str, value: Option<u64>, most: u64) -> Result<u32, Failure> {
    value.filter(|n| *n > 0).map_or(Ok(0), |n| count(key, Some(n), most))
}

fn count(key: &str, value: Option<u64>, most: u64) -> Result<u32, Failure> {
    match value {
        Some(n) if (1..=most).contains(&n) => Ok(n as u32),
        Some(n) => Err(Failure::Malformed(format!("`{key}` is {n}: expected 1 to {most}"))),
        None => Err(Failure::Malformed(format!("`{key}` is missing"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN: &str = r#"{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "tie_word_embeddings": true, "hidden_act": "silu"}"#;

    #[test]
    fn a_config_is_the_published_model() {
        let config = parse(QWEN).unwrap();
        let published = models::find_published("qwen2.5-0.5b").unwrap();
        assert_eq!(without_rotation(config), without_rotation(published));
        let three = parse(&QWEN.replace("qwen2", "qwen3")).unwrap();
        assert_eq!((three.first_layer().head_dim, &*three.architecture), (128, "qwen3"));
        assert_eq!(parse(&QWEN.replace("qwen2", "llama")).unwrap().first_layer().head_dim, 64);
    }

    /// Where a `config.json` says nothing of rotation, a plan does not depend on it.
    fn without_rotation(mut config: ModelConfig) -> ModelConfig {
        config.name = None;
        for layer in &mut config.layers {
            (layer.rope, layer.score.scale) = (None, 0.0);
        }
        config
    }

    #[test]
    fn windows_are_the_published_ones() {
        let one = r#"{"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
            "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
            "vocab_size": 262144, "max_position_embeddings": 32768, "sliding_window": 512,
            "sliding_window_pattern": 6}"#;
        let types = |ty: fn(usize) -> bool| {
            let name = |i| if ty(i) { "\"sliding_attention\"" } else { "\"full_attention\"" };
            let names: Vec<_> = (0..26).map(name).collect();
            let types = format!("\"layer_types\": [{}]", names.join(", "));
            one.replace("\"sliding_window_pattern\": 6", &types)
        };
        let published = without_rotation(models::find_published("gemma-3-1b").unwrap());
        for text in [one, &types(|i| i % 6 < 5)] {
            assert_eq!(without_rotation(parse(text).unwrap()), published);
        }
        assert_ne!(without_rotation(parse(&types(|i| i > 3)).unwrap()), published);
        let two = r#"{"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096}"#;
        let published = without_rotation(models::find_published("gemma-2-2b").unwrap());
        assert_eq!(without_rotation(parse(two).unwrap()), published);
        let short = one.replace("\"sliding_window_pattern\": 6", "\"layer_types\": []");
        assert!(parse(&short).unwrap_err().to_string().contains("each of 26 layers"));
        let none = one.replace("\"sliding_window\": 512,", "");
        assert_eq!(parse(&none).unwrap_err().to_string(), "`sliding_window` is missing");
    }

    #[test]
    fn mixtures_are_the_published_ones() {
        let lite = r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
            "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400,
            "max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6,
            "moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1,
            "topk_group": 1, "norm_topk_prob": false, "routed_scaling_factor": 1.0}"#;
        let v3 = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
            "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
            "max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3, "n_group": 8,
            "topk_group": 4, "norm_topk_prob": true, "routed_scaling_factor": 2.5}"#;
        let qwen2 = r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632,
            "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936,
            "max_position_embeddings": 8192, "num_experts": 60, "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "norm_topk_prob": false,
            "decoder_sparse_step": 1}"#;
        let qwen3 = r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
            "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936,
            "max_position_embeddings": 40960, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "norm_topk_prob": true, "mlp_only_layers": []}"#;
        for (name, text) in [
            ("deepseek-v2-lite", lite),
            ("deepseek-v3", v3),
            ("qwen1.5-moe-a2.7b", qwen2),
            ("qwen3-30b-a3b", qwen3),
        ] {
            let published = models::find_published(name).unwrap();
            let read = without_rotation(parse(text).unwrap());
            assert_eq!(read, without_rotation(published), "{name}");
        }
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert!(message(&qwen3.replace("[]", "[3]")).contains("layers without experts"));
        assert!(message(&lite.replace("n_routed_experts", "x")).contains("n_routed_experts"));
        assert!(message(&v3.replace("\"topk_group\": 4", "\"topk_group\": 9")).contains("1 to 8"));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            message(&QWEN.replace("qwen2", "mam\\nba")),
            "`model_type` is \"mam\\nba\": expected qwen2, qwen3, llama, gemma2, gemma3_text, \
             qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3"
        );
        assert_eq!(message(&QWEN.replace("vocab_size", "x")), "`vocab_size` is missing");
        assert_eq!(
            message(&QWEN.replace("\"num_hidden_layers\": 24", "\"num_hidden_layers\": 0")),
            "`num_hidden_layers` is 0: expected 1 to 512"
        );
        assert!(message(&QWEN.replace(": 2,", ": 3,")).contains("divisor of 14 heads"));
        assert!(message(&QWEN.replace("896", "\"896\"")).contains("invalid type"));
        let long = message(&QWEN.replace("896", &format!("\"{}\"", "x\\u001b".repeat(9000))));
        assert!(long.chars().count() <= 210 && !long.contains('\u{1b}'), "{long}");
        for number in ["1e30", "-1", "18446744073709551615", "99999999999999999999", "[[]]", "null"]
        {
            assert!(parse(&QWEN.replace("896", number)).is_err(), "{number}");
        }
        assert!(message(&"[".repeat(100_000)).contains("line 1"));
        assert!(message("{").contains("EOF"));
        assert!(message("{}").contains("`model_type` is \"\""));
    }
}

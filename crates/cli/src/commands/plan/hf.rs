//! `config.json` as Hugging Face has it: the shape of a model without its weights. A new kind is a row in [`KINDS`].

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use models::ModelConfig;
use program::RopeScaling;
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
    #[serde(default)]
    tie_word_embeddings: bool,
}

type Convert = fn(&Config) -> Result<ModelConfig, Failure>;

/// `model_type` and what it means here.
static KINDS: &[(&str, Convert)] = &[
    ("qwen2", |config| dense(config, "qwen2", None)),
    ("qwen3", |config| dense(config, "qwen3", Some(128))),
    ("llama", |config| dense(config, "llama", None)),
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
    convert(&config)
}

/// A decoder with a gated feed-forward layer.
fn dense(
    config: &Config,
    architecture: &str,
    head_dim: Option<usize>,
) -> Result<ModelConfig, Failure> {
    let hidden_size = count("hidden_size", config.hidden_size, 1 << 20)?;
    let n_heads = count("num_attention_heads", config.num_attention_heads, 1 << 16)?;
    let kv_heads = config.num_key_value_heads.or(Some(n_heads as u64));
    let n_kv_heads = count("num_key_value_heads", kv_heads, 1 << 16)?;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(Failure::Malformed(format!(
            "`num_key_value_heads` is {n_kv_heads}: expected a divisor of {n_heads} heads"
        )));
    }
    let default = head_dim.unwrap_or(hidden_size / n_heads) as u64;
    let head_dim = count("head_dim", config.head_dim.or(Some(default)), 1 << 16)?;
    Ok(ModelConfig {
        architecture: architecture.to_owned(),
        name: None,
        hidden_size,
        intermediate_size: count("intermediate_size", config.intermediate_size, 1 << 24)?,
        n_layers: count("num_hidden_layers", config.num_hidden_layers, 512)?,
        n_heads,
        n_kv_heads,
        head_dim,
        value_dim: head_dim,
        vocab_size: count("vocab_size", config.vocab_size, 1 << 24)?,
        context_length: count(
            "max_position_embeddings",
            config.max_position_embeddings.or(Some(4096)),
            1 << 24,
        )?,
        // These two say nothing about a cost.
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_dims: head_dim,
        rope_scaling: RopeScaling::None,
        tied_embeddings: config.tie_word_embeddings,
    })
}

fn count(key: &str, value: Option<u64>, most: u64) -> Result<usize, Failure> {
    match value {
        Some(n) if (1..=most).contains(&n) => Ok(n as usize),
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
        let (name, rope_theta) = (published.name.clone(), published.rope_theta);
        assert_eq!(ModelConfig { name, rope_theta, ..config }, published);
        let three = parse(&QWEN.replace("qwen2", "qwen3")).unwrap();
        assert_eq!((three.head_dim, &*three.architecture), (128, "qwen3"));
        assert_eq!(parse(&QWEN.replace("qwen2", "llama")).unwrap().head_dim, 64);
        for (kind, _) in KINDS {
            assert!(parse(&QWEN.replace("qwen2", kind)).is_ok(), "{kind}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            message(&QWEN.replace("qwen2", "mam\\nba")),
            "`model_type` is \"mam\\nba\": expected qwen2, qwen3, llama"
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
        assert!(message("[").contains("EOF"));
        assert!(message("{}").contains("`model_type` is \"\""));
    }
}

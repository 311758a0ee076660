//! Reads a `config.json` of Hugging Face: the dimensions of a model without its weights.
//!
//! Its keys become GGUF keys, which the architecture reads. A new kind of model is a row in [`kinds`].

mod config;
mod kinds;

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use models::{ModelConfig, Outline};
use serde_json::{Map, Value};

use crate::Error;
use config::Config;
use kinds::{Attention, KINDS, Kind, Mixture};

/// Maximum size of a file, in bytes.
const MOST_BYTES: u64 = 1 << 20;
const MOST_LAYERS: u32 = 512;
const MOST_HEADS: u32 = 1 << 16;
const WIDEST: u32 = 1 << 24;

/// Reads a `config.json`.
///
/// # Errors
/// I/O errors; [`Error::Malformed`] if the file is not a `config.json`, lacks a key, or is of an unknown kind.
pub fn read(path: &Path) -> anyhow::Result<ModelConfig> {
    let reading = || format!("reading {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(reading)?;
    // do not trust the length that the file reports: pipes and devices have none
    file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(reading)?;
    if text.len() as u64 > MOST_BYTES {
        let message = format!("more than {MOST_BYTES} bytes are too many for a config.json");
        return Err(Error::Malformed(message)).with_context(reading);
    }
    parse(&text).with_context(reading)
}

fn parse(text: &str) -> Result<ModelConfig, Error> {
    let malformed =
        |error: serde_json::Error| Error::Malformed(gguf::escape(error.to_string(), 200));
    let whole: Map<String, Value> = serde_json::from_str(text).map_err(malformed)?;
    let config = Config::of(&whole);
    let kind = find(&config)?;
    let outline = outline(&config.with_defaults(kind.defaults), kind)?;
    outline.config().map_err(|error| Error::Malformed(error.to_string()))
}

fn find(config: &Config<'_>) -> Result<&'static Kind, Error> {
    let name = config.kind();
    let classes = config.words("architectures").unwrap_or_default();
    let fits =
        |kind: &&Kind| kind.name == name && kind.class.is_none_or(|class| classes.contains(&class));
    KINDS.iter().find(fits).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        let name = gguf::escape(name, 60);
        Error::Malformed(format!("`model_type` is \"{name}\": expected {}", known.join(", ")))
    })
}

fn outline(config: &Config<'_>, kind: &Kind) -> Result<Outline, Error> {
    let mut outline = decoder(config, kind)?;
    factors(&mut outline, config)?;
    match kind.attention {
        Attention::Whole => {}
        Attention::Windows => windows(&mut outline, config, kind)?,
        Attention::Latent => latents(&mut outline, config)?,
    }
    if let Some(mixture) = kind.experts {
        experts(&mut outline, config, mixture)?;
    }
    Ok(outline)
}

/// Creates the outline of a decoder with dense feed-forward layers. Rotary parameters are not read, because costs do not depend
/// on them.
fn decoder(config: &Config<'_>, kind: &Kind) -> Result<Outline, Error> {
    let hidden_size = config.count(&["hidden_size"], 1 << 20)?;
    let n_heads = config.count(&["num_attention_heads"], MOST_HEADS)?;
    let n_kv_heads = ["num_key_value_heads", "num_attention_groups"];
    let n_kv_heads = config.count_if(&n_kv_heads, 1, MOST_HEADS)?.unwrap_or(n_heads);
    let latent = kind.attention == Attention::Latent;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(Error::Malformed(format!(
            "`num_key_value_heads` is {n_kv_heads}: expected a divisor of {n_heads} heads"
        )));
    }
    let head_dim = match config.count_if(&["head_dim"], 1, MOST_HEADS)? {
        Some(head_dim) if !latent => head_dim,
        _ => (hidden_size / n_heads).max(1),
    };
    let context = config.count_if(&["max_position_embeddings"], 1, WIDEST)?;
    let vocab_size = config.count(&["vocab_size"], WIDEST)?;
    let mut outline = Outline::new(kind.architecture, vocab_size as usize);
    for (key, count) in [
        ("embedding_length", hidden_size),
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_kv_heads),
        ("attention.key_length", head_dim),
        (
            "attention.value_length",
            config.count_if(&["v_head_dim"], 1, MOST_HEADS)?.unwrap_or(head_dim),
        ),
        ("feed_forward_length", config.count(&["intermediate_size"], WIDEST)?),
        ("block_count", n_layers(config)?),
        ("context_length", context.unwrap_or(4096)),
    ] {
        outline.set(key, count);
    }
    let eps = ["rms_norm_eps", "layer_norm_eps", "layernorm_epsilon", "norm_eps"];
    let eps = config.real(&eps)?.unwrap_or(if kind.layer_norm { 1e-5 } else { 1e-6 });
    outline.set(
        if kind.layer_norm {
            "attention.layer_norm_epsilon"
        } else {
            "attention.layer_norm_rms_epsilon"
        },
        eps,
    );
    if !config.flag(&["tie_word_embeddings"])?.unwrap_or(kind.tied) {
        outline.tensor("output.weight");
    }
    Ok(outline)
}

fn n_layers(config: &Config<'_>) -> Result<u32, Error> {
    config.count(&["num_hidden_layers"], MOST_LAYERS)
}

/// Sets the scale factors that add operations of their own.
fn factors(outline: &mut Outline, config: &Config<'_>) -> Result<(), Error> {
    for (key, name) in [
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("attention_multiplier", "attention.scale"),
        ("logits_scaling", "logit_scale"),
        ("logit_scale", "logit_scale"),
        ("attention_value_scale", "attention.value_scale"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
    ] {
        if let Some(factor) = config.real(&[key])? {
            outline.set(name, factor);
        }
    }
    Ok(())
}

/// Sets the window, the layers that use it, and their numbers of heads if these differ. Files list the layers in several ways,
/// or the architecture knows them.
fn windows(outline: &mut Outline, config: &Config<'_>, kind: &Kind) -> Result<(), Error> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let keys = ["sliding_window", "sliding_window_size"];
    let Some(window) = config.count_if(&keys, 1, WIDEST)? else {
        // some EXAONE and OLMo models have no window
        return match kind.name {
            "exaone4" | "olmo3" => Ok(()),
            _ => config.count(&keys, WIDEST).map(|_| ()),
        };
    };
    outline.set("attention.sliding_window", window);
    let n = n_layers(config)?;
    let slides = slides(config, n)?;
    if let Some(period) = config
        .count_if(
            &["sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"],
            1,
            MOST_LAYERS,
        )
        .ok()
        .flatten()
        .filter(|_| slides.is_none())
    {
        outline.set(PATTERN, period);
    }
    let Some(slides) = slides else { return Ok(()) };
    let each = |[whole, windowed]: [u32; 2]| -> Vec<u32> {
        slides.iter().map(|slides| if *slides { windowed } else { whole }).collect()
    };
    let n_heads = config.count(&["num_attention_heads"], MOST_HEADS)?;
    if let Some(other) = config.within("attention_other_setting") {
        let windowed = other.count(&["num_attention_heads"], MOST_HEADS)?;
        outline.set("attention.head_count", each([n_heads, windowed]));
    }
    if let Some(windowed) = config.count_if(&["swa_num_key_value_heads"], 1, MOST_HEADS)? {
        let whole = config.count(&["num_key_value_heads"], MOST_HEADS)?;
        outline.set("attention.head_count_kv", each([whole, windowed]));
    }
    if let Some(heads) = config.counts("num_attention_heads_per_layer", n, MOST_HEADS)? {
        outline.set("attention.head_count", heads);
    }
    outline.set(PATTERN, slides);
    Ok(())
}

/// Returns which of `n` layers have a window, if the file lists them.
fn slides(config: &Config<'_>, n: u32) -> Result<Option<Vec<bool>>, Error> {
    if let Some(types) = config.words("layer_types") {
        // the list may end with layers for multi-token prediction
        let n = if types.len() > n as usize { n as usize } else { types.len() };
        return Ok(Some(types[..n].iter().map(|ty| *ty == "sliding_attention").collect()));
    }
    if let Some(pattern) = config.counts("hybrid_layer_pattern", n, 1)? {
        return Ok(Some(pattern.iter().map(|windowed| *windowed == 1).collect()));
    }
    let letters = config.text("sliding_window_pattern").filter(|letters| !letters.is_empty());
    Ok(letters.map(|letters| {
        letters.chars().cycle().take(n as usize).map(|letter| letter == 'L').collect()
    }))
}

/// Sets the dimensions of latent attention and of its indexer.
fn latents(outline: &mut Outline, config: &Config<'_>) -> Result<(), Error> {
    let width = |key: &str| config.count(&[key], MOST_HEADS);
    let nope_dim = width("qk_nope_head_dim")?;
    let rope_dims = width("qk_rope_head_dim")?;
    match config.count_if(&["q_lora_rank"], 1, MOST_HEADS)? {
        Some(rank) => outline.set("attention.q_lora_rank", rank),
        None => outline.tensor("blk.0.attn_q.weight"),
    };
    for (key, count) in [
        ("attention.kv_lora_rank", width("kv_lora_rank")?),
        ("attention.key_length_mla", nope_dim + rope_dims),
        ("attention.value_length_mla", width("v_head_dim")?),
        ("rope.dimension_count", rope_dims),
    ] {
        outline.set(key, count);
    }
    for (key, name) in [
        ("index_n_heads", "attention.indexer.head_count"),
        ("index_head_dim", "attention.indexer.key_length"),
        ("index_topk", "attention.indexer.top_k"),
    ] {
        if let Some(count) = config.count_if(&[key], 1, WIDEST)? {
            outline.set(name, count);
        }
    }
    Ok(())
}

/// Sets the experts, the dense layers before them, and the shared expert.
fn experts(outline: &mut Outline, config: &Config<'_>, mixture: Mixture) -> Result<(), Error> {
    let n_layers = n_layers(config)?;
    let n = ["num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"];
    let n_experts = config.count(&n, 4096)?;
    let n_used = ["num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k"];
    let n_used = config.count(&n_used, n_experts)?;
    outline.set("expert_count", n_experts).set("expert_used_count", n_used);
    let width = match mixture.as_dense {
        true => config.count(&["intermediate_size"], WIDEST)?,
        false => config.count(&["moe_intermediate_size"], WIDEST)?,
    };
    outline.set("expert_feed_forward_length", width);
    shared(outline, config, width)?;
    let n_dense = n_dense(config, n_layers)?;
    outline.set("leading_dense_block_count", n_dense);
    outline.set("expert_gating_func", if mixture.sigmoid { 2u32 } else { 1 });
    if let Some(bias) = mixture.bias {
        outline.tensor(&format!("blk.{n_dense}.{bias}"));
    }
    let normalize = config.flag(&["norm_topk_prob", "route_norm", "norm_expert_weight"])?;
    outline.set("expert_weights_norm", normalize.unwrap_or(mixture.normalize));
    let scale = [
        "routed_scaling_factor",
        "route_scale",
        "moe_router_scaling_factor",
        "moe_routed_scaling_factor",
    ];
    outline.set("expert_weights_scale", config.real(&scale)?.unwrap_or(1.0));
    let n_groups = config.count_or_none(&["n_group"], n_experts)?;
    if n_groups > 1 {
        let n_used = config.count(&["topk_group"], n_groups)?;
        outline.set("expert_group_count", n_groups).set("expert_group_used_count", n_used);
    }
    Ok(())
}

/// Sets the width of the shared expert, which every token uses: a multiple of the width of one expert, or the value of its own
/// key.
fn shared(outline: &mut Outline, config: &Config<'_>, width: u32) -> Result<(), Error> {
    let own = ["shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size"];
    let n =
        ["n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"];
    let n = config.count_or_none(&n, 4096)?;
    let shared = match config.count_or_none(&own, WIDEST)? {
        0 => n.checked_mul(width).filter(|width| *width <= WIDEST),
        own => Some(own),
    };
    let Some(shared) = shared else {
        let message = format!("{n} shared experts of width {width} are more than {WIDEST} wide");
        return Err(Error::Malformed(message));
    };
    outline.set("expert_shared_feed_forward_length", shared);
    Ok(())
}

/// Returns the number of dense layers before the layers of experts. Files say this in several ways.
///
/// # Errors
/// [`Error::Malformed`] if there are dense layers between layers of experts.
fn n_dense(config: &Config<'_>, n_layers: u32) -> Result<u32, Error> {
    let mixed = || Error::Malformed("layers without experts between those with them".to_owned());
    let step = ["decoder_sparse_step", "moe_layer_interval"];
    let step = config.count_if(&step, 0, MOST_LAYERS)?.unwrap_or(1);
    let other = config.words("mlp_only_layers").is_some_and(|layers| !layers.is_empty());
    if step != 1 || other {
        return Err(mixed());
    }
    let sparse: Option<Vec<bool>> = if let Some(types) = config.words("mlp_layer_types") {
        Some(types.iter().map(|ty| *ty == "sparse").collect())
    } else if let Some(list) = config.text("moe_layers_enum") {
        let listed = |i: u32| list.split(',').any(|n| n.trim().parse() == Ok(i));
        Some((0..n_layers).map(listed).collect())
    } else if config.words("moe_layer_freq").is_some() {
        let each = config.counts("moe_layer_freq", n_layers, 1)?;
        each.map(|each| each.iter().map(|freq| *freq == 1).collect())
    } else {
        None
    };
    let Some(sparse) = sparse else {
        let keys = ["first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"];
        return Ok(config.count_or_none(&keys, MOST_LAYERS)?.min(n_layers));
    };
    let n_dense = sparse.iter().take_while(|sparse| !**sparse).count();
    if sparse[n_dense..].contains(&false) {
        return Err(mixed());
    }
    Ok((n_dense as u32).min(n_layers))
}

#[cfg(test)]
mod tests;

//! What files of models with indexers, several residual streams and rows by hashes may say, and what is made of it.

use gguf::OwnedValue;
use models::{IndexerConfig, ModelConfig, Outline};
use program::{RopePairs, UnitScore};

/// A small model of three layers with latent attention, experts behind the first one, and an indexer.
fn latent(architecture: &str) -> Outline {
    let mut outline = Outline::new(architecture, 320);
    for (key, value) in [
        ("context_length", 512u32),
        ("block_count", 3),
        ("embedding_length", 64),
        ("feed_forward_length", 96),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 1),
        ("attention.q_lora_rank", 32),
        ("attention.kv_lora_rank", 32),
        ("attention.key_length", 48),
        ("attention.value_length", 32),
        ("attention.key_length_mla", 40),
        ("attention.value_length_mla", 24),
        ("rope.dimension_count", 16),
        ("expert_count", 8),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 16),
        ("leading_dense_block_count", 1),
        ("attention.indexer.head_count", 4),
        ("attention.indexer.key_length", 64),
        ("attention.indexer.top_k", 16),
        ("hyper_connection.count", 4),
    ] {
        outline.set(key, value);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    outline.set("hyper_connection.epsilon", 1e-6f32);
    outline
}

/// The same with delta nets in all layers but the last.
fn pooled() -> Outline {
    let mut outline = latent("glm5-next");
    outline.set("rope.dimension_count", 0u32).set("attention.head_count_kv", vec![0u32, 0, 1]);
    outline.set("ssm.conv_kernel", 4u32).set("kda.head_dim", 16u32);
    outline.set("attention.indexer.kpool", 4u32);
    outline.set("attention.indexer.kpool_select_tail", true);
    outline.set("hyper_connection.sinkhorn_iterations", 5u32);
    outline
}

/// Attention over keys and values, an indexer of blocks for each head.
fn blocks() -> Outline {
    let mut outline = latent("minimax-m3");
    outline.set("attention.head_count_kv", 2u32).set("attention.key_length", 32u32);
    outline.set("attention.indexer.block_size", 8u32).set("attention.indexer.local_blocks", 1u32);
    outline
}

fn accepted(outline: &Outline) -> ModelConfig {
    outline.config().unwrap_or_else(|e| panic!("a good outline is refused: {e}"))
}

fn refused(mut outline: Outline, key: &str, value: impl Into<OwnedValue>, why: &str) {
    outline.set(key, value);
    let message = outline.config().expect_err("it is refused").to_string();
    assert!(message.contains(why), "{message}");
}

/// For each layer, whether it has an indexer, and whether that is its own.
fn indexers(c: &ModelConfig) -> Vec<Option<bool>> {
    c.layers.iter().map(|layer| layer.indexer.as_ref().map(|its| its.own)).collect()
}

fn indexer(c: &ModelConfig) -> &IndexerConfig {
    c.layers.iter().find_map(|layer| layer.indexer.as_ref()).expect("a layer has one")
}

#[test]
fn layers_have_indexers_of_their_own_or_read_by_the_last_one() {
    const TYPES: &str = "attention.indexer.types";
    let own = |outline: &Outline| indexers(&accepted(outline));
    assert_eq!(own(&latent("deepseek32")), [Some(true); 3]);
    let mut few = latent("glm-dsa");
    assert_eq!(own(&few), [Some(true); 3]);
    few.set(TYPES, vec![1u32, 0, 1]);
    assert_eq!(own(&few), [Some(true), Some(false), Some(true)]);
    few.set(TYPES, vec![true, true, false]);
    assert_eq!(own(&few), [Some(true), Some(true), Some(false)]);
    // published models of a million tokens have few of them, also where the file does not say so
    few.unset(TYPES).set("context_length", 1u32 << 20).set("block_count", 7u32);
    let every = [true, true, true, false, false, false, true].map(Some);
    assert_eq!(own(&few), every);
    let of = |value: OwnedValue, why| refused(latent("glm-dsa"), TYPES, value, why);
    of(vec![0u32, 1, 1].into(), "an indexer in the first layer that attends");
    of(vec![1u32].into(), "one of 3 flags");
    of("all".into(), "one of 3 flags");
    of(vec!["x", "y", "z"].into(), "flags");
    for key in ["head_count", "key_length", "top_k"] {
        refused(latent("deepseek32"), &format!("attention.indexer.{key}"), 0u32, "1..=");
    }
    let why = "16 or more, which rotate";
    refused(latent("deepseek32"), "attention.indexer.key_length", 8u32, why);
    // windows of some layers leave these without
    let mut windows = latent("dots3note");
    windows.set("attention.sliding_window", 24u32);
    windows.set("attention.sliding_window_pattern", vec![false, true, false]);
    assert_eq!(own(&windows), [Some(true), None, Some(true)]);
    // Hunyuan's files may have none
    assert_eq!(own(&latent("hy_v4")), [Some(true); 3]);
    assert_eq!(own(latent("hy_v4").unset("attention.indexer.top_k")), [None; 3]);
}

#[test]
fn units_are_positions_blocks_or_pools() {
    let c = accepted(&latent("deepseek32"));
    let plain = indexer(&c);
    assert_eq!((plain.unit, plain.n_units, plain.n_last), (1, 16, 0));
    assert_eq!((plain.pairs, plain.rotates_last), (RopePairs::HalfSplit, false));
    assert!(indexer(&accepted(&latent("hy_v4"))).rotates_last);
    let c = accepted(&blocks());
    assert_eq!(indexers(&c), [None, Some(true), Some(true)], "dense layers read all");
    assert_eq!((indexer(&c).unit, indexer(&c).n_last), (8, 1));
    refused(blocks(), "attention.indexer.local_blocks", 17u32, "0..=16");
    refused(blocks(), "attention.indexer.block_size", 0u32, "1..=");
    let c = accepted(&pooled());
    assert_eq!(indexers(&c), [None, None, Some(true)], "delta nets do not attend");
    let its = indexer(&c);
    assert_eq!((its.unit, its.n_units, its.unit_score), (4, 4, UnitScore::Last));
    assert!(c.layers.iter().all(|layer| layer.rope.is_none()));
    assert_eq!(c.hyper.as_ref().and_then(|its| its.rounds), Some(5));
    refused(pooled(), "attention.indexer.top_k", 18u32, "a multiple of attention.indexer.kpool 4");
    refused(pooled(), "attention.indexer.kpool_select_tail", false, "expected true, found false");
    refused(pooled(), "hyper_connection.sinkhorn_iterations", 0u32, "1..=");
    refused(pooled(), "hyper_connection.count", 1u32, "2..=16");
    refused(pooled(), "attention.indexer.types", vec![1u32, 1, 0], "the first layer that attends");
}

/// A model that must rotate says by how much.
#[test]
fn other_latents_rotate() {
    refused(latent("deepseek2"), "rope.dimension_count", 1u32, "an even number");
    assert!(
        accepted(latent("deepseek2").set("rope.dimension_count", 0u32)).layers[0].rope.is_none()
    );
    refused(blocks(), "rope.dimension_count", 0u32, "an even number");
}

#[test]
fn rows_by_hashes_need_a_table() {
    let mut outline = latent("qwen4exp");
    outline.set("attention.head_count_kv", 2u32).set("attention.key_length", 32u32);
    outline.set("ssm.conv_kernel", 4u32).set("ssm.state_size", 16u32).set("ssm.group_count", 2u32);
    outline.set("ssm.time_step_rank", 4u32).set("ssm.inner_size", 64u32);
    outline.set("hyper_connection.low_rank", 8u32);
    outline.set("attention.compress_ratios", vec![4u32, 4, 4]).set("full_attention_interval", 3u32);
    let c = accepted(&outline);
    assert_eq!((indexers(&c), c.ngrams.is_none()), (vec![None, None, Some(true)], true));
    let its = indexer(&c);
    assert_eq!((its.unit, its.n_units, its.keys_back), (1, 19, 3));
    assert_eq!(its.unit_score, UnitScore::OfPool(4));
    refused(outline.clone(), "ple.layers", vec![7u32], "one layer, 0..=2");
    refused(outline.clone(), "ple.layers", vec![0u32, 1], "one layer, 0..=2");
    refused(outline.clone(), "ple.layers", 0u32, "1 or more whole numbers");
    outline.set("ple.ngram_size", 3u32).set("ple.heads_per_ngram", 2u32);
    refused(outline.clone(), "ple.layers", vec![0u32], "per_layer_token_embd.weight");
    refused(outline.clone(), "hyper_connection.low_rank", 0u32, "1..=");
    refused(outline, "attention.compress_ratios", vec![4u32], "one per layer (3)");
}

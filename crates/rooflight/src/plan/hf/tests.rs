//! Tests with published files of each kind.

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

/// Removes rotary parameters, which a `config.json` may lack and a plan does not depend on.
fn without_rotation(mut config: ModelConfig) -> ModelConfig {
    config.name = None;
    for layer in &mut config.layers {
        (layer.rope, layer.score.scale, layer.score.temperature) = (None, 0.0, None);
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
    assert_eq!(
        parse(&none).unwrap_err().to_string(),
        "`sliding_window` (or sliding_window_size) is missing"
    );
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
    let indexer = r#""index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "n_group""#;
    let v32 = v3.replace("deepseek_v3", "deepseek_v32").replace("\"n_group\"", indexer);
    for (name, text) in [
        ("deepseek-v2-lite", lite),
        ("deepseek-v3", v3),
        ("deepseek-v3.2", &v32),
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
    assert!(message(&v32.replace("index_topk", "x")).contains("attention.indexer.top_k"));
    assert!(message(&v3.replace("\"topk_group\": 4", "\"topk_group\": 9")).contains("1 to 8"));
}

#[test]
fn what_cannot_be_is_named() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    let unknown = message(&QWEN.replace("qwen2", "mam\\nba"));
    assert!(unknown.starts_with("`model_type` is \"mam\\nba\": expected qwen2, qwen3, llama"));
    assert_eq!(unknown.lines().count(), 1);
    assert_eq!(message(&QWEN.replace("vocab_size", "x")), "`vocab_size` is missing");
    assert_eq!(
        message(&QWEN.replace("\"num_hidden_layers\": 24", "\"num_hidden_layers\": 0")),
        "`num_hidden_layers` is 0: expected 1 to 512"
    );
    assert!(message(&QWEN.replace(": 2,", ": 3,")).contains("divisor of 14 heads"));
    assert!(
        message(&QWEN.replace("896", "\"896\""))
            .contains("`hidden_size` is \"896\": expected 1 to")
    );
    let long = message(&QWEN.replace("896", &format!("\"{}\"", "x\\u001b".repeat(9000))));
    assert!(long.chars().count() <= 210 && !long.contains('\u{1b}'), "{long}");
    for number in ["1e30", "-1", "18446744073709551615", "99999999999999999999", "[[]]", "null"] {
        assert!(parse(&QWEN.replace("896", number)).is_err(), "{number}");
    }
    assert!(message(&"[".repeat(100_000)).contains("line 1"));
    assert!(message("{").contains("EOF"));
    assert!(message("{}").contains("`model_type` is \"\""));
}

/// Published files, without keys that do not affect dimensions.
const PUBLISHED: &[(&str, &str)] = &[
    (
        "glm-4.5-air",
        r#"{"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
        "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151552, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "first_k_dense_replace": 1,
        "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
        "norm_topk_prob": true, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "topk_group": 1,
        "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "use_qk_norm": false}"#,
    ),
    (
        "glm-4.7-flash",
        r#"{"model_type": "glm4_moe_lite", "num_hidden_layers": 47, "hidden_size": 2048,
        "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 64, "intermediate_size": 10240,
        "vocab_size": 154880, "max_position_embeddings": 202752, "n_routed_experts": 64, "n_shared_experts": 1,
        "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "kv_lora_rank": 512,
        "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        "routed_scaling_factor": 1.8, "rms_norm_eps": 1e-05, "tie_word_embeddings": false}"#,
    ),
    (
        "glm-4-9b",
        r#"{"model_type": "glm4", "hidden_size": 4096, "num_hidden_layers": 40, "intermediate_size": 13696,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552,
        "rms_norm_eps": 0.00001, "max_position_embeddings": 32768, "tie_word_embeddings": false}"#,
    ),
    (
        "granite-3.3-2b",
        r#"{"model_type": "granite", "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
        "hidden_size": 2048, "intermediate_size": 8192, "logits_scaling": 8.0, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "tie_word_embeddings": true, "vocab_size": 49159}"#,
    ),
    (
        "granite-3.1-3b-a800m",
        r#"{"model_type": "granitemoe", "hidden_size": 1536, "intermediate_size": 512,
        "max_position_embeddings": 131072, "num_attention_heads": 24, "num_experts_per_tok": 8,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 40, "rms_norm_eps": 1e-06,
        "tie_word_embeddings": true, "vocab_size": 49155}"#,
    ),
    (
        "gpt-oss-20b",
        r#"{"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
        "max_position_embeddings": 131072, "num_local_experts": 32, "num_experts_per_tok": 4,
        "rms_norm_eps": 1e-05, "sliding_window": 128, "tie_word_embeddings": false}"#,
    ),
    (
        "gemma-3-4b",
        r#"{"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"}}"#,
    ),
    (
        "mistral-small-3.2",
        r#"{"model_type": "mistral3", "text_config": {"model_type": "mistral", "head_dim": 128,
        "hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "sliding_window": null, "vocab_size": 131072}, "vision_config": {"hidden_size": 1024}}"#,
    ),
    (
        "ministral-3-3b",
        r#"{"model_type": "mistral3", "tie_word_embeddings": true, "text_config": {"model_type": "ministral3",
        "head_dim": 128, "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 262144,
        "num_attention_heads": 32, "num_hidden_layers": 26, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "vocab_size": 131072, "sliding_window": null}}"#,
    ),
    (
        "phi-4-mini",
        r#"{"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "sliding_window": 262144, "tie_word_embeddings": true}"#,
    ),
    (
        "smollm3-3b",
        r#"{"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256, "rms_norm_eps": 1e-06,
        "max_position_embeddings": 65536, "tie_word_embeddings": true}"#,
    ),
    (
        "seed-oss-36b",
        r#"{"model_type": "seed_oss", "hidden_size": 5120, "num_hidden_layers": 64, "intermediate_size": 27648,
        "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 0.000001,
        "vocab_size": 155136, "max_position_embeddings": 524288, "tie_word_embeddings": false}"#,
    ),
    (
        "olmo-2-1b",
        r#"{"model_type": "olmo2", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
        "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "vocab_size": 100352,
        "tie_word_embeddings": false}"#,
    ),
    (
        "exaone-4.0-1.2b",
        r#"{"model_type": "exaone4", "hidden_size": 2048, "intermediate_size": 4096, "num_hidden_layers": 30,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5, "vocab_size": 102400, "sliding_window": null, "tie_word_embeddings": true}"#,
    ),
    (
        "exaone-4.0-32b",
        r#"{"model_type": "exaone4", "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "vocab_size": 102400, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
        "tie_word_embeddings": false}"#,
    ),
    (
        "command-r-08-2024",
        r#"{"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 24576, "num_hidden_layers": 40,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 256000, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "logit_scale": 0.0625}"#,
    ),
    (
        "command-r7b",
        r#"{"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000,
        "layer_norm_eps": 1e-05, "max_position_embeddings": 132096, "logit_scale": 0.25, "sliding_window": 4096,
        "sliding_window_pattern": 4}"#,
    ),
    (
        "minimax-m2",
        r#"{"model_type": "minimax_m2", "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536,
        "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 196608, "num_local_experts": 256, "num_experts_per_tok": 8,
        "rms_norm_eps": 1e-06, "tie_word_embeddings": false}"#,
    ),
    (
        "trinity-mini",
        r#"{"model_type": "afmoe", "global_attn_every_n_layers": 4, "head_dim": 128, "hidden_size": 2048,
        "intermediate_size": 6144, "max_position_embeddings": 131072, "moe_intermediate_size": 1024, "n_group": 1,
        "num_attention_heads": 32, "num_dense_layers": 2, "num_experts": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 32, "num_key_value_heads": 4, "num_shared_experts": 1, "rms_norm_eps": 1e-5,
        "route_norm": true, "route_scale": 2.826, "sliding_window": 2048, "vocab_size": 200192,
        "tie_word_embeddings": false}"#,
    ),
    (
        "hunyuan-a13b",
        r#"{"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
        "vocab_size": 128167, "num_experts": 64, "moe_intermediate_size": [3072, 3072], "moe_topk": [8, 8],
        "num_shared_expert": [1, 1], "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
        "max_position_embeddings": 262144}"#,
    ),
    (
        "hunyuan-7b",
        r#"{"model_type": "hunyuan_v1_dense", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
        "vocab_size": 128167, "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
        "max_position_embeddings": 262144}"#,
    ),
    (
        "ernie-4.5-0.3b",
        r#"{"model_type": "ernie4_5", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 128, "num_hidden_layers": 18, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "vocab_size": 103424, "tie_word_embeddings": true}"#,
    ),
    (
        "ernie-4.5-21b-a3b",
        r#"{"model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288,
        "max_position_embeddings": 131072, "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": null,
        "num_hidden_layers": 28, "rms_norm_eps": 0.00001, "vocab_size": 103424, "moe_num_experts": 64,
        "moe_layer_start_index": 1, "moe_intermediate_size": 1536, "moe_k": 6, "moe_layer_interval": 1,
        "moe_num_shared_experts": 2, "moe_layer_end_index": null}"#,
    ),
    (
        "ling-mini-2.0",
        r#"{"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"], "num_hidden_layers": 20,
        "hidden_size": 2048, "intermediate_size": 5120, "first_k_dense_replace": 1, "moe_intermediate_size": 512,
        "num_shared_experts": 1, "num_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
        "norm_topk_prob": true, "routed_scaling_factor": 2.5, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "vocab_size": 157184,
        "max_position_embeddings": 32768}"#,
    ),
    (
        "dots.llm1",
        r#"{"model_type": "dots1", "hidden_size": 4096, "num_hidden_layers": 62, "intermediate_size": 10944,
        "num_attention_heads": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "vocab_size": 152064,
        "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "n_routed_experts": 128,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        "max_position_embeddings": 32768, "tie_word_embeddings": false}"#,
    ),
];

#[test]
fn kinds_are_the_published_models() {
    for (name, text) in PUBLISHED {
        let published = models::find_published(name).unwrap_or_else(|| panic!("{name}"));
        let read = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(without_rotation(read), without_rotation(published), "{name}");
    }
}

/// Repeats `each` for `n` layers.
fn layers(n: usize, each: impl Fn(usize) -> &'static str) -> String {
    (0..n).map(each).collect::<Vec<_>>().join(", ")
}

#[test]
fn layers_that_differ_are_the_published_ones() {
    let word =
        |i: usize| if i.is_multiple_of(4) { "\"full_attention\"" } else { "\"sliding_attention\"" };
    // the list also includes the layers for multi-token prediction
    let step = format!(
        r#"{{"model_type": "step3p7", "text_config": {{"model_type": "step3p5", "hidden_size": 4096,
        "num_hidden_layers": 45, "vocab_size": 128896, "rms_norm_eps": 1e-5, "head_dim": 128,
        "num_attention_groups": 8, "num_attention_heads": 64, "intermediate_size": 11264,
        "max_position_embeddings": 262144, "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280,
        "share_expert_dim": 1280, "moe_router_scaling_factor": 3.0, "norm_expert_weight": true,
        "moe_layers_enum": "{}", "sliding_window": 512, "tie_word_embeddings": false,
        "attention_other_setting": {{"num_attention_heads": 96}}, "layer_types": [{}]}}}}"#,
        (3..45).map(|i| i.to_string()).collect::<Vec<_>>().join(","),
        layers(48, word)
    );
    let laguna = format!(
        r#"{{"model_type": "laguna", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 40, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
        "sliding_window": 512, "moe_routed_scaling_factor": 2.5, "layer_types": [{}],
        "mlp_layer_types": [{}], "num_attention_heads_per_layer": [{}]}}"#,
        layers(40, word),
        layers(40, |i| if i == 0 { "\"dense\"" } else { "\"sparse\"" }),
        layers(40, |i| if i.is_multiple_of(4) { "48" } else { "64" })
    );
    let mimo = format!(
        r#"{{"model_type": "mimo_v2_flash", "vocab_size": 152576, "hidden_size": 4096, "num_hidden_layers": 48,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
        "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "sliding_window": 128,
        "hybrid_layer_pattern": [{}], "moe_layer_freq": [{}], "intermediate_size": 16384,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "routed_scaling_factor": null, "n_group": 1, "norm_topk_prob": true, "layernorm_epsilon": 1e-5,
        "attention_value_scale": 0.707, "max_position_embeddings": 262144, "tie_word_embeddings": false}}"#,
        layers(48, |i| if i == 0 || i % 6 == 5 { "0" } else { "1" }),
        layers(48, |i| if i == 0 { "0" } else { "1" })
    );
    for (name, text) in
        [("step-3.5-flash", &step), ("laguna-xs.2", &laguna), ("mimo-v2-flash", &mimo)]
    {
        let published = models::find_published(name).unwrap();
        let read = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(without_rotation(read), without_rotation(published), "{name}");
    }
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert!(
        message(&laguna.replacen("\"sparse\", \"sparse\"", "\"sparse\", \"dense\"", 1))
            .contains("layers without experts")
    );
    assert!(
        message(&mimo.replace("\"num_hidden_layers\": 48", "\"num_hidden_layers\": 47"))
            .contains("`hybrid_layer_pattern`: expected a number up to 1 for each of 47 layers")
    );
    assert!(message(&step.replace("96", "0")).contains("`num_attention_heads` is 0"));
}

/// Each number is in its range, but their product is too large.
#[test]
fn what_is_too_large_together_is_refused() {
    let text = PUBLISHED.iter().find(|(name, _)| *name == "dots.llm1").unwrap().1;
    let wide =
        text.replace("\"moe_intermediate_size\": 1408", "\"moe_intermediate_size\": 16777216");
    let message = parse(&wide).unwrap_err().to_string();
    assert_eq!(message, "2 shared experts of width 16777216 are more than 16777216 wide");
}

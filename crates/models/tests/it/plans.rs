//! Models without a file: published shapes, and the tensor types of a file type.

use models::{MIXTURES, Mixture, ModelConfig, Outline, published};
use quant::GgmlType;

fn parameters(config: &ModelConfig) -> u64 {
    let f16 = Mixture::from_name("F16").expect("a file type");
    let ty = |name: &str, dims: &[u64]| f16.tensor_type(config, name, dims);
    let program = models::from_config(config, &ty).expect("whole blocks").program;
    program.weights.iter().map(|spec| (spec.rows * spec.cols) as u64).sum()
}

/// Counts of weights as the models' pages give them.
const COUNTS: &[(&str, u64)] = &[
    ("Qwen1.5-0.5B", 463_987_712),
    ("Qwen1.5-7B", 7_721_324_544),
    ("Qwen2.5-0.5B", 494_032_768),
    ("Qwen2.5-1.5B", 1_543_714_304),
    ("Qwen2.5-3B", 3_085_938_688),
    ("Qwen2.5-7B", 7_615_616_512),
    ("Qwen2.5-14B", 14_770_033_664),
    ("Qwen2.5-32B", 32_763_876_352),
    ("Qwen2.5-72B", 72_706_203_648),
    ("DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
    ("DeepSeek-R1-Distill-Qwen-7B", 7_615_616_512),
    ("DeepSeek-R1-Distill-Qwen-14B", 14_770_033_664),
    ("DeepSeek-R1-Distill-Qwen-32B", 32_763_876_352),
    ("Qwen3-0.6B", 596_049_920),
    ("Qwen3-4B", 4_022_468_096),
    ("Qwen3-8B", 8_190_735_360),
    ("Qwen3-14B", 14_768_307_200),
    ("Qwen3-32B", 32_762_123_264),
    ("Llama-3.2-1B", 1_235_814_400),
    ("Llama-3.2-3B", 3_212_749_824),
    ("Llama-3.1-8B", 8_030_261_248),
    ("Llama-3.3-70B", 70_553_706_496),
    ("Qwen1.5-MoE-A2.7B", 14_315_784_192),
    ("Qwen3-30B-A3B", 30_532_122_624),
    ("Qwen3-235B-A22B", 235_093_634_560),
    ("gpt-oss-20b", 20_914_757_184),
    ("gpt-oss-120b", 116_829_156_672),
    ("Phi-4", 14_659_507_200),
    ("Phi-4-mini", 3_836_021_760),
    ("Mistral-Small-24B", 23_572_403_200),
    ("SmolLM3-3B", 3_075_098_624),
    ("gemma-2-2b", 2_614_341_888),
    ("gemma-2-9b", 9_241_705_984),
    ("gemma-2-27b", 27_227_128_320),
    ("gemma-3-270m", 268_098_176),
    ("gemma-3-1b", 999_885_952),
    ("gemma-3-4b", 3_880_263_168),
    ("DeepSeek-V2-Lite", 15_706_484_224),
    ("DeepSeek-V2", 235_741_434_880),
    ("DeepSeek-V3", 671_026_419_200),
    ("GLM-4-9B", 9_400_094_720),
    ("granite-3.3-8b", 8_170_864_640),
    ("EXAONE-4.0-1.2B", 1_279_391_488),
    ("command-r7b", 8_028_033_024),
    ("Hunyuan-A13B", 80_393_183_232),
    ("LFM2-350M", 354_483_968),
    ("LFM2-700M", 742_489_344),
    ("LFM2-1.2B", 1_170_340_608),
    ("granite-4.0-h-small", 32_207_337_984),
    ("Nemotron-Nano-9B-v2", 8_888_227_328),
];

/// The same in billions, where the pages round.
const BILLIONS: &[(&str, f64)] = &[
    ("Qwen1.5-1.8B", 1.84),
    ("Qwen1.5-4B", 3.95),
    ("Qwen1.5-14B", 14.2),
    ("Qwen1.5-32B", 32.5),
    ("Qwen1.5-72B", 72.3),
    ("Qwen1.5-110B", 111.0),
    ("Qwen3-1.7B", 1.7),
    ("Llama-3-8B", 8.03),
    ("Llama-3-70B", 70.6),
    ("Llama-3.1-70B", 70.6),
    ("DeepSeek-R1-Distill-Llama-8B", 8.03),
    ("DeepSeek-R1-Distill-Llama-70B", 70.6),
    ("Mistral-Small-3.1", 24.0),
    ("Mistral-Small-3.2", 24.0),
    ("Ministral-3-3B", 3.4),
    ("Devstral-Small-2", 24.0),
    ("gemma-3-12b", 11.8),
    ("gemma-3-27b", 27.0),
    ("gemma-3n-E2B", 4.46),
    ("gemma-3n-E4B", 6.87),
    ("gemma-4-26B-A4B", 25.2),
    ("gemma-4-31B", 30.7),
    ("Llama-4-Scout", 108.0),
    ("Llama-4-Maverick", 400.0),
    ("GLM-4-32B", 32.6),
    ("GLM-4.5-Air", 106.0),
    ("GLM-4.5", 355.0),
    ("GLM-4.6", 355.0),
    ("GLM-4.7", 355.0),
    ("GLM-4.7-Flash", 30.0),
    ("granite-3.3-2b", 2.53),
    ("granite-3.1-1b-a400m", 1.33),
    ("granite-3.1-3b-a800m", 3.3),
    ("Seed-OSS-36B", 36.0),
    ("OLMo-2-1B", 1.48),
    ("EXAONE-4.0-32B", 32.0),
    ("command-r", 35.0),
    ("command-r-08-2024", 32.3),
    ("command-a", 111.0),
    ("Hunyuan-7B", 7.5),
    ("ERNIE-4.5-0.3B", 0.36),
    ("ERNIE-4.5-21B-A3B", 21.8),
    ("MiniMax-M2", 230.0),
    ("MiniMax-M2.1", 230.0),
    ("MiniMax-M2.5", 230.0),
    ("Trinity-Nano", 6.1),
    ("Trinity-Mini", 26.0),
    ("MiMo-V2-Flash", 309.0),
    ("Step-3.5-Flash", 196.0),
    ("Laguna-XS.2", 33.0),
    ("Ling-mini-2.0", 16.0),
    ("dots.llm1", 142.0),
    ("DeepSeek-R1", 671.0),
    ("DeepSeek-V3.2", 671.0),
    ("Qwen3.5-0.8B", 0.75),
    ("Qwen3.5-2B", 1.9),
    ("Qwen3.5-4B", 4.2),
    ("Qwen3.5-9B", 8.95),
    ("Qwen3.5-27B", 26.9),
    ("Qwen3.5-35B-A3B", 34.7),
    ("Qwen3.5-122B-A10B", 122.0),
    ("Qwen3.5-397B-A17B", 396.0),
    ("Qwen3-Next-80B-A3B", 79.7),
    ("LFM2-8B-A1B", 8.3),
    ("granite-4.0-h-tiny", 6.9),
    ("Nemotron-3-Nano-30B-A3B", 31.6),
    ("Kimi-Linear-48B-A3B", 49.1),
    ("mamba2-130m", 0.13),
    ("mamba2-370m", 0.37),
    ("mamba2-780m", 0.78),
    ("mamba2-1.3b", 1.34),
    ("mamba2-2.7b", 2.7),
];

#[test]
fn published_shapes_have_the_published_number_of_weights() {
    for config in published() {
        let name = config.name.as_deref().expect("published models have names");
        let n = parameters(&config);
        let exact = COUNTS.iter().find(|(known, _)| *known == name);
        let rounded = BILLIONS.iter().find(|(known, _)| *known == name);
        match (exact, rounded) {
            (Some((_, want)), None) => assert_eq!(n, *want, "{name}"),
            (None, Some((_, want))) => {
                let off = n as f64 / (1e9 * want) - 1.0;
                assert!(off.abs() < 0.02, "{name}: {n}, {:.1} % off", 100.0 * off);
            }
            _ => panic!("{name}: expected one published count"),
        }
    }
}

#[test]
fn every_published_model_can_be_recorded_in_every_file_type() {
    for config in published() {
        for mixture in MIXTURES {
            let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
            let model = models::from_config(&config, &ty);
            let program = model.unwrap_or_else(|e| panic!("{config:?} {mixture:?}: {e}")).program;
            assert_eq!(program.vocab_size(), config.vocab_size);
        }
    }
}

/// Tiny models that llama.cpp quantized (llama-cpp-python 0.3.36), by name.
fn tiny(name: &str) -> ModelConfig {
    let (architecture, dims, heads, tied_embeddings) = match name {
        "grouped" => ("qwen2", [256, 16, 512], [8, 2, 32], false),
        "tied" => ("qwen3", [256, 20, 512], [4, 2, 64], true),
        "odd" => ("llama", [320, 9, 768], [5, 5, 64], false),
        "deep" => ("llama", [256, 80, 256], [4, 2, 64], false),
        other => panic!("{other}"),
    };
    let [hidden_size, n_layers, intermediate_size]: [u32; 3] = dims;
    let [n_heads, n_kv_heads, head_dim]: [u32; 3] = heads;
    let mut outline = Outline::new(architecture, 512);
    for (key, count) in [
        ("embedding_length", hidden_size),
        ("block_count", n_layers),
        ("feed_forward_length", intermediate_size),
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_kv_heads),
        ("attention.key_length", head_dim),
        ("context_length", 512),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    if !tied_embeddings {
        outline.tensor("output.weight");
    }
    outline.config().expect("a valid outline")
}

/// `2xQ6_K+Q4_K`: the type of each layer.
fn layers(text: &str) -> Vec<GgmlType> {
    let run = |run: &str| {
        let (n, ty) =
            run.split_once('x').map_or((1, run), |(n, ty)| (n.parse().expect("a number"), ty));
        vec![GgmlType::from_name(ty).expect("a type"); n]
    };
    text.split('+').flat_map(run).collect()
}

#[test]
fn mixtures_are_what_llama_cpp_makes() {
    let mut compared = 0;
    for line in include_str!("../mixtures.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (config, mixture) = (tiny(words[0]), Mixture::from_name(words[1]).unwrap());
        let said = |tensor: &str| {
            words[2..]
                .iter()
                .find_map(|word| Some(layers(word.strip_prefix(tensor)?.strip_prefix('=')?)))
        };
        let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
        let program = models::from_config(&config, &ty).unwrap().program;
        for spec in program.weights.iter().filter(|spec| spec.rows > 1) {
            let name = spec.name.strip_suffix(".weight").unwrap();
            let (layer, tensor) = match name.strip_prefix("blk.") {
                Some(rest) => {
                    let (layer, tensor) = rest.split_once('.').unwrap();
                    (layer.parse().unwrap(), tensor)
                }
                None => (0, name),
            };
            let want = said(tensor).or_else(|| said("attn_k")).unwrap()[layer];
            assert_eq!(spec.ty, want, "{} {} {name}", words[0], words[1]);
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}

//! Published models by name.

use models::{find_published, published, similar_published};

fn found(name: &str) -> Option<String> {
    find_published(name).and_then(|config| config.name)
}

#[test]
fn names_as_people_write_them() {
    for config in published() {
        let name = config.name.unwrap();
        assert_eq!(found(&name).as_ref(), Some(&name), "unique");
    }
    for (written, want) in [
        ("qwen2.5:7b", "Qwen2.5-7B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("QWEN2.5_0.5b_instruct-GGUF", "Qwen2.5-0.5B"),
        ("qwen1.5-110b-chat", "Qwen1.5-110B"),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
        ("llama3.1:8b", "Llama-3.1-8B"),
        ("llama3.2-1b", "Llama-3.2-1B"),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2-Lite"),
        ("deepseek-r1", "DeepSeek-R1"),
        ("deepseek-r1:671b", "DeepSeek-R1"),
        ("bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF", "DeepSeek-R1-Distill-Qwen-7B"),
        ("deepseek-v3.2", "DeepSeek-V3.2"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "DeepSeek-V3.2"),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "Qwen1.5-MoE-A2.7B"),
        ("qwen3:30b-a3b", "Qwen3-30B-A3B"),
        ("zai-org/GLM-4.5-Air", "GLM-4.5-Air"),
        ("glm-4.5", "GLM-4.5"),
        ("granite-3.3-2b-instruct", "granite-3.3-2b"),
        ("Command-R7B", "command-r7b"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2"),
        ("mistralai/Ministral-3-3B-Instruct-2512", "Ministral-3-3B"),
        ("THUDM/GLM-4-9B-0414", "GLM-4-9B"),
        ("bartowski/THUDM_GLM-4-9B-0414-GGUF", "GLM-4-9B"),
        ("LGAI-EXAONE/EXAONE-4.0-1.2B", "EXAONE-4.0-1.2B"),
        ("dots.llm1", "dots.llm1"),
        ("tencent/Hunyuan-A13B-Instruct", "Hunyuan-A13B"),
        ("hunyuan:7b", "Hunyuan-7B"),
        ("CohereLabs/c4ai-command-r7b-12-2024", "command-r7b"),
        ("command-r-08-2024", "command-r-08-2024"),
        ("allenai/OLMo-2-0425-1B", "OLMo-2-1B"),
        ("phi4:14b", "Phi-4"),
        ("google/gemma-3n-E2B-it", "gemma-3n-E2B"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama-4-Scout"),
        ("google/gemma-4-26B-A4B-it", "gemma-4-26B-A4B"),
        ("qwen3.5:0.8b", "Qwen3.5-0.8B"),
        ("Qwen/Qwen3.5-35B-A3B", "Qwen3.5-35B-A3B"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next-80B-A3B"),
        ("LiquidAI/LFM2-1.2B", "LFM2-1.2B"),
        ("ibm-granite/granite-4.0-h-tiny", "granite-4.0-h-tiny"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "Kimi-Linear-48B-A3B"),
        ("state-spaces/mamba2-1.3b", "mamba2-1.3b"),
    ] {
        assert_eq!(found(written).as_deref(), Some(want), "{written}");
    }
    for other in [
        "qwen2.5",
        "qwen2.5-9b",
        "qwen3-4b-2507",
        "phi-4-vision",
        "command-r-plus",
        "24b",
        "deepseek-r1:7b",
        "deepseek-r1:32b",
        "deepseek-r1:70b",
        "deepseek-v2:16b",
        "mistral-small:7b",
        "llama-4-scout-8e",
    ] {
        assert_eq!(found(other), None, "{other}");
    }
    assert_eq!(found(""), None);
}

#[test]
fn near_misses() {
    assert_eq!(similar_published("qwen2.5:8b")[..2], ["Qwen2.5-3B", "Qwen2.5-7B"]);
    assert_eq!(similar_published("qwn3-8b")[0], "Qwen3-8B");
    assert!(similar_published("mamba").is_empty());
    assert!(similar_published(&"x".repeat(10_000)).is_empty());
}

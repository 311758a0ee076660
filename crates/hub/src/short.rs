//! Short names: families and sizes, and the repository in which their GGUF files are. The first size of a family is meant
//! where none is named. One line each, so that what moves is one line to change.

/// Family, size, repository.
pub const SHORT_NAMES: &[(&str, &str, &str)] = &[
    ("qwen2.5", "7b", "Qwen/Qwen2.5-7B-Instruct-GGUF"),
    ("qwen2.5", "0.5b", "Qwen/Qwen2.5-0.5B-Instruct-GGUF"),
    ("qwen2.5", "1.5b", "Qwen/Qwen2.5-1.5B-Instruct-GGUF"),
    ("qwen2.5", "3b", "Qwen/Qwen2.5-3B-Instruct-GGUF"),
    ("qwen2.5", "14b", "Qwen/Qwen2.5-14B-Instruct-GGUF"),
    ("qwen2.5", "32b", "Qwen/Qwen2.5-32B-Instruct-GGUF"),
    ("qwen2.5", "72b", "Qwen/Qwen2.5-72B-Instruct-GGUF"),
    ("qwen2.5-coder", "7b", "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF"),
    ("qwen2.5-coder", "0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"),
    ("qwen2.5-coder", "1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"),
    ("qwen2.5-coder", "3b", "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF"),
    ("qwen2.5-coder", "14b", "Qwen/Qwen2.5-Coder-14B-Instruct-GGUF"),
    ("qwen2.5-coder", "32b", "Qwen/Qwen2.5-Coder-32B-Instruct-GGUF"),
    ("qwen3", "8b", "Qwen/Qwen3-8B-GGUF"),
    ("qwen3", "0.6b", "Qwen/Qwen3-0.6B-GGUF"),
    ("qwen3", "1.7b", "Qwen/Qwen3-1.7B-GGUF"),
    ("qwen3", "4b", "Qwen/Qwen3-4B-GGUF"),
    ("qwen3", "14b", "Qwen/Qwen3-14B-GGUF"),
    ("qwen3", "30b", "Qwen/Qwen3-30B-A3B-GGUF"),
    ("qwen3", "30b-a3b", "Qwen/Qwen3-30B-A3B-GGUF"),
    ("qwen3", "32b", "Qwen/Qwen3-32B-GGUF"),
    ("qwen3", "235b", "Qwen/Qwen3-235B-A22B-GGUF"),
    ("qwen3-coder", "30b", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF"),
    ("qwen3-embedding", "0.6b", "Qwen/Qwen3-Embedding-0.6B-GGUF"),
    ("qwen3-embedding", "4b", "Qwen/Qwen3-Embedding-4B-GGUF"),
    ("qwen3-embedding", "8b", "Qwen/Qwen3-Embedding-8B-GGUF"),
    ("qwq", "32b", "Qwen/QwQ-32B-GGUF"),
    ("llama3.2", "3b", "bartowski/Llama-3.2-3B-Instruct-GGUF"),
    ("llama3.2", "1b", "bartowski/Llama-3.2-1B-Instruct-GGUF"),
    ("llama3.1", "8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
    ("llama3.1", "70b", "bartowski/Meta-Llama-3.1-70B-Instruct-GGUF"),
    ("llama3.3", "70b", "bartowski/Llama-3.3-70B-Instruct-GGUF"),
    ("llama4", "scout", "unsloth/Llama-4-Scout-17B-16E-Instruct-GGUF"),
    ("gemma2", "9b", "bartowski/gemma-2-9b-it-GGUF"),
    ("gemma2", "2b", "bartowski/gemma-2-2b-it-GGUF"),
    ("gemma2", "27b", "bartowski/gemma-2-27b-it-GGUF"),
    ("gemma3", "4b", "ggml-org/gemma-3-4b-it-GGUF"),
    ("gemma3", "270m", "ggml-org/gemma-3-270m-it-GGUF"),
    ("gemma3", "1b", "ggml-org/gemma-3-1b-it-GGUF"),
    ("gemma3", "12b", "ggml-org/gemma-3-12b-it-GGUF"),
    ("gemma3", "27b", "ggml-org/gemma-3-27b-it-GGUF"),
    ("gemma3n", "e4b", "ggml-org/gemma-3n-E4B-it-GGUF"),
    ("gemma3n", "e2b", "ggml-org/gemma-3n-E2B-it-GGUF"),
    ("embeddinggemma", "300m", "ggml-org/embeddinggemma-300M-GGUF"),
    ("gpt-oss", "20b", "ggml-org/gpt-oss-20b-GGUF"),
    ("gpt-oss", "120b", "ggml-org/gpt-oss-120b-GGUF"),
    ("mistral", "7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF"),
    ("mistral-nemo", "12b", "bartowski/Mistral-Nemo-Instruct-2407-GGUF"),
    ("mistral-small", "24b", "bartowski/Mistral-Small-24B-Instruct-2501-GGUF"),
    ("mixtral", "8x7b", "bartowski/Mixtral-8x7B-Instruct-v0.1-GGUF"),
    ("phi3.5", "3.8b", "bartowski/Phi-3.5-mini-instruct-GGUF"),
    ("phi4", "14b", "bartowski/phi-4-GGUF"),
    ("phi4-mini", "3.8b", "bartowski/microsoft_Phi-4-mini-instruct-GGUF"),
    ("deepseek-r1", "7b", "bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF"),
    ("deepseek-r1", "1.5b", "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF"),
    ("deepseek-r1", "8b", "bartowski/DeepSeek-R1-Distill-Llama-8B-GGUF"),
    ("deepseek-r1", "14b", "bartowski/DeepSeek-R1-Distill-Qwen-14B-GGUF"),
    ("deepseek-r1", "32b", "bartowski/DeepSeek-R1-Distill-Qwen-32B-GGUF"),
    ("deepseek-r1", "70b", "bartowski/DeepSeek-R1-Distill-Llama-70B-GGUF"),
    ("deepseek-v2", "16b", "bartowski/DeepSeek-V2-Lite-Chat-GGUF"),
    ("smollm2", "1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF"),
    ("smollm2", "135m", "bartowski/SmolLM2-135M-Instruct-GGUF"),
    ("smollm2", "360m", "bartowski/SmolLM2-360M-Instruct-GGUF"),
    ("smollm3", "3b", "ggml-org/SmolLM3-3B-GGUF"),
    ("granite3.3", "8b", "ibm-granite/granite-3.3-8b-instruct-GGUF"),
    ("granite3.3", "2b", "ibm-granite/granite-3.3-2b-instruct-GGUF"),
    ("olmo2", "7b", "allenai/OLMo-2-1124-7B-Instruct-GGUF"),
    ("olmo2", "13b", "allenai/OLMo-2-1124-13B-Instruct-GGUF"),
    ("falcon3", "7b", "bartowski/Falcon3-7B-Instruct-GGUF"),
    ("glm4", "9b", "bartowski/THUDM_GLM-4-9B-0414-GGUF"),
    ("nomic-embed-text", "v1.5", "nomic-ai/nomic-embed-text-v1.5-GGUF"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelName;

    #[test]
    fn every_name_is_one_and_names_a_repository() {
        for (i, (family, size, repository)) in SHORT_NAMES.iter().enumerate() {
            let twice = SHORT_NAMES[..i].iter().any(|row| (row.0, row.1) == (*family, *size));
            assert!(!twice, "{family}:{size}");
            let parsed = ModelName::parse(repository).unwrap().unwrap();
            assert_eq!(parsed.repository, *repository);
            let named = ModelName::parse(&format!("{family}:{size}")).unwrap().unwrap();
            assert_eq!((&*named.repository, named.quant), (*repository, None), "{family}:{size}");
        }
    }
}

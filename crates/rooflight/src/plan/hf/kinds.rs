//! [`KINDS`]: the meaning of each `model_type`. A new kind is a row.

/// A kind of model.
pub(super) struct Kind {
    /// Value of `model_type`.
    pub(super) name: &'static str,
    /// Entry of `architectures`, if several kinds share the name.
    pub(super) class: Option<&'static str>,
    /// Name of the architecture in GGUF files.
    pub(super) architecture: &'static str,
    /// Default values of keys that the file may lack.
    pub(super) defaults: &'static [(&'static str, u32)],
    /// Whether the output matrix is the embedding table, if the file does not say.
    pub(super) tied: bool,
    /// Whether norms are layer norms instead of RMS norms.
    pub(super) layer_norm: bool,
    /// Kind of attention.
    pub(super) attention: Attention,
    /// Mixture of experts, if there is one.
    pub(super) experts: Option<Mixture>,
}

/// Kind of attention.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attention {
    /// All layers attend to all previous tokens.
    Whole,
    /// Some layers attend only to a window of previous tokens.
    Windows,
    /// All layers attend to all previous tokens, with latent attention.
    Latent,
}

/// Properties of a mixture of experts.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    /// Whether router scores are sigmoids instead of a softmax.
    pub(super) sigmoid: bool,
    /// Name of the tensor with the bias of router scores, if there is one.
    pub(super) bias: Option<&'static str>,
    /// Whether an expert is as wide as `intermediate_size`, because no other key gives its width.
    pub(super) as_dense: bool,
    /// Whether the weights of the chosen experts are normalized, if the file does not say.
    pub(super) normalize: bool,
}

const fn kind(name: &'static str, architecture: &'static str) -> Kind {
    Kind {
        name,
        class: None,
        architecture,
        defaults: &[],
        tied: false,
        layer_norm: false,
        attention: Attention::Whole,
        experts: None,
    }
}

const fn windows(name: &'static str, architecture: &'static str) -> Kind {
    Kind { attention: Attention::Windows, ..kind(name, architecture) }
}

const SOFTMAX: Mixture = Mixture { sigmoid: false, bias: None, as_dense: false, normalize: false };
const AS_DENSE: Mixture = Mixture { as_dense: true, normalize: true, ..SOFTMAX };
const BIASED: Mixture =
    Mixture { sigmoid: true, bias: Some("exp_probs_b.bias"), as_dense: false, normalize: true };

/// All supported kinds.
pub(super) static KINDS: &[Kind] = &[
    kind("qwen2", "qwen2"),
    Kind { defaults: &[("head_dim", 128)], ..kind("qwen3", "qwen3") },
    kind("llama", "llama"),
    kind("mistral", "llama"),
    Kind { experts: Some(AS_DENSE), ..kind("mixtral", "llama") },
    kind("ministral3", "mistral3"),
    Kind { tied: true, defaults: &[("head_dim", 256)], ..windows("gemma2", "gemma2") },
    Kind { tied: true, defaults: GEMMA_3, ..windows("gemma3_text", "gemma3") },
    Kind { experts: Some(SOFTMAX), ..kind("qwen2_moe", "qwen2moe") },
    Kind {
        experts: Some(SOFTMAX),
        defaults: &[("head_dim", 128)],
        ..kind("qwen3_moe", "qwen3moe")
    },
    Kind {
        attention: Attention::Latent,
        experts: Some(SOFTMAX),
        ..kind("deepseek_v2", "deepseek2")
    },
    Kind {
        attention: Attention::Latent,
        experts: Some(BIASED),
        ..kind("deepseek_v3", "deepseek2")
    },
    Kind {
        attention: Attention::Latent,
        experts: Some(BIASED),
        ..kind("deepseek_v32", "deepseek32")
    },
    Kind {
        attention: Attention::Latent,
        experts: Some(BIASED),
        ..kind("glm4_moe_lite", "deepseek2")
    },
    Kind {
        defaults: &[("head_dim", 64)],
        experts: Some(AS_DENSE),
        ..windows("gpt_oss", "gpt-oss")
    },
    kind("phi3", "phi3"),
    Kind { tied: true, ..kind("smollm3", "smollm3") },
    kind("seed_oss", "seed_oss"),
    kind("glm4", "glm4"),
    Kind { experts: Some(BIASED), ..kind("glm4_moe", "glm4moe") },
    kind("granite", "granite"),
    Kind { experts: Some(AS_DENSE), ..kind("granitemoe", "granitemoe") },
    Kind { experts: Some(AS_DENSE), ..kind("granitemoeshared", "granitemoe") },
    Kind { tied: true, layer_norm: true, ..kind("cohere", "command-r") },
    Kind { tied: true, layer_norm: true, ..windows("cohere2", "cohere2") },
    kind("olmo2", "olmo2"),
    windows("olmo3", "olmo2"),
    windows("exaone4", "exaone4"),
    Kind {
        experts: Some(Mixture { as_dense: true, ..BIASED }),
        ..kind("minimax_m2", "minimax-m2")
    },
    Kind { experts: Some(BIASED), ..windows("afmoe", "afmoe") },
    Kind { experts: Some(BIASED), ..windows("mimo_v2_flash", "mimo2") },
    Kind { experts: Some(BIASED), ..windows("step3p5", "step35") },
    Kind { experts: Some(BIASED), ..windows("laguna", "laguna") },
    kind("hunyuan_v1_dense", "hunyuan-dense"),
    Kind { experts: Some(AS_DENSE), ..kind("hunyuan_v1_moe", "hunyuan-moe") },
    Kind { tied: true, ..kind("ernie4_5", "ernie4_5") },
    Kind {
        tied: true,
        experts: Some(Mixture { sigmoid: false, ..BIASED }),
        ..kind("ernie4_5_moe", "ernie4_5-moe")
    },
    Kind {
        class: Some("BailingMoeV2ForCausalLM"),
        experts: Some(BIASED),
        ..kind("bailing_moe", "bailingmoe2")
    },
    Kind { experts: Some(BIASED), ..kind("bailing_moe_v2", "bailingmoe2") },
    Kind {
        class: Some("BailingMoeForCausalLM"),
        experts: Some(SOFTMAX),
        ..kind("bailing_moe", "bailingmoe")
    },
    Kind { experts: Some(BIASED), ..kind("dots1", "dots1") },
];

/// Default values of keys that files of multimodal Gemma 3 models lack.
const GEMMA_3: &[(&str, u32)] = &[
    ("head_dim", 256),
    ("vocab_size", 262_208),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("max_position_embeddings", 131_072),
];

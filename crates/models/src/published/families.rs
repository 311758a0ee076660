//! The published models, family by family.
//!
//! Source: the `config.json` of each model. Factors of the rotation's frequencies, which are a tensor, are not given.

use Fact::{Count, Flag, Real, Tensor, Text};

use crate::Outline;

/// Models of one design in several sizes.
pub(super) struct Family {
    /// As in the models' names.
    pub(super) name: &'static str,
    architecture: &'static str,
    facts: &'static [Fact],
    pub(super) models: &'static [Shape],
}

pub(super) struct Shape {
    /// As in the model's name.
    pub(super) size: &'static str,
    /// Hidden size, layers, intermediate size.
    dims: [u32; 3],
    /// Query heads, key-value heads, width of a head.
    heads: [u32; 3],
    vocab_size: usize,
    tied_embeddings: bool,
    facts: &'static [&'static [Fact]],
}

/// What a model's file says beside its shape: a key without the architecture's prefix, or a tensor that it has.
enum Fact {
    Count(&'static str, u32),
    Real(&'static str, f32),
    Flag(&'static str, bool),
    Text(&'static str, &'static str),
    Tensor(&'static str),
}

impl Family {
    pub(super) fn model(&self, shape: &Shape) -> String {
        format!("{}-{}", self.name, shape.size)
    }

    pub(super) fn outline(&self, shape: &Shape) -> Outline {
        let [hidden_size, n_layers, intermediate_size] = shape.dims;
        let [n_heads, n_kv_heads, head_dim] = shape.heads;
        let mut outline = Outline::new(self.architecture, shape.vocab_size);
        outline.name(&self.model(shape));
        for (key, count) in [
            ("block_count", n_layers),
            ("embedding_length", hidden_size),
            ("feed_forward_length", intermediate_size),
            ("attention.head_count", n_heads),
            ("attention.head_count_kv", n_kv_heads),
            ("attention.key_length", head_dim),
            ("attention.value_length", head_dim),
        ] {
            outline.set(key, count);
        }
        for fact in self.facts.iter().chain(shape.facts.iter().copied().flatten()) {
            match *fact {
                Count(key, value) => outline.set(key, value),
                Real(key, value) => outline.set(key, value),
                Flag(key, value) => outline.set(key, value),
                Text(key, value) => outline.set(key, value),
                Tensor(name) => outline.tensor(name),
            };
        }
        if !shape.tied_embeddings {
            outline.tensor("output.weight");
        }
        outline
    }
}

const fn shape(size: &'static str, dims: [u32; 3], heads: [u32; 3], vocab_size: usize) -> Shape {
    Shape { size, dims, heads, vocab_size, tied_embeddings: false, facts: &[] }
}

const fn tied(size: &'static str, dims: [u32; 3], heads: [u32; 3], vocab_size: usize) -> Shape {
    Shape { tied_embeddings: true, ..shape(size, dims, heads, vocab_size) }
}

const fn context(tokens: u32) -> Fact {
    Count("context_length", tokens)
}

const fn theta(base: f32) -> Fact {
    Real("rope.freq_base", base)
}

const fn eps(eps: f32) -> Fact {
    Real("attention.layer_norm_rms_epsilon", eps)
}

const fn experts(count: u32, used: u32, width: u32) -> [Fact; 3] {
    [
        Count("expert_count", count),
        Count("expert_used_count", used),
        Count("expert_feed_forward_length", width),
    ]
}

const QWEN: usize = 151_936;
const QWEN_PADDED: usize = 152_064;
const LLAMA: usize = 128_256;
const DEEPSEEK: usize = 102_400;
const GPT_OSS: usize = 201_088;
const GEMMA_2: usize = 256_000;
const GEMMA_3: usize = 262_144;
/// With the tokens of images.
const GEMMA_3_SEES: usize = 262_208;

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "Qwen1.5",
        architecture: "qwen2",
        facts: &[context(32_768), theta(1e6), eps(1e-6)],
        models: &[
            tied("0.5B", [1024, 24, 2816], [16, 16, 64], QWEN),
            shape("1.8B", [2048, 24, 5504], [16, 16, 128], QWEN),
            shape("4B", [2560, 40, 6912], [20, 20, 128], QWEN),
            shape("7B", [4096, 32, 11_008], [32, 32, 128], QWEN),
            shape("14B", [5120, 40, 13_696], [40, 40, 128], QWEN_PADDED),
            shape("32B", [5120, 64, 27_392], [40, 8, 128], QWEN_PADDED),
            shape("72B", [8192, 80, 24_576], [64, 64, 128], QWEN_PADDED),
            shape("110B", [8192, 80, 49_152], [64, 8, 128], QWEN_PADDED),
        ],
    },
    Family {
        name: "Qwen2.5",
        architecture: "qwen2",
        facts: &[context(32_768), theta(1e6), eps(1e-6)],
        models: &[
            tied("0.5B", [896, 24, 4864], [14, 2, 64], QWEN),
            tied("1.5B", [1536, 28, 8960], [12, 2, 128], QWEN),
            tied("3B", [2048, 36, 11_008], [16, 2, 128], QWEN),
            shape("7B", [3584, 28, 18_944], [28, 4, 128], QWEN_PADDED),
            shape("14B", [5120, 48, 13_824], [40, 8, 128], QWEN_PADDED),
            shape("32B", [5120, 64, 27_648], [40, 8, 128], QWEN_PADDED),
            shape("72B", [8192, 80, 29_568], [64, 8, 128], QWEN_PADDED),
        ],
    },
    Family {
        name: "Qwen3",
        architecture: "qwen3",
        facts: &[context(40_960), theta(1e6), eps(1e-6)],
        models: &[
            tied("0.6B", [1024, 28, 3072], [16, 8, 128], QWEN),
            tied("1.7B", [2048, 28, 6144], [16, 8, 128], QWEN),
            tied("4B", [2560, 36, 9728], [32, 8, 128], QWEN),
            shape("8B", [4096, 36, 12_288], [32, 8, 128], QWEN),
            shape("14B", [5120, 40, 17_408], [40, 8, 128], QWEN),
            shape("32B", [5120, 64, 25_600], [64, 8, 128], QWEN),
        ],
    },
    Family {
        name: "Qwen3",
        architecture: "qwen3moe",
        facts: &[context(40_960), theta(1e6), eps(1e-6)],
        models: &[
            Shape {
                facts: &[&experts(128, 8, 768)],
                ..shape("30B-A3B", [2048, 48, 6144], [32, 4, 128], QWEN)
            },
            Shape {
                facts: &[&experts(128, 8, 1536)],
                ..shape("235B-A22B", [4096, 94, 12_288], [64, 4, 128], QWEN)
            },
        ],
    },
    Family {
        name: "Qwen1.5-MoE",
        architecture: "qwen2moe",
        facts: &[context(8192), theta(1e6), eps(1e-6)],
        models: &[Shape {
            facts: &[&experts(60, 4, 1408), &[Count("expert_shared_feed_forward_length", 5632)]],
            ..shape("A2.7B", [2048, 24, 5632], [16, 16, 128], QWEN)
        }],
    },
    Family {
        name: "DeepSeek",
        architecture: "deepseek2",
        facts: &[
            context(163_840),
            theta(1e4),
            eps(1e-6),
            Text("rope.scaling.type", "yarn"),
            Real("rope.scaling.factor", 40.0),
            Count("rope.scaling.original_context_length", 4096),
            Count("rope.dimension_count", 64),
            Count("attention.kv_lora_rank", 512),
            Count("attention.key_length", 512 + 64),
            Count("attention.value_length", 512),
            Count("attention.key_length_mla", 128 + 64),
            Count("attention.value_length_mla", 128),
        ],
        models: DEEPSEEK_MODELS,
    },
    Family {
        name: "gpt-oss",
        architecture: "gpt-oss",
        facts: &[
            context(131_072),
            theta(150_000.0),
            eps(1e-5),
            Count("attention.sliding_window", 128),
            Text("rope.scaling.type", "yarn"),
            Real("rope.scaling.factor", 32.0),
            Count("rope.scaling.original_context_length", 4096),
        ],
        models: &[
            Shape {
                facts: &[&experts(32, 4, 2880)],
                ..shape("20b", [2880, 24, 2880], [64, 8, 64], GPT_OSS)
            },
            Shape {
                facts: &[&experts(128, 4, 2880)],
                ..shape("120b", [2880, 36, 2880], [64, 8, 64], GPT_OSS)
            },
        ],
    },
    Family {
        name: "Phi",
        architecture: "phi3",
        facts: &[eps(1e-5)],
        models: &[
            Shape {
                facts: &[&[context(16_384), theta(250_000.0)]],
                ..shape("4", [5120, 40, 17_920], [40, 10, 128], 100_352)
            },
            Shape {
                facts: &[&[
                    context(131_072),
                    theta(1e4),
                    Count("rope.dimension_count", 96),
                    Count("rope.scaling.original_context_length", 4096),
                    Real("rope.scaling.attn_factor", 1.190_238),
                ]],
                ..tied("4-mini", [3072, 32, 8192], [24, 8, 128], 200_064)
            },
        ],
    },
    Family {
        name: "Mistral-Small",
        architecture: "llama",
        facts: &[context(131_072), theta(1e8), eps(1e-5)],
        models: &[shape("24B", [5120, 40, 32_768], [32, 8, 128], 131_072)],
    },
    Family {
        name: "SmolLM3",
        architecture: "smollm3",
        facts: &[context(65_536), theta(5e6), eps(1e-6)],
        models: &[tied("3B", [2048, 36, 11_008], [16, 4, 128], LLAMA)],
    },
    Family {
        name: "gemma-2",
        architecture: "gemma2",
        facts: &[
            context(8192),
            theta(1e4),
            eps(1e-6),
            Count("attention.sliding_window", 4096),
            Real("attn_logit_softcapping", 50.0),
            Real("final_logit_softcapping", 30.0),
        ],
        models: &[
            tied("2b", [2304, 26, 9216], [8, 4, 256], GEMMA_2),
            tied("9b", [3584, 42, 14_336], [16, 8, 256], GEMMA_2),
            tied("27b", [4608, 46, 36_864], [32, 16, 128], GEMMA_2),
        ],
    },
    Family {
        name: "gemma-3",
        architecture: "gemma3",
        facts: &[theta(1e6), eps(1e-6), Real("rope.freq_base_swa", 1e4)],
        models: GEMMA_3_MODELS,
    },
    Family {
        name: "Llama-3",
        architecture: "llama",
        facts: &[context(8192), theta(5e5), eps(1e-5)],
        models: &[LLAMA_8B, LLAMA_70B],
    },
    Family {
        name: "Llama-3.1",
        architecture: "llama",
        facts: &[context(131_072), theta(5e5), eps(1e-5)],
        models: &[LLAMA_8B, LLAMA_70B],
    },
    Family {
        name: "Llama-3.2",
        architecture: "llama",
        facts: &[context(131_072), theta(5e5), eps(1e-5)],
        models: &[
            tied("1B", [2048, 16, 8192], [32, 8, 64], LLAMA),
            tied("3B", [3072, 28, 8192], [24, 8, 128], LLAMA),
        ],
    },
    Family {
        name: "Llama-3.3",
        architecture: "llama",
        facts: &[context(131_072), theta(5e5), eps(1e-5)],
        models: &[LLAMA_70B],
    },
];

static GEMMA_3_MODELS: &[Shape] = &[
    Shape {
        facts: &[&[context(32_768), Count("attention.sliding_window", 512)]],
        ..tied("270m", [640, 18, 2048], [4, 1, 256], GEMMA_3)
    },
    Shape {
        facts: &[&[context(32_768), Count("attention.sliding_window", 512)]],
        ..tied("1b", [1152, 26, 6912], [4, 1, 256], GEMMA_3)
    },
    Shape { facts: &[GEMMA_3_LONG], ..tied("4b", [2560, 34, 10_240], [8, 4, 256], GEMMA_3_SEES) },
    Shape { facts: &[GEMMA_3_LONG], ..tied("12b", [3840, 48, 15_360], [16, 8, 256], GEMMA_3_SEES) },
    Shape {
        facts: &[GEMMA_3_LONG],
        ..tied("27b", [5376, 62, 21_504], [32, 16, 128], GEMMA_3_SEES)
    },
];

const GEMMA_3_LONG: &[Fact] = &[
    context(131_072),
    Count("attention.sliding_window", 1024),
    Text("rope.scaling.type", "linear"),
    Real("rope.scaling.factor", 8.0),
];

static DEEPSEEK_MODELS: &[Shape] = &[
    Shape {
        facts: &[
            &experts(64, 6, 1408),
            DEEPSEEK_V2,
            &[
                Count("leading_dense_block_count", 1),
                Real("expert_weights_scale", 1.0),
                Tensor("blk.0.attn_q.weight"),
            ],
        ],
        ..shape("V2-Lite", [2048, 27, 10_944], [16, 1, 192], DEEPSEEK)
    },
    Shape {
        facts: &[
            &experts(160, 6, 1536),
            DEEPSEEK_V2,
            &[
                Count("leading_dense_block_count", 1),
                Count("attention.q_lora_rank", 1536),
                Count("expert_group_count", 8),
                Count("expert_group_used_count", 3),
                Real("expert_weights_scale", 16.0),
            ],
        ],
        ..shape("V2", [5120, 60, 12_288], [128, 1, 192], DEEPSEEK)
    },
    DEEPSEEK_V3,
    Shape { size: "R1", ..DEEPSEEK_V3 },
];

/// Softmax, two shared experts; `mscale_all_dim` is 0.707.
const DEEPSEEK_V2: &[Fact] = &[
    Count("expert_gating_func", 1),
    Count("expert_shared_count", 2),
    Flag("expert_weights_norm", false),
    Real("rope.scaling.yarn_log_multiplier", 0.0707),
];

const DEEPSEEK_V3: Shape = Shape {
    facts: &[
        &experts(256, 8, 2048),
        &[
            Count("leading_dense_block_count", 3),
            Count("attention.q_lora_rank", 1536),
            Count("expert_gating_func", 2),
            Count("expert_shared_count", 1),
            Count("expert_group_count", 8),
            Count("expert_group_used_count", 4),
            Flag("expert_weights_norm", true),
            Real("expert_weights_scale", 2.5),
            Real("rope.scaling.yarn_log_multiplier", 0.1),
            Tensor("blk.3.exp_probs_b.bias"),
        ],
    ],
    ..shape("V3", [7168, 61, 18_432], [128, 1, 192], 129_280)
};

const LLAMA_8B: Shape = shape("8B", [4096, 32, 14_336], [32, 8, 128], LLAMA);
const LLAMA_70B: Shape = shape("70B", [8192, 80, 28_672], [64, 8, 128], LLAMA);

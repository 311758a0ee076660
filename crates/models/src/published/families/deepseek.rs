//! DeepSeek.

use super::super::family::Fact::{Count, Flag, Real, Tensor, Text};
use super::super::family::{Fact, Family, Shape, context, eps, experts, shape, theta};

const DEEPSEEK: usize = 102_400;

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "DeepSeek",
        architecture: "deepseek2",
        facts: DEEPSEEK_FACTS,
        models: DEEPSEEK_MODELS,
    },
    Family {
        name: "DeepSeek",
        architecture: "deepseek32",
        facts: DEEPSEEK_FACTS,
        models: &[Shape {
            size: "V3.2",
            facts: &[
                &experts(256, 8, 2048),
                DEEPSEEK_V3_FACTS,
                &[
                    Count("attention.indexer.head_count", 64),
                    Count("attention.indexer.key_length", 128),
                    Count("attention.indexer.top_k", 2048),
                ],
            ],
            ..DEEPSEEK_V3
        }],
    },
];

const DEEPSEEK_FACTS: &[Fact] = &[
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
    facts: &[&experts(256, 8, 2048), DEEPSEEK_V3_FACTS],
    ..shape("V3", [7168, 61, 18_432], [128, 1, 192], 129_280)
};

/// Sigmoids with a bias; `mscale_all_dim` is 1.
const DEEPSEEK_V3_FACTS: &[Fact] = &[
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
];

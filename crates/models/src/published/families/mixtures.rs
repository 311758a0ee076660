//! Mixtures of experts, but those of the larger families.

use super::super::family::Fact::{Count, Counts, Flag, Real, Tensor, Text};
use super::super::family::{
    Fact, Family, Shape, context, dense, eps, experts, rotated, shape, shared, sigmoids, theta,
    tied, window,
};

const GPT_OSS: usize = 201_088;
const GLM: usize = 151_552;
const MINIMAX: usize = 200_064;
const TRINITY: usize = 200_192;
const STEP: usize = 128_896;
const GRANITE_3: usize = 49_155;

/// Experts are chosen with a bias, in a model with this many dense layers.
const BIAS_0: Fact = Tensor("blk.0.exp_probs_b.bias");
const BIAS_1: Fact = Tensor("blk.1.exp_probs_b.bias");
const BIAS_2: Fact = Tensor("blk.2.exp_probs_b.bias");
const BIAS_3: Fact = Tensor("blk.3.exp_probs_b.bias");

pub(super) static FAMILIES: &[Family] = &[
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
        name: "GLM",
        architecture: "glm4moe",
        facts: &[theta(1e6), eps(1e-5), rotated(64), shared(1)],
        models: &[
            Shape {
                facts: &[
                    &experts(128, 8, 1408),
                    &sigmoids(1.0),
                    &[context(131_072), dense(1), BIAS_1],
                ],
                ..shape("4.5-Air", [4096, 46, 10_944], [96, 8, 128], GLM)
            },
            Shape { facts: &[GLM_LARGE, &[context(131_072)]], ..GLM_SHAPE },
            Shape { size: "4.6", facts: &[GLM_LARGE, &[context(202_752)]], ..GLM_SHAPE },
            Shape { size: "4.7", facts: &[GLM_LARGE, &[context(202_752)]], ..GLM_SHAPE },
        ],
    },
    Family {
        name: "GLM",
        architecture: "deepseek2",
        facts: &[
            context(202_752),
            theta(1e6),
            eps(1e-5),
            shared(1),
            dense(1),
            rotated(64),
            Count("attention.q_lora_rank", 768),
            Count("attention.kv_lora_rank", 512),
            Count("attention.key_length", 512 + 64),
            Count("attention.value_length", 512),
            Count("attention.key_length_mla", 192 + 64),
            Count("attention.value_length_mla", 256),
            BIAS_1,
        ],
        models: &[Shape {
            facts: &[&experts(64, 4, 1536), &sigmoids(1.8)],
            ..shape("4.7-Flash", [2048, 47, 10_240], [20, 1, 256], 154_880)
        }],
    },
    Family {
        name: "MiniMax",
        architecture: "minimax-m2",
        facts: &[
            context(196_608),
            theta(5e6),
            eps(1e-6),
            rotated(64),
            Count("expert_count", 256),
            Count("expert_used_count", 8),
            Count("expert_gating_func", 2),
            BIAS_0,
        ],
        models: &[
            MINIMAX_M2,
            Shape { size: "M2.1", ..MINIMAX_M2 },
            Shape { size: "M2.5", ..MINIMAX_M2 },
        ],
    },
    Family {
        name: "Trinity",
        architecture: "afmoe",
        facts: &[
            context(131_072),
            theta(1e4),
            eps(1e-5),
            window(2048),
            shared(1),
            dense(2),
            BIAS_2,
        ],
        models: &[
            Shape {
                facts: &[&experts(128, 8, 256), &sigmoids(2.826)],
                ..shape("Nano", [1024, 56, 3072], [8, 2, 128], TRINITY)
            },
            Shape {
                facts: &[&experts(128, 8, 1024), &sigmoids(2.826)],
                ..shape("Mini", [2048, 32, 6144], [32, 4, 128], TRINITY)
            },
        ],
    },
    Family {
        name: "MiMo-V2",
        architecture: "mimo2",
        facts: &[
            context(262_144),
            theta(5e6),
            eps(1e-5),
            window(128),
            rotated(64),
            dense(1),
            Real("rope.freq_base_swa", 1e4),
            Real("attention.value_scale", 0.707),
            Count("attention.value_length", 128),
            Counts("attention.head_count_kv", &mimo(4, 8)),
            Counts("attention.sliding_window_pattern", &mimo(0, 1)),
            BIAS_1,
        ],
        models: &[Shape {
            facts: &[&experts(256, 8, 2048), &sigmoids(1.0)],
            ..shape("Flash", [4096, 48, 16_384], [64, 4, 192], 152_576)
        }],
    },
    Family {
        name: "Step",
        architecture: "step35",
        facts: &[
            theta(5e6),
            eps(1e-5),
            window(512),
            rotated(128),
            dense(3),
            Real("rope.freq_base_swa", 1e4),
            Counts("attention.head_count", &[64, 96, 96, 96]),
            Counts("attention.sliding_window_pattern", &[0, 1, 1, 1]),
            Count("expert_shared_feed_forward_length", 1280),
            BIAS_3,
        ],
        models: &[Shape {
            facts: &[&experts(288, 8, 1280), &sigmoids(3.0), &[context(262_144)]],
            ..STEP_FLASH
        }],
    },
    Family {
        name: "Laguna",
        architecture: "laguna",
        facts: &[
            context(262_144),
            theta(5e5),
            eps(1e-6),
            window(512),
            rotated(64),
            dense(1),
            Text("rope.scaling.type", "yarn"),
            Real("rope.scaling.factor", 64.0),
            Count("rope.scaling.original_context_length", 4096),
            Real("rope.scaling.yarn_beta_fast", 64.0),
            Real("rope.freq_base_swa", 1e4),
            Count("rope.dimension_count_swa", 128),
            Counts("attention.head_count", &[48, 64, 64, 64]),
            Counts("attention.sliding_window_pattern", &[0, 1, 1, 1]),
            Count("expert_shared_feed_forward_length", 512),
            BIAS_1,
        ],
        models: &[Shape {
            facts: &[&experts(256, 8, 512), &sigmoids(2.5)],
            ..shape("XS.2", [2048, 40, 8192], [48, 8, 128], 100_352)
        }],
    },
    Family {
        name: "Hunyuan",
        architecture: "hunyuan-moe",
        facts: &[
            context(262_144),
            theta(1e4),
            eps(1e-5),
            Count("expert_count", 64),
            Count("expert_used_count", 8),
            Count("expert_shared_feed_forward_length", 3072),
        ],
        models: &[tied("A13B", [4096, 32, 3072], [32, 8, 128], 128_167)],
    },
    Family {
        name: "ERNIE-4.5",
        architecture: "ernie4_5-moe",
        facts: &[context(131_072), theta(5e5), eps(1e-5), shared(2), dense(1), BIAS_1],
        models: &[Shape {
            facts: &[&experts(64, 6, 1536)],
            ..tied("21B-A3B", [2560, 28, 12_288], [20, 4, 128], 103_424)
        }],
    },
    Family {
        name: "Ling",
        architecture: "bailingmoe2",
        facts: &[
            context(32_768),
            theta(6e5),
            eps(1e-6),
            rotated(64),
            shared(1),
            dense(1),
            Count("expert_group_count", 8),
            Count("expert_group_used_count", 4),
            BIAS_1,
        ],
        models: &[Shape {
            facts: &[&experts(256, 8, 512), &sigmoids(2.5)],
            ..shape("mini-2.0", [2048, 20, 5120], [16, 4, 128], 157_184)
        }],
    },
    Family {
        name: "dots.llm1",
        architecture: "dots1",
        facts: &[context(32_768), theta(1e7), eps(1e-5), shared(2), dense(1), BIAS_1],
        models: &[Shape {
            facts: &[&experts(128, 6, 1408), &sigmoids(2.5)],
            ..shape("", [4096, 62, 10_944], [32, 32, 128], 152_064)
        }],
    },
    Family {
        name: "granite-3.1",
        architecture: "granitemoe",
        facts: &[context(131_072), theta(1e7), eps(1e-6), Count("expert_used_count", 8)],
        models: &[
            Shape {
                facts: &[&[Count("expert_count", 32)]],
                ..tied("1b-a400m", [1024, 24, 512], [16, 8, 64], GRANITE_3)
            },
            Shape {
                facts: &[&[Count("expert_count", 40)]],
                ..tied("3b-a800m", [1536, 32, 512], [24, 8, 64], GRANITE_3)
            },
        ],
    },
];

const GLM_SHAPE: Shape = shape("4.5", [5120, 92, 12_288], [96, 8, 128], GLM);

const GLM_LARGE: &[Fact] = &[
    Count("expert_count", 160),
    Count("expert_used_count", 8),
    Count("expert_feed_forward_length", 1536),
    Count("expert_gating_func", 2),
    Flag("expert_weights_norm", true),
    Real("expert_weights_scale", 2.5),
    dense(3),
    BIAS_3,
];

const MINIMAX_M2: Shape = shape("M2", [3072, 62, 1536], [48, 8, 128], MINIMAX);

const STEP_FLASH: Shape = shape("3.5-Flash", [4096, 45, 11_264], [64, 8, 128], STEP);

/// One number for layers that see all, the first and every sixth, another for those with a window.
const fn mimo(whole: u32, windowed: u32) -> [u32; 48] {
    let mut layers = [windowed; 48];
    layers[0] = whole;
    let mut i = 5;
    while i < layers.len() {
        layers[i] = whole;
        i += 6;
    }
    layers
}

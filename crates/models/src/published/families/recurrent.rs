//! Models whose layers recur, all or most of them.

use super::super::family::Fact::{Count, Flag, Layers, List, Real, Tensor};
use super::super::family::{
    Fact, Family, Shape, context, dense, eps, experts, layer_eps, rotated, shape, shared, sigmoids,
    theta, tied,
};

const QWEN3_5: usize = 248_320;
const LFM2: usize = 65_536;
const GRANITE_4: usize = 100_352;
const NEMOTRON: usize = 131_072;

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "Qwen3.5",
        architecture: "qwen35",
        facts: QWEN3_5_FACTS,
        models: &[
            Shape { facts: &[&delta(16)], ..tied("0.8B", [1024, 24, 3584], [8, 2, 256], QWEN3_5) },
            Shape { facts: &[&delta(16)], ..tied("2B", [2048, 24, 6144], [8, 2, 256], QWEN3_5) },
            Shape { facts: &[&delta(32)], ..tied("4B", [2560, 32, 9216], [16, 4, 256], QWEN3_5) },
            Shape {
                facts: &[&delta(32)],
                ..shape("9B", [4096, 32, 12_288], [16, 4, 256], QWEN3_5)
            },
            Shape {
                facts: &[&delta(48)],
                ..shape("27B", [5120, 64, 17_408], [24, 4, 256], QWEN3_5)
            },
        ],
    },
    Family {
        name: "Qwen3.5",
        architecture: "qwen35moe",
        facts: QWEN3_5_FACTS,
        models: &[
            Shape {
                facts: &[&delta(32), &experts(256, 8, 512), &[one_shared(512)]],
                ..shape("35B-A3B", [2048, 40, 512], [16, 2, 256], QWEN3_5)
            },
            Shape {
                facts: &[&delta(64), &experts(256, 8, 1024), &[one_shared(1024)]],
                ..shape("122B-A10B", [3072, 48, 1024], [32, 2, 256], QWEN3_5)
            },
            Shape {
                facts: &[&delta(64), &experts(512, 10, 1024), &[one_shared(1024)]],
                ..shape("397B-A17B", [4096, 60, 1024], [32, 2, 256], QWEN3_5)
            },
        ],
    },
    Family {
        name: "Qwen3-Next",
        architecture: "qwen3next",
        facts: QWEN3_5_FACTS,
        models: &[Shape {
            facts: &[&delta(32), &experts(512, 10, 512), &[one_shared(512)]],
            ..shape("80B-A3B", [2048, 48, 5120], [16, 2, 256], 151_936)
        }],
    },
    Family {
        name: "LFM2",
        architecture: "lfm2",
        facts: &[
            context(128_000),
            theta(1e6),
            eps(1e-5),
            Count("shortconv.l_cache", 3),
            Layers("attention.head_count_kv", "..*..*..*.*.*.*.", &[('*', 8)]),
        ],
        models: &[
            tied("350M", [1024, 16, 4608], [16, 8, 64], LFM2),
            tied("700M", [1536, 16, 6912], [24, 8, 64], LFM2),
            tied("1.2B", [2048, 16, 8192], [32, 8, 64], LFM2),
        ],
    },
    Family {
        name: "LFM2",
        architecture: "lfm2moe",
        facts: &[context(128_000), theta(1e6), eps(1e-5), Count("shortconv.l_cache", 3), dense(2)],
        models: &[Shape {
            facts: &[
                &experts(32, 4, 1792),
                &sigmoids(1.0),
                &[
                    Layers("attention.head_count_kv", "..*...*...*...*...*..*..", &[('*', 8)]),
                    Tensor("blk.2.exp_probs_b.bias"),
                ],
            ],
            ..tied("8B-A1B", [2048, 24, 7168], [32, 8, 64], LFM2)
        }],
    },
    Family {
        name: "granite-4.0-h",
        architecture: "granitehybrid",
        facts: &[
            theta(1e4),
            eps(1e-5),
            Flag("rope.scaling.finetuned", false),
            Real("embedding_scale", 12.0),
            Real("residual_scale", 0.22),
            Real("attention.scale", 0.007_812_5),
            Count("ssm.conv_kernel", 4),
            Count("ssm.state_size", 128),
            Count("ssm.group_count", 1),
        ],
        models: &[
            Shape {
                facts: &[
                    &heads(48, 64),
                    &experts(64, 6, 512),
                    &[context(131_072), Real("logit_scale", 6.0), one_shared(1024)],
                    &[Layers("attention.head_count_kv", GRANITE_4_LAYERS, &[('*', 4)])],
                ],
                ..tied("tiny", [1536, 40, 512], [12, 4, 128], GRANITE_4)
            },
            Shape {
                facts: &[
                    &heads(128, 64),
                    &experts(72, 10, 768),
                    &[context(131_072), Real("logit_scale", 16.0), one_shared(1536)],
                    &[Layers("attention.head_count_kv", GRANITE_4_LAYERS, &[('*', 8)])],
                ],
                ..tied("small", [4096, 40, 768], [32, 8, 128], GRANITE_4)
            },
        ],
    },
    Family {
        name: "Nemotron-Nano",
        architecture: "nemotron_h",
        facts: NEMOTRON_FACTS,
        models: &[Shape {
            facts: &[
                &heads(128, 80),
                &[
                    context(131_072),
                    Layers("attention.head_count_kv", NANO_V2_LAYERS, &[('*', 8)]),
                    Layers("feed_forward_length", NANO_V2_LAYERS, &[('-', 15_680)]),
                ],
            ],
            ..shape("9B-v2", [4480, 56, 15_680], [40, 8, 128], NEMOTRON)
        }],
    },
    Family {
        name: "Nemotron-3-Nano",
        architecture: "nemotron_h_moe",
        facts: NEMOTRON_FACTS,
        models: &[Shape {
            facts: &[
                &heads(64, 64),
                &experts(128, 6, 1856),
                &sigmoids(2.5),
                &[
                    context(1_048_576),
                    one_shared(3712),
                    Layers("attention.head_count_kv", NANO_3_LAYERS, &[('*', 2)]),
                    Layers("feed_forward_length", NANO_3_LAYERS, &[('E', 1856)]),
                    Tensor("blk.1.exp_probs_b.bias"),
                ],
            ],
            ..shape("30B-A3B", [2688, 52, 1856], [32, 2, 128], NEMOTRON)
        }],
    },
    Family {
        name: "Kimi-Linear",
        architecture: "kimi-linear",
        facts: &[
            context(1_048_576),
            theta(1e4),
            eps(1e-5),
            rotated(64),
            Count("attention.kv_lora_rank", 512),
            Count("attention.key_length", 512 + 64),
            Count("attention.value_length", 512),
            Count("attention.key_length_mla", 128 + 64),
            Count("attention.value_length_mla", 128),
            Count("ssm.conv_kernel", 4),
            Count("kda.head_dim", 128),
            dense(1),
            shared(1),
            Layers("attention.head_count_kv", "...*...*...*...*...*...*..*", &[('*', 1)]),
            Tensor("blk.3.attn_q.weight"),
            Tensor("blk.1.exp_probs_b.bias"),
        ],
        models: &[Shape {
            facts: &[&experts(256, 8, 1024), &sigmoids(2.446)],
            ..shape("48B-A3B", [2304, 27, 9216], [32, 1, 192], 163_840)
        }],
    },
    Family {
        name: "mamba2",
        architecture: "mamba2",
        facts: &[
            context(1_048_576),
            eps(1e-5),
            Count("ssm.conv_kernel", 4),
            Count("ssm.state_size", 128),
            Count("ssm.group_count", 1),
        ],
        models: &[
            Shape { facts: &[&heads(24, 64)], ..tied("130m", [768, 24, 0], [0, 0, 64], 50_288) },
            Shape { facts: &[&heads(32, 64)], ..tied("370m", [1024, 48, 0], [0, 0, 64], 50_288) },
            Shape { facts: &[&heads(48, 64)], ..tied("780m", [1536, 48, 0], [0, 0, 64], 50_288) },
            Shape { facts: &[&heads(64, 64)], ..tied("1.3b", [2048, 48, 0], [0, 0, 64], 50_288) },
            Shape { facts: &[&heads(80, 64)], ..tied("2.7b", [2560, 64, 0], [0, 0, 64], 50_288) },
        ],
    },
];

const QWEN3_5_FACTS: &[Fact] = &[
    context(262_144),
    theta(1e7),
    eps(1e-6),
    rotated(64),
    List("rope.dimension_sections", &[11, 11, 10, 0]),
    Count("full_attention_interval", 4),
    Count("ssm.conv_kernel", 4),
    Count("ssm.state_size", 128),
    Count("ssm.group_count", 16),
];

const NEMOTRON_FACTS: &[Fact] = &[
    theta(1e4),
    eps(1e-5),
    layer_eps(1e-5),
    Count("ssm.conv_kernel", 4),
    Count("ssm.state_size", 128),
    Count("ssm.group_count", 8),
];

const GRANITE_4_LAYERS: &str = "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM";
const NANO_V2_LAYERS: &str = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
const NANO_3_LAYERS: &str = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";

/// Heads of values of a delta net, 128 wide.
const fn delta(count: u32) -> [Fact; 2] {
    heads(count, 128)
}

/// Heads of a state space, and how wide each is.
const fn heads(count: u32, width: u32) -> [Fact; 2] {
    [Count("ssm.time_step_rank", count), Count("ssm.inner_size", count * width)]
}

/// An expert for every token, of this width.
const fn one_shared(width: u32) -> Fact {
    Count("expert_shared_feed_forward_length", width)
}

//! Gemma.

use super::super::family::Fact::{Count, Counts, Real, Tensor, Text};
use super::super::family::{Fact, Family, Shape, context, eps, experts, theta, tied, window};

const GEMMA_2: usize = 256_000;
const GEMMA_3: usize = 262_144;
/// With the tokens of images.
const GEMMA_3_SEES: usize = 262_208;

pub(super) static FAMILIES: &[Family] = &[
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
        name: "gemma-3n",
        architecture: "gemma3n",
        facts: &[
            context(32_768),
            theta(1e6),
            eps(1e-6),
            window(512),
            Real("rope.freq_base_swa", 1e4),
            Real("final_logit_softcapping", 30.0),
            Count("embedding_length_per_layer_input", 256),
        ],
        models: &[
            Shape {
                facts: &[&[Count("attention.shared_kv_layers", 10)]],
                ..tied("E2B", [2048, 30, 8192], [8, 2, 256], GEMMA_3)
            },
            Shape {
                facts: &[&[Count("attention.shared_kv_layers", 15)]],
                ..tied("E4B", [2048, 35, 16_384], [8, 2, 256], GEMMA_3)
            },
        ],
    },
    Family {
        name: "gemma-4",
        architecture: "gemma4",
        facts: &[
            context(262_144),
            theta(1e6),
            eps(1e-6),
            window(1024),
            Real("rope.freq_base_swa", 1e4),
            Real("final_logit_softcapping", 30.0),
            Count("attention.key_length_swa", 256),
            Count("attention.value_length_swa", 256),
        ],
        models: &[
            Shape {
                facts: &[
                    &experts(128, 8, 704),
                    &[
                        Counts("attention.head_count_kv", &[8, 8, 8, 8, 8, 2]),
                        Tensor("blk.0.ffn_down_exps.scale"),
                    ],
                ],
                ..tied("26B-A4B", [2816, 30, 2112], [16, 8, 512], GEMMA_3)
            },
            Shape {
                facts: &[&[Counts("attention.head_count_kv", &[16, 16, 16, 16, 16, 4])]],
                ..tied("31B", [5376, 60, 21_504], [32, 16, 512], GEMMA_3)
            },
        ],
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

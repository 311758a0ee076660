//! Qwen.

use super::super::family::{Fact::Count, Family, Shape, context, eps, experts, shape, theta, tied};

const QWEN: usize = 151_936;
const QWEN_PADDED: usize = 152_064;

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
    // Qwen2.5-Math and Qwen2.5 of the same sizes, trained on replies of DeepSeek-R1; their heads are not tied
    Family {
        name: "DeepSeek-R1-Distill-Qwen",
        architecture: "qwen2",
        facts: &[context(131_072), eps(1e-6)],
        models: &[
            Shape {
                facts: &[&[theta(1e4)]],
                ..shape("1.5B", [1536, 28, 8960], [12, 2, 128], QWEN)
            },
            Shape {
                facts: &[&[theta(1e4)]],
                ..shape("7B", [3584, 28, 18_944], [28, 4, 128], QWEN_PADDED)
            },
            Shape {
                facts: &[&[theta(1e6)]],
                ..shape("14B", [5120, 48, 13_824], [40, 8, 128], QWEN_PADDED)
            },
            Shape {
                facts: &[&[theta(1e6)]],
                ..shape("32B", [5120, 64, 27_648], [40, 8, 128], QWEN_PADDED)
            },
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
];

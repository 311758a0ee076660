//! Models without experts, but those of the larger families.

use super::super::family::Fact::{Count, Real};
use super::super::family::{
    Family, Shape, context, eps, layer_eps, rotated, shape, theta, tied, window,
};

const LLAMA: usize = 128_256;
const GRANITE_3: usize = 49_159;
const GLM: usize = 151_552;
const COMMAND: usize = 256_000;
const OLMO_2: usize = 100_352;
const EXAONE: usize = 102_400;

pub(super) static FAMILIES: &[Family] = &[
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
        name: "SmolLM3",
        architecture: "smollm3",
        facts: &[context(65_536), theta(5e6), eps(1e-6)],
        models: &[tied("3B", [2048, 36, 11_008], [16, 4, 128], LLAMA)],
    },
    Family {
        name: "GLM",
        architecture: "glm4",
        facts: &[context(32_768), theta(1e4), eps(1e-5), rotated(64)],
        models: &[
            shape("4-9B", [4096, 40, 13_696], [32, 2, 128], GLM),
            shape("4-32B", [6144, 61, 23_040], [48, 2, 128], GLM),
        ],
    },
    Family {
        name: "granite-3.3",
        architecture: "granite",
        facts: &[
            context(131_072),
            theta(1e7),
            eps(1e-5),
            Real("embedding_scale", 12.0),
            Real("residual_scale", 0.22),
        ],
        models: &[
            Shape {
                facts: &[&[Real("attention.scale", 0.015_625), Real("logit_scale", 8.0)]],
                ..tied("2b", [2048, 40, 8192], [32, 8, 64], GRANITE_3)
            },
            Shape {
                facts: &[&[Real("attention.scale", 0.007_812_5), Real("logit_scale", 16.0)]],
                ..tied("8b", [4096, 40, 12_800], [32, 8, 128], GRANITE_3)
            },
        ],
    },
    Family {
        name: "Seed-OSS",
        architecture: "seed_oss",
        facts: &[context(524_288), theta(1e7), eps(1e-6)],
        models: &[shape("36B", [5120, 64, 27_648], [80, 8, 128], 155_136)],
    },
    Family {
        name: "OLMo-2",
        architecture: "olmo2",
        facts: &[context(4096), theta(5e5), eps(1e-6)],
        models: &[shape("1B", [2048, 16, 8192], [16, 16, 128], OLMO_2)],
    },
    Family {
        name: "EXAONE-4.0",
        architecture: "exaone4",
        facts: &[theta(1e6), eps(1e-5)],
        models: &[
            Shape {
                facts: &[&[context(65_536)]],
                ..tied("1.2B", [2048, 30, 4096], [32, 8, 64], EXAONE)
            },
            Shape {
                facts: &[&[context(131_072), window(4096)]],
                ..shape("32B", [5120, 64, 27_392], [40, 8, 128], EXAONE)
            },
        ],
    },
    Family {
        name: "command",
        architecture: "command-r",
        facts: &[context(131_072), layer_eps(1e-5), Real("logit_scale", 0.0625)],
        models: &[
            Shape {
                facts: &[&[theta(8e6)]],
                ..tied("r", [8192, 40, 22_528], [64, 64, 128], COMMAND)
            },
            Shape {
                facts: &[&[theta(4e6)]],
                ..tied("r-08-2024", [8192, 40, 24_576], [64, 8, 128], COMMAND)
            },
        ],
    },
    Family {
        name: "command",
        architecture: "cohere2",
        facts: &[theta(5e4), layer_eps(1e-5), window(4096), Real("logit_scale", 0.25)],
        models: &[
            Shape {
                facts: &[&[context(132_096)]],
                ..tied("r7b", [4096, 32, 14_336], [32, 8, 128], COMMAND)
            },
            Shape {
                facts: &[&[context(131_072)]],
                ..tied("a", [12_288, 64, 36_864], [96, 8, 128], COMMAND)
            },
        ],
    },
    Family {
        name: "Hunyuan",
        architecture: "hunyuan-dense",
        facts: &[context(262_144), theta(1e4), eps(1e-5)],
        models: &[tied("7B", [4096, 32, 14_336], [32, 8, 128], 128_167)],
    },
    Family {
        name: "ERNIE-4.5",
        architecture: "ernie4_5",
        facts: &[context(131_072), theta(5e5), eps(1e-5)],
        models: &[tied("0.3B", [1024, 18, 3072], [16, 2, 128], 103_424)],
    },
];

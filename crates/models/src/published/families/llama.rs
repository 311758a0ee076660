//! Llama, and Mistral.

use super::super::family::Fact::{Count, EverySecond, Real, Text};
use super::super::family::{Family, Shape, context, eps, experts, shape, theta, tied};

const MISTRAL: usize = 131_072;
const LLAMA: usize = 128_256;
const LLAMA_4: usize = 202_048;

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "Mistral-Small",
        architecture: "llama",
        facts: &[eps(1e-5)],
        models: &[
            Shape { facts: &[&[context(32_768), theta(1e8)]], ..MISTRAL_SMALL },
            Shape { size: "3.1", facts: &[&[context(131_072), theta(1e9)]], ..MISTRAL_SMALL },
            Shape { size: "3.2", facts: &[&[context(131_072), theta(1e9)]], ..MISTRAL_SMALL },
        ],
    },
    Family {
        name: "Ministral-3",
        architecture: "mistral3",
        facts: &[
            context(262_144),
            theta(1e6),
            eps(1e-5),
            Text("rope.scaling.type", "yarn"),
            Real("rope.scaling.factor", 16.0),
            Count("rope.scaling.original_context_length", 16_384),
            Real("rope.scaling.yarn_log_multiplier", 1.0),
            Real("attention.temperature_scale", 0.1),
        ],
        models: &[tied("3B", [3072, 26, 9216], [32, 8, 128], MISTRAL)],
    },
    Family {
        name: "Devstral-Small-2",
        architecture: "mistral3",
        facts: &[
            context(393_216),
            theta(1e8),
            eps(1e-5),
            Text("rope.scaling.type", "yarn"),
            Real("rope.scaling.factor", 48.0),
            Count("rope.scaling.original_context_length", 8192),
            Real("rope.scaling.yarn_log_multiplier", 1.0),
            Real("attention.temperature_scale", 0.1),
        ],
        models: &[Shape { size: "", ..MISTRAL_SMALL }],
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
    Family {
        name: "DeepSeek-R1-Distill-Llama",
        architecture: "llama",
        facts: &[context(131_072), theta(5e5), eps(1e-5)],
        models: &[LLAMA_8B, LLAMA_70B],
    },
    Family {
        name: "Llama-4",
        architecture: "llama4",
        facts: &[theta(5e5), eps(1e-5)],
        models: &[
            Shape {
                facts: &[&experts(16, 1, 8192), &[context(10_485_760)]],
                ..shape("Scout", [5120, 48, 16_384], [40, 8, 128], LLAMA_4)
            },
            Shape {
                facts: &[
                    &experts(128, 1, 8192),
                    &[context(1_048_576), EverySecond("ffn_gate.weight")],
                ],
                ..shape("Maverick", [5120, 48, 16_384], [40, 8, 128], LLAMA_4)
            },
        ],
    },
];

const LLAMA_8B: Shape = shape("8B", [4096, 32, 14_336], [32, 8, 128], LLAMA);
const LLAMA_70B: Shape = shape("70B", [8192, 80, 28_672], [64, 8, 128], LLAMA);

const MISTRAL_SMALL: Shape = shape("24B", [5120, 40, 32_768], [32, 8, 128], MISTRAL);

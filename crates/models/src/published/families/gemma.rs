//! Gemma.

use super::super::family::Fact::{Count, Real, Text};
use super::super::family::{Fact, Family, Shape, context, eps, theta, tied};

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

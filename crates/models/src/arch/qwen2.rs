//! Qwen1.5, Qwen2 and Qwen2.5: biases on q, k and v; half-split rotation; multi-head or grouped-query attention. Seed-OSS is
//! made alike.
//!
//! Source: arXiv:2407.10671, section 2.2; tensor names of GGUF's `qwen2`, `qwen2vl` and `seed_oss`.

use program::RopePairs;

use super::Architecture;
use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::ffn;
use crate::Bias;
use crate::config::read;

/// Biases on q, k and v.
pub(super) const BIASED: Heads = Heads { bias: Bias::Always, ..Heads::PLAIN };

pub(super) static QWEN2: Architecture = Architecture {
    name: "qwen2",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, BIASED, ffn::feed),
};

/// What images add is not there for text.
pub(super) static QWEN2_VL: Architecture = Architecture { name: "qwen2vl", ..QWEN2 };

pub(super) static SEED_OSS: Architecture = Architecture {
    name: "seed_oss",
    record: |r, w, c| blocks(r, w, c, Norms::PRE_AND_BETWEEN, BIASED, ffn::feed),
    ..QWEN2
};

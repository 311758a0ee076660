//! Qwen3: norms on each head of q and k before the rotation, no biases, a head width of its own. The text parts of Qwen3-VL
//! are the same.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3`, `qwen3moe`, `qwen3vl` and `qwen3vlmoe`.

use program::RopePairs;

use super::Architecture;
use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::ffn;
use crate::config::experts::{self, Silent};
use crate::config::read;

pub(super) static QWEN3: Architecture = Architecture {
    name: "qwen3",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::NORMED, ffn::feed),
};

/// Experts whose weights are normalized.
pub(super) static QWEN3_MOE: Architecture = Architecture {
    name: "qwen3moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        Ok(c)
    },
    ..QWEN3
};

/// What images add to the first layers is not there for text.
pub(super) static QWEN3_VL: Architecture = Architecture { name: "qwen3vl", ..QWEN3 };

pub(super) static QWEN3_VL_MOE: Architecture = Architecture { name: "qwen3vlmoe", ..QWEN3_MOE };

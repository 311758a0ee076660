//! Qwen 1: q, k and v in one tensor with a bias.
//!
//! Source: arXiv:2309.16609, section 2.3; tensor names of GGUF's `qwen`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn};
use crate::Bias;
use crate::config::read;

pub(super) static QWEN: Architecture = Architecture {
    name: "qwen",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        // files give the width of gate and up together
        c.layers.iter_mut().for_each(|layer| layer.intermediate_size /= 2);
        Ok(c)
    },
    record: |r, w, c| {
        blocks(
            r,
            w,
            c,
            Norms::PRE,
            Heads { joint: true, bias: Bias::Always, ..Heads::PLAIN },
            ffn::feed,
        )
    },
};

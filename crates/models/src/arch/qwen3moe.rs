//! Qwen3-MoE: the attention of Qwen3, experts whose weights are normalized.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3moe`.

use program::RopePairs;

use super::decoder::decoder;
use super::{Architecture, ffn, qwen3};
use crate::config::experts::{self, Silent};
use crate::config::read;

pub(super) static QWEN3_MOE: Architecture = Architecture {
    name: "qwen3moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { normalize: true, joint_width: true })?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.pre_norm(x, qwen3::attend, ffn::feed)),
};

//! GLM-4, GLM-4.5 to 4.7 and ChatGLM: biases on q, k and v, half of each head rotates.
//!
//! Source: arXiv:2406.12793, section 2; arXiv:2508.06471, section 2.1; tensor names of GGUF's `chatglm`, `glm4` and `glm4moe`.

use program::{Gating, RopePairs, ValueId};

use super::Architecture;
use super::attention::{HeadNorm, Heads};
use super::decoder::{Layer, Norms, blocks, decoder};
use super::ffn;
use crate::Result;
use crate::config::experts::{self, Silent};
use crate::config::read;

/// Norms before and after both halves, gate and up in one tensor.
pub(super) static GLM4: Architecture = Architecture {
    name: "glm4",
    config: |keys| read::dense(keys, RopePairs::Interleaved),
    record: |r, w, c| blocks(r, w, c, Norms::SANDWICH, Heads::PLAIN, feed),
};

pub(super) static CHATGLM: Architecture = Architecture {
    name: "chatglm",
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::PLAIN }, feed),
    ..GLM4
};

/// Experts beside a shared one after the first layers; norms on the heads of q and k where the file has them.
pub(super) static GLM4_MOE: Architecture = Architecture {
    name: "glm4moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, block),
};

pub(super) fn block(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let normed = l.w.optional_vector("attn_q_norm", l.config.head_dim)?.is_some();
    let norm = if normed { HeadNorm::Each } else { HeadNorm::None };
    let heads = Heads { norm, ..Heads::PLAIN };
    l.block(Norms::PRE_AND_BETWEEN, x, |l, h| heads.record(l, h), ffn::feed)
}

pub(super) fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::Gated { joint: true, ..ffn::Gated::of(l) }.record(l, h)
}

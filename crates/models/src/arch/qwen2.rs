//! Qwen1.5, Qwen2 and Qwen2.5: biases on q, k and v; half-split rotation; multi-head or grouped-query attention.
//!
//! Source: arXiv:2407.10671, section 2.2; tensor names of GGUF's `qwen2`.

use program::{RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, attention, ffn};
use crate::config::read;
use crate::{Bias, Result};

pub(super) static QWEN2: Architecture = Architecture {
    name: "qwen2",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| decoder(r, w, c, |l, x| l.pre_norm(x, attend, ffn::feed)),
};

/// Attention with biases on q, k and v.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let qkv = attention::heads(l, h, Bias::Always)?;
    attention::attend(l, qkv, None, Bias::Never)
}

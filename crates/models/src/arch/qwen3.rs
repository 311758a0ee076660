//! Qwen3: norms on each head of q and k before the rotation, no biases, a head width of its own.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3`.

use program::{RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, attention, ffn};
use crate::config::read;
use crate::{Bias, Result};

pub(super) static QWEN3: Architecture = Architecture {
    name: "qwen3",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| decoder(r, w, c, |l, x| l.pre_norm(x, attend, ffn::feed)),
};

/// Attention with norms on each head of q and k.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let qkv = attention::norm_heads(l, attention::heads(l, h, Bias::Never)?)?;
    attention::attend(l, qkv, None, Bias::Never)
}

//! Qwen3: norms on each head of q and k before the rotation, no biases, a head width of its own.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3`.

use program::{OutputKind, Recorder, RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, attention, ffn};
use crate::config::read;
use crate::{Bias, Keys, ModelConfig, Result, Weights};

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn config(&self, keys: &Keys<'_>) -> Result<ModelConfig> {
        read::dense(keys, RopePairs::HalfSplit)
    }

    fn record(
        &self,
        r: &Recorder,
        w: &Weights<'_>,
        c: &ModelConfig,
    ) -> Result<Vec<(OutputKind, ValueId)>> {
        decoder(r, w, c, |l, x| l.pre_norm(x, attend, ffn::feed))
    }
}

/// Attention with norms on each head of q and k.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let qkv = attention::norm_heads(l, attention::heads(l, h, Bias::Never)?)?;
    attention::attend(l, qkv, None, Bias::Never)
}

//! Qwen1.5, Qwen2 and Qwen2.5: biases on q, k and v; half-split rotation; multi-head or grouped-query attention.
//!
//! Source: arXiv:2407.10671, section 2.2; tensor names of GGUF's `qwen2`.

use program::{OutputKind, Recorder, RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, attention, ffn};
use crate::config::read;
use crate::{Bias, Keys, ModelConfig, Result, Weights};

pub(super) struct Qwen2;

impl Architecture for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
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

/// Attention with biases on q, k and v.
pub(super) fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let qkv = attention::heads(l, h, Bias::Always)?;
    attention::attend(l, qkv, None, Bias::Never)
}

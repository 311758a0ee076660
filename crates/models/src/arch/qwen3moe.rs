//! Qwen3-MoE: the attention of Qwen3, experts whose weights are normalized.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3moe`.

use program::{OutputKind, Recorder, RopePairs, ValueId};

use super::decoder::decoder;
use super::{Architecture, ffn, qwen3};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::{Keys, ModelConfig, Result, Weights};

pub(super) struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn config(&self, keys: &Keys<'_>) -> Result<ModelConfig> {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { normalize: true, joint_width: true })?;
        Ok(c)
    }

    fn record(
        &self,
        r: &Recorder,
        w: &Weights<'_>,
        c: &ModelConfig,
    ) -> Result<Vec<(OutputKind, ValueId)>> {
        decoder(r, w, c, |l, x| l.pre_norm(x, qwen3::attend, ffn::feed))
    }
}

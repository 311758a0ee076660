//! DeepSeek-MoE, the text part of DeepSeek-OCR, dots.llm1, Ling and Ring, Hunyuan 3: dense layers first, then experts beside
//! shared ones.
//!
//! Source: arXiv:2401.06066, section 3; arXiv:2506.05767, section 2; arXiv:2503.05139, section 2; tensor names of GGUF's
//! `deepseek`, `deepseek2-ocr`, `dots1`, `bailingmoe`, `bailingmoe2` and `hy_v3`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn, llama, qwen3};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::{Keys, ModelConfig, Result};

pub(super) static DEEPSEEK: Architecture = Architecture {
    name: "deepseek",
    config: |keys| decoder_of(keys, RopePairs::Interleaved, false),
    record: llama::record,
};

pub(super) static DEEPSEEK_OCR: Architecture = Architecture {
    name: "deepseek2-ocr",
    config: |keys| decoder_of(keys, RopePairs::HalfSplit, false),
    record: llama::record,
};

/// Norms on the heads of q and k.
pub(super) static DOTS1: Architecture = Architecture {
    name: "dots1",
    config: |keys| decoder_of(keys, RopePairs::HalfSplit, false),
    record: qwen3::QWEN3.record,
};

pub(super) static HY_V3: Architecture = Architecture {
    name: "hy_v3",
    config: |keys| decoder_of(keys, RopePairs::HalfSplit, true),
    ..DOTS1
};

pub(super) static BAILING_MOE: Architecture = Architecture { name: "bailingmoe", ..DEEPSEEK };

/// q, k and v in one tensor; half of each head rotates.
pub(super) static BAILING_MOE2: Architecture = Architecture {
    name: "bailingmoe2",
    record: |r, w, c| {
        blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::NORMED }, ffn::feed)
    },
    ..DOTS1
};

fn decoder_of(keys: &Keys<'_>, pairs: RopePairs, normalize: bool) -> Result<ModelConfig> {
    let mut c = read::decoder(keys, pairs)?;
    experts::read(keys, &mut c, &Silent { normalize, ..Silent::PLAIN })?;
    Ok(c)
}

//! Llama 1 to 3 and what shares their shape, Mixtral too: interleaved rotation, which may be slowed by factors from the
//! file; biases where the file has them. Many others differ from it in settings alone.
//!
//! Source: arXiv:2302.13971, section 2.2; arXiv:2407.21783, section 3.2; tensor names of GGUF's `llama`.

use program::{Recorder, RopePairs};

use super::attention::Heads;
use super::decoder::{Norms, ONE_NORM, blocks, parallel_blocks};
use super::{Architecture, ProgramOutputs, ffn, mlp};
use crate::config::experts::{self, Silent, Width};
use crate::config::read;
use crate::{Error, ModelConfig, Result, Weights};

pub(super) static LLAMA: Architecture = Architecture {
    name: "llama",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        let silent = Silent { width: Width::OfDense, ..Silent::NORMALIZED };
        experts::read_if_any(keys, &mut c, &silent)?;
        Ok(c)
    },
    record,
};

pub(super) static INTERNLM2: Architecture = dense("internlm2");
pub(super) static XVERSE: Architecture = dense("xverse");

const fn dense(name: &'static str) -> Architecture {
    Architecture { name, config: |keys| read::dense(keys, RopePairs::Interleaved), record }
}

/// openPangu, with a bias on the output projection too.
pub(super) static PANGU: Architecture = Architecture {
    name: "pangu-embedded",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record,
};

/// Baichuan. Files do not say that the 13B, of 40 layers, has ALiBi in place of the rotation.
pub(super) static BAICHUAN: Architecture = Architecture {
    name: "baichuan",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::Interleaved)?;
        match c.layers.len() {
            32 => Ok(c),
            40 => {
                mlp::alibi(&mut c, 8.0);
                Ok(c)
            }
            other => Err(Error::key(&keys.name("block_count"), "32 or 40", other)),
        }
    },
    record,
};

/// PLaMo: both halves of a block read one norm.
pub(super) static PLAMO: Architecture = Architecture {
    name: "plamo",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| parallel_blocks(r, w, c, ONE_NORM, Heads::PLAIN, ffn::feed),
};

/// Refact: ALiBi in place of the rotation.
pub(super) static REFACT: Architecture = Architecture {
    name: "refact",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        mlp::alibi(&mut c, 8.0);
        Ok(c)
    },
    record,
};

/// SmolLM3: every fourth layer does not rotate (arXiv:2501.18795).
pub(super) static SMOLLM3: Architecture = Architecture {
    name: "smollm3",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::Interleaved)?;
        c.layers.iter_mut().skip(3).step_by(4).for_each(|layer| layer.rope = None);
        Ok(c)
    },
    record,
};

/// CogVLM's way of text; images have weights of their own beside it.
pub(super) static COGVLM: Architecture = Architecture {
    name: "cogvlm",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::PLAIN }, ffn::feed),
};

/// Norms before both halves of a block, plain attention, gated feed-forward layers or experts.
pub(super) fn record(r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ProgramOutputs> {
    blocks(r, w, c, Norms::PRE, Heads::PLAIN, ffn::feed)
}

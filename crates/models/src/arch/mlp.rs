//! Decoders with layer norms and feed-forward layers without a gate: StarCoder 2, Phi-2, GPT-NeoX, Falcon, BLOOM, MPT,
//! Nemotron, CodeShell, Jais 2, GPT-2, StarCoder.
//!
//! Source: arXiv:2402.19173, section 6; arXiv:2204.06745, section 2; arXiv:2311.16867, section 4; arXiv:2211.05100, section 3;
//! arXiv:2402.16819, section 2; tensor names of GGUF's `starcoder2`, `phi2`, `gptneox`, `falcon`, `bloom`, `mpt`, `nemotron`,
//! `codeshell`, `jais2`, `gpt2` and `starcoder`.

use program::{Act, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{Layer, Norms, ONE_NORM, blocks, parallel_blocks};
use super::{Architecture, ffn};
use crate::config::read;
use crate::{ModelConfig, Result};

const JOINT: Heads = Heads { joint: true, ..Heads::PLAIN };

pub(super) static STARCODER2: Architecture = Architecture {
    name: "starcoder2",
    config: |keys| read::layer_normed(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::PLAIN, gelu),
};

pub(super) static CODESHELL: Architecture = Architecture {
    name: "codeshell",
    config: |keys| read::layer_normed(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, JOINT, gelu),
};

pub(super) static NEMOTRON: Architecture = Architecture {
    name: "nemotron",
    config: |keys| read::layer_normed(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::PLAIN, relu2),
};

pub(super) static JAIS2: Architecture = Architecture { name: "jais2", ..NEMOTRON };

/// One norm for both halves.
pub(super) static PHI2: Architecture = Architecture {
    name: "phi2",
    config: |keys| read::layer_normed(keys, RopePairs::HalfSplit),
    record: |r, w, c| parallel_blocks(r, w, c, ONE_NORM, Heads::PLAIN, gelu),
};

/// Halves side by side, each with a norm, or one after the other.
pub(super) static GPTNEOX: Architecture = Architecture {
    name: "gptneox",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        c.parallel = keys.flag("use_parallel_residual")?.unwrap_or(true);
        Ok(c)
    },
    record: |r, w, c| match c.parallel {
        true => parallel_blocks(r, w, c, [Some("attn_norm"), Some("ffn_norm")], JOINT, gelu),
        false => blocks(r, w, c, Norms::PRE, JOINT, gelu),
    },
};

/// The 40B has a second norm, which its attention reads.
pub(super) static FALCON: Architecture = Architecture {
    name: "falcon",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        c.parallel = keys.has("blk.0.attn_norm_2.weight");
        Ok(c)
    },
    record: |r, w, c| {
        let norms = match c.parallel {
            true => [Some("attn_norm_2"), Some("attn_norm")],
            false => ONE_NORM,
        };
        parallel_blocks(r, w, c, norms, JOINT, gelu)
    },
};

/// ALiBi, and a norm behind the embedding.
pub(super) static BLOOM: Architecture = Architecture {
    name: "bloom",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        alibi(&mut c, 8.0);
        c.norm_embedding = true;
        Ok(c)
    },
    ..CODESHELL
};

pub(super) static MPT: Architecture = Architecture {
    name: "mpt",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        alibi(&mut c, keys.positive("attention.max_alibi_bias")?.unwrap_or(8.0));
        Ok(c)
    },
    ..CODESHELL
};

/// Learned positions.
pub(super) static GPT2: Architecture = Architecture {
    name: "gpt2",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        read::learned_positions(keys, &mut c)?;
        Ok(c)
    },
    ..CODESHELL
};

pub(super) static STARCODER: Architecture = Architecture { name: "starcoder", ..GPT2 };

/// ALiBi in place of the rotation.
pub(super) fn alibi(c: &mut ModelConfig, max_bias: f32) {
    for layer in &mut c.layers {
        (layer.rope, layer.score.alibi) = (None, Some(max_bias));
    }
}

fn gelu(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::ungated(l, Act::Gelu, h)
}

fn relu2(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::ungated(l, Act::Relu2, h)
}

//! Decoders with layer norms and gated feed-forward layers: Orion, Jais, StableLM, OLMo, DBRX; and Phi-3.5-MoE, whose norms
//! have biases.
//!
//! Source: arXiv:2401.12246; arXiv:2308.16149, section 4; arXiv:2402.17834, section 2; arXiv:2402.00838, section 2.1;
//! tensor names of GGUF's `orion`, `jais`, `stablelm`, `olmo`, `dbrx` and `phimoe`.

use program::RopePairs;

use super::attention::{HeadNorm, Heads};
use super::decoder::{Norms, ONE_NORM, blocks, parallel_blocks};
use super::mlp::alibi;
use super::{Architecture, ffn, llama};
use crate::config::experts::{self, Silent, Width};
use crate::config::read;

pub(super) static ORION: Architecture = Architecture {
    name: "orion",
    config: |keys| read::layer_normed(keys, RopePairs::HalfSplit),
    record: llama::record,
};

pub(super) static JAIS: Architecture = Architecture {
    name: "jais",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        alibi(&mut c, keys.positive("attention.max_alibi_bias")?.unwrap_or(8.0));
        // products are divided by the width of a head itself
        c.layers.iter_mut().for_each(|l| l.score.scale = (l.head_dim as f32).recip());
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::PLAIN }, ffn::feed),
};

/// The 12B has norms on the heads of q and k, and one norm for both halves.
pub(super) static STABLELM: Architecture = Architecture {
    name: "stablelm",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
        c.parallel = keys.has("blk.0.attn_q_norm.weight");
        Ok(c)
    },
    record: |r, w, c| match c.parallel {
        false => llama::record(r, w, c),
        true => {
            let heads = Heads { norm: HeadNorm::Own, ..Heads::PLAIN };
            parallel_blocks(r, w, c, ONE_NORM, heads, ffn::feed)
        }
    },
};

/// Norms without vectors.
pub(super) static OLMO: Architecture = Architecture {
    name: "olmo",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::Interleaved)?;
        c.plain_norms = true;
        Ok(c)
    },
    record: llama::record,
};

pub(super) static DBRX: Architecture = Architecture {
    name: "dbrx",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        read::set_layer_norm(keys, &mut c)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { joint: true, ..Heads::PLAIN };
        blocks(r, w, c, Norms::PRE_AND_OUTPUT, heads, ffn::feed)
    },
};

/// Its norms are computed as llama.cpp does, by the root mean square, then a bias.
pub(super) static PHIMOE: Architecture = Architecture {
    name: "phimoe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        c.norm_bias = true;
        Ok(c)
    },
    record: llama::record,
};

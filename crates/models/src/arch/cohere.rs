//! Command R, A and R7B: both halves of a block read one norm; a factor on logits; windows on three of four layers, where
//! alone heads rotate.
//!
//! Source: Cohere Command A, section 2.1 (arXiv:2504.00698); tensor names of GGUF's `command-r`, `cohere2`, `cohere2moe`.

use program::{Gating, RopePairs};

use super::attention::{HeadNorm, Heads};
use super::decoder::{ONE_NORM, parallel_blocks};
use super::{Architecture, ffn};
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

/// Command R+, of 64 layers, has norms on the heads of q and k.
pub(super) static COMMAND_R: Architecture = Architecture {
    name: "command-r",
    config: |keys| {
        let mut c = read::layer_normed(keys, RopePairs::Interleaved)?;
        c.logit_scale = keys.positive_or_zero("logit_scale")?;
        Ok(c)
    },
    record: |r, w, c| {
        let norm = if c.layers.len() >= 64 { HeadNorm::Own } else { HeadNorm::None };
        let heads = Heads { norm, ..Heads::PLAIN };
        parallel_blocks(r, w, c, ONE_NORM, heads, ffn::feed)
    },
};

pub(super) static COHERE2: Architecture = Architecture {
    name: "cohere2",
    config: |keys| {
        let mut c = (COMMAND_R.config)(keys)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        Ok(c)
    },
    record: |r, w, c| parallel_blocks(r, w, c, ONE_NORM, Heads::PLAIN, ffn::feed),
};

pub(super) static COHERE2_MOE: Architecture = Architecture {
    name: "cohere2moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        read::set_layer_norm(keys, &mut c)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
        c.logit_scale = keys.positive_or_zero("logit_scale")?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        Ok(c)
    },
    ..COHERE2
};

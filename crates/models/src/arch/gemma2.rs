//! Gemma 1 and 2. The second: norms before and after each half of a block, GELU, soft caps on scores and logits, a window on every other
//! layer.
//!
//! Source: arXiv:2408.00118, section 2; tensor names of GGUF's `gemma2`.

use program::{Act, Gate, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{Layer, Norms, blocks};
use super::{Architecture, ffn};
use crate::config::{read, window};
use crate::{ModelConfig, Result};

/// Norms before each half alone, no caps, no window.
pub(super) static GEMMA: Architecture = Architecture {
    name: "gemma",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        c.embedding_scale = Some((c.hidden_size as f32).sqrt());
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::PLAIN, feed),
};

pub(super) static GEMMA2: Architecture = Architecture {
    name: "gemma2",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        scale(&mut c, 46);
        c.logit_softcap = Some(keys.positive("final_logit_softcapping")?.unwrap_or(30.0));
        let softcap = keys.positive("attn_logit_softcapping")?.unwrap_or(50.0);
        c.layers.iter_mut().for_each(|layer| layer.score.softcap = Some(softcap));
        window::apply(keys, &mut c, 2, None)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::SANDWICH, Heads::PLAIN, feed),
};

/// All Gemmas scale the embedding; the 27B, which files tell by its number of layers only, scales scores by the width
/// of the residual stream that a head gets, not by its own.
pub(super) fn scale(c: &mut ModelConfig, layers_of_27b: usize) {
    c.embedding_scale = Some((c.hidden_size as f32).sqrt());
    if c.layers.len() == layers_of_27b {
        for layer in &mut c.layers {
            layer.score.scale = (c.hidden_size as f32 / layer.n_heads as f32).sqrt().recip();
        }
    }
}

pub(super) fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::Gated { act: Gate::Act(Act::Gelu), ..ffn::Gated::of(l) }.record(l, h)
}

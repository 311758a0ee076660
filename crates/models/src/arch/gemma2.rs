//! Gemma 2: norms before and after each half of a block, GELU, soft caps on scores and logits, a window on every other
//! layer.
//!
//! Source: arXiv:2408.00118, section 2; tensor names of GGUF's `gemma2`.

use program::{Act, Mask, RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, attention, ffn};
use crate::config::{read, window};
use crate::{Bias, ModelConfig, Result};

pub(super) static GEMMA2: Architecture = Architecture {
    name: "gemma2",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        scale(&mut c, 46);
        c.logit_softcap = Some(keys.positive("final_logit_softcapping")?.unwrap_or(30.0));
        let softcap = keys.positive("attn_logit_softcapping")?.unwrap_or(50.0);
        for (layer, window) in c.layers.iter_mut().zip(window::read(keys, 2)?) {
            layer.score.softcap = Some(softcap);
            layer.score.mask = window.map_or(Mask::Causal, Mask::Window);
        }
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| {
            let attend = |l: &Layer<'_>, h| {
                let qkv = attention::heads(l, h, Bias::Never)?;
                attention::attend(l, qkv, None, Bias::Never)
            };
            l.sandwich(x, attend, feed)
        })
    },
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
    ffn::Gated { act: Act::Gelu, ..ffn::Gated::of(l) }.record(l, h)
}

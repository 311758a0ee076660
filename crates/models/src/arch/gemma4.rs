//! Gemma 4: heads of two sizes, layers that read what earlier ones cached, norms on values, a factor on each block; small
//! ones have embeddings by layer, large ones experts beside the dense layer.
//!
//! Source: `modeling_gemma4.py` of transformers; tensor names of GGUF's `gemma4`.

use program::{Act, Gate, Norm, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{self, Layer};
use super::{Architecture, ffn, gemma2, per_layer};
use crate::Result;
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

pub(super) static GEMMA4: Architecture = Architecture {
    name: "gemma4",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        let silent = Silent { both: true, factors: true, ..Silent::NORMALIZED };
        experts::read_if_any(keys, &mut c, &silent)?;
        for experts in c.layers.iter_mut().flat_map(|layer| &mut layer.experts) {
            experts.act = Gate::Act(Act::Gelu);
        }
        c.embedding_scale = Some((c.hidden_size as f32).sqrt());
        c.logit_softcap = keys.positive_or_zero("final_logit_softcapping")?;
        c.per_layer_size =
            keys.count("embedding_length_per_layer_input", 0..=1 << 20)?.unwrap_or(0);
        let windows = window::apply(keys, &mut c, 6, Some(10_000.0))?;
        window::heads(keys, &mut c, &windows)?;
        window::share(keys, &mut c, 0)?;
        for (layer, window) in c.layers.iter_mut().zip(windows) {
            layer.rope_factors = !window;
            layer.score.scale = 1.0;
        }
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { value_norm: true, value_may_be_key: true, ..Heads::NORMED };
        let x = decoder::embed(r, w, c)?;
        let inputs = match c.per_layer_size {
            0 => None,
            _ => Some(per_layer::inputs(r, w, c, x)?),
        };
        let x = decoder::layers(r, w, c, x, |l, x| {
            let a = l.norm("post_attention_norm", heads.record(l, l.norm("attn_norm", x)?)?)?;
            let x = l.residual("attn_residual", x, a)?;
            let f = l.norm("post_ffw_norm", feed(l, x)?)?;
            let x = l.residual("ffn_residual", x, f)?;
            let x = match inputs {
                Some(inputs) => l.add("per_layer_residual", x, per_layer::branch(l, inputs, x)?)?,
                None => x,
            };
            scaled(l, x)
        })?;
        decoder::normed_head(r, w, c, x)
    },
};

/// The dense layer of the stream `x`, and where there are experts, these beside it, each with norms of its own.
fn feed(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let dense = gemma2::feed(l, l.norm("ffn_norm", x)?)?;
    let Some(e) = &l.config.experts else { return Ok(dense) };
    let hidden_size = l.model.hidden_size;
    // norm(x) / sqrt(hidden_size), times a vector
    let by = Norm::rms(l.w.tensor("ffn_gate_inp.scale", hidden_size)?, l.model.norm_eps);
    let by = l.r.norm("ffn_router_norm", x, by)?;
    let by = l.r.scale("ffn_router_input", by, (hidden_size as f32).sqrt().recip())?;
    let experts = ffn::experts(l, e, l.norm("pre_ffw_norm_2", x)?, by)?;
    let (dense, experts) = (l.norm("post_ffw_norm_1", dense)?, l.norm("post_ffw_norm_2", experts)?);
    l.add("ffn_out", dense, experts)
}

/// Times the block's factor, where the file has one.
fn scaled(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    match l.w.optional_vector("layer_output_scale", 1)? {
        Some(factor) => Ok(l.r.multiply("layer_output", x, factor)?),
        None => Ok(x),
    }
}

//! Decoders whose layers weigh what each head attended to by a gate of the input, most with windows: Trinity, Step 3.5,
//! Laguna, Spark 2.5, Muse Glimmer.
//!
//! Source: arXiv:2505.06708, section 3 (gates); tensor names of GGUF's `afmoe`, `step35`, `laguna`, `spark2_5`,
//! `muse-glimmer`.

use program::{Act, Gating, RopePairs};

use super::attention::{GateWidth, Heads};
use super::decoder::{self, Norms, blocks};
use super::{Architecture, ffn, gemma2};
use crate::config::experts::{self, Silent};
use crate::config::{read, window};
use crate::{Error, Keys, ModelConfig, Result};

const PER_HEAD: Heads = Heads { gate: Some((Act::Sigmoid, GateWidth::Heads)), ..Heads::NORMED };
const PER_ELEMENT: Heads =
    Heads { gate: Some((Act::Sigmoid, GateWidth::Elements)), ..Heads::NORMED };

pub(super) static AFMOE: Architecture = Architecture {
    name: "afmoe",
    config: |keys| {
        let mut c = mixture(keys)?;
        c.embedding_scale = Some((c.hidden_size as f32).sqrt());
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::SANDWICH, PER_ELEMENT, ffn::feed),
};

/// Half of each head rotates on layers without a window. Activations of some layers are bounded.
pub(super) static STEP35: Architecture = Architecture {
    name: "step35",
    config: |keys| {
        let mut c = mixture(keys)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        let whole = c.first_layer().rope.as_ref().map_or(0, |rope| rope.dims);
        if !whole.is_multiple_of(4) {
            return Err(Error::key(&keys.name("rope.dimension_count"), "a multiple of 4", whole));
        }
        for layer in window::of(&mut c, &windows, false) {
            layer.rope.iter_mut().for_each(|rope| rope.dims /= 2);
        }
        experts::clamp(keys, &mut c)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, PER_HEAD, ffn::feed),
};

/// Fewer elements of each head rotate on layers without a window, and they alone are scaled for long contexts.
pub(super) static LAGUNA: Architecture = Architecture {
    name: "laguna",
    config: |keys| {
        let mut c = mixture(keys)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::scale_others(&mut c, &windows);
        let head_dim = c.first_layer().head_dim;
        if let Some(dims) = keys.count("rope.dimension_count_swa", 2..=head_dim as u64)? {
            if !dims.is_multiple_of(2) {
                let key = keys.name("rope.dimension_count_swa");
                return Err(Error::key(&key, "an even number", dims));
            }
            for layer in window::of(&mut c, &windows, true) {
                layer.rope.iter_mut().for_each(|rope| rope.dims = dims);
            }
        }
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { gate: Some((Act::Softplus, GateWidth::Heads)), ..Heads::NORMED };
        blocks(r, w, c, Norms::PRE, heads, ffn::feed)
    },
};

/// A norm of the embedding, bounded logits.
pub(super) static MUSE_GLIMMER: Architecture = Architecture {
    name: "muse-glimmer",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::Interleaved)?;
        c.logit_scale = keys.positive("logit_scale")?;
        c.logit_softcap = keys.positive_or_zero("final_logit_softcapping")?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        Ok(c)
    },
    record: |r, w, c| {
        let x = r.norm("embed_normed", decoder::embed(r, w, c)?, c.plain_norm())?;
        let x = decoder::layers(r, w, c, x, |l, x| {
            l.block(Norms::SANDWICH, x, |l, h| PER_ELEMENT.record(l, h), ffn::feed)
        })?;
        decoder::normed_head(r, w, c, x)
    },
};

pub(super) static SPARK2_5: Architecture = Architecture {
    name: "spark2_5",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        window::apply(keys, &mut c, 4, None)?;
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { gate: Some((Act::Sigmoid, GateWidth::Heads)), ..Heads::PLAIN };
        blocks(r, w, c, Norms::PRE, heads, gemma2::feed)
    },
};

fn mixture(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
    experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
    Ok(c)
}

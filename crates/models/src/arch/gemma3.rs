//! Gemma 3: as Gemma 2 with norms on each head of q and k in place of soft caps, and a window on five of six layers, where
//! the rotation has a base of its own.
//!
//! EmbeddingGemma is the same with queries that see both ways, half the window to each side.
//!
//! Source: arXiv:2503.19786, section 2; tensor names of GGUF's `gemma3`.

use program::{Mask, RopePairs};

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, gemma2};
use crate::config::{read, text, window};
use crate::{Keys, ModelConfig, Result};

pub(super) static GEMMA3: Architecture = Architecture {
    name: "gemma3",
    config: |keys| windowed(keys, read::dense(keys, RopePairs::HalfSplit)?),
    record: |r, w, c| blocks(r, w, c, Norms::SANDWICH, Heads::NORMED, gemma2::feed),
};

pub(super) static GEMMA_EMBEDDING: Architecture = Architecture {
    name: "gemma-embedding",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        // here it is known what a window is that sees both ways
        c.layers.iter_mut().for_each(|layer| layer.score.mask = Mask::Causal);
        let mut c = windowed(keys, c)?;
        for layer in &mut c.layers {
            layer.score.mask = match layer.score.mask {
                Mask::Window(n) => Mask::Around(n / 2),
                _ => Mask::Full,
            };
        }
        text::read_encoder(keys, &mut c)?;
        Ok(c)
    },
    ..GEMMA3
};

fn windowed(keys: &Keys<'_>, mut c: ModelConfig) -> Result<ModelConfig> {
    gemma2::scale(&mut c, 62);
    c.logit_softcap = keys.positive_or_zero("final_logit_softcapping")?;
    let windows = window::apply(keys, &mut c, 6, Some(10_000.0))?;
    window::scale_others(&mut c, &windows);
    Ok(c)
}

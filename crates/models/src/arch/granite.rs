//! Granite 3 and 4, dense or with experts, and MiniCPM: Llama with factors on the embedding, the halves of each block,
//! the scores and the logits.
//!
//! Source: arXiv:2404.06395, section 3.1 and appendix A; tensor names of GGUF's `granite`, `granitemoe` and `minicpm`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, decoder, ffn, latent, llama};
use crate::config::experts::{self, Silent, Width};
use crate::config::{self, read, window};
use crate::{Keys, ModelConfig, Result};

pub(super) static GRANITE: Architecture = Architecture {
    name: "granite",
    config: |keys| {
        experts::none(keys)?;
        granite(keys)
    },
    record: llama::record,
};

pub(super) static GRANITE_MOE: Architecture = Architecture {
    name: "granitemoe",
    config: |keys| {
        let mut c = granite(keys)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    record: llama::record,
};

/// Windows, and sinks.
pub(super) static GRANITE_SWA: Architecture = Architecture {
    name: "granite_swa",
    config: |keys| {
        experts::none(keys)?;
        let mut c = granite(keys)?;
        window::apply(keys, &mut c, 4, None)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { sinks: true, ..Heads::PLAIN }, ffn::feed),
};

/// Latent attention, and factors that no file says.
pub(super) static MINICPM3: Architecture = Architecture {
    name: "minicpm3",
    config: |keys| {
        experts::none(keys)?;
        let mut c = config::latent::decoder(keys, RopePairs::HalfSplit)?;
        c.embedding_scale = Some(12.0);
        c.residual_scale = Some(1.4 / (c.layers.len() as f32).sqrt());
        c.logit_scale = Some(256.0 / c.hidden_size as f32);
        Ok(c)
    },
    record: |r, w, c| {
        decoder::decoder(r, w, c, |l, x| l.block(Norms::PRE, x, latent::attend, ffn::feed))
    },
};

/// Early files leave out factors that all MiniCPMs have.
pub(super) static MINICPM: Architecture = Architecture {
    name: "minicpm",
    config: |keys| {
        let mut c = decoder(keys)?;
        let n_layers = c.layers.len() as f32;
        c.embedding_scale = c.embedding_scale.or(Some(12.0));
        c.residual_scale = c.residual_scale.or(Some(1.4 / n_layers.sqrt()));
        c.logit_scale = c.logit_scale.or(Some(256.0 / c.hidden_size as f32));
        Ok(c)
    },
    record: llama::record,
};

fn decoder(keys: &Keys<'_>) -> Result<ModelConfig> {
    with_factors(keys, read::decoder(keys, RopePairs::Interleaved)?)
}

fn with_factors(keys: &Keys<'_>, mut c: ModelConfig) -> Result<ModelConfig> {
    c.embedding_scale = keys.positive_or_zero("embedding_scale")?;
    c.residual_scale = keys.positive_or_zero("residual_scale")?;
    c.logit_scale = keys.positive_or_zero("logit_scale")?.map(f32::recip);
    let scale = keys.positive_or_zero("attention.scale")?;
    c.layers.iter_mut().for_each(|l| l.score.scale = scale.unwrap_or(l.score.scale));
    Ok(c)
}

/// The same, which need not be trained with a rotation.
fn granite(keys: &Keys<'_>) -> Result<ModelConfig> {
    scaled(keys, read::decoder(keys, RopePairs::Interleaved)?)
}

/// Factors and perhaps no rotation for what else a file says.
pub(super) fn scaled(keys: &Keys<'_>, c: ModelConfig) -> Result<ModelConfig> {
    let mut c = with_factors(keys, c)?;
    let rotates = keys.flag("rope.scaling.finetuned")?.unwrap_or(true);
    c.layers.iter_mut().filter(|_| !rotates).for_each(|layer| layer.rope = None);
    Ok(c)
}

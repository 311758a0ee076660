//! GLM-5.3 Flash: Kimi's delta nets, latent attention that nothing rotates to pools of positions that an indexer chooses, and
//! several residual streams that mix.
//!
//! Source: tensor names of GGUF's `glm5-next`.

use program::{Gating, ValueId};

use super::decoder::{self, Layer};
use super::indexer::{self, Last};
use super::{Architecture, ffn, hyper, kimi};
use crate::config::experts::{self, Silent};
use crate::config::indexer::apply;
use crate::{HyperConnections, IndexerConfig, Keys, ModelConfig, Result};

pub(super) static GLM5_NEXT: Architecture = Architecture {
    name: "glm5-next",
    config,
    record: |r, w, c| {
        let last = Last::default();
        let x = hyper::open(r, c, decoder::embed(r, w, c)?)?;
        let mix = |l: &Layer<'_>, h| mix(l, &last, h);
        let x = decoder::layers(r, w, c, x, |l, x| hyper::block(l, x, mix, ffn::feed))?;
        decoder::normed_head(r, w, c, hyper::mean(r, c, "output_mean", x)?)
    },
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = kimi::config(keys)?;
    experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
    experts::clamp_all_before(keys, &mut c)?;
    apply(keys, &mut c, &IndexerConfig::of_pools(keys)?, |_| true)?;
    c.hyper = Some(HyperConnections::balanced(keys)?);
    for layer in &mut c.layers {
        layer.rope = None;
        if let Some(its) = &mut layer.recurrent {
            (its.rates_below, its.key_eps) = (true, Some(1e-6));
            layer.indexer = None;
        }
    }
    Ok(c)
}

fn mix(l: &Layer<'_>, last: &Last, h: ValueId) -> Result<ValueId> {
    match &l.config.recurrent {
        Some(its) => kimi::delta(l, its, h),
        None => indexer::attend(l, last, h),
    }
}

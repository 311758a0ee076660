//! Latent attention to what an indexer chooses: DeepSeek V3.2, GLM-5, dots.note 3, Hunyuan 4.
//!
//! Source: DeepSeek-V3.2-Exp, section 2.1; tensor names of GGUF's `deepseek32`, `glm-dsa`, `dots3note` and `hy_v4`.

use program::{Gating, Recorder, RopePairs, ValueId};

use super::attention::GateWidth;
use super::decoder::{self, Layer, Norms, decoder};
use super::indexer::{Last, attend, choose};
use super::{Architecture, ProgramOutputs, ffn, hyper, latent};
use crate::config::experts::{self, Silent};
use crate::config::indexer::{self, read_if_any};
use crate::config::{self, window};
use crate::{HyperConnections, IndexerConfig, ModelConfig, Result, Weights};

pub(super) static DEEPSEEK32: Architecture = Architecture {
    name: "deepseek32",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent::PLAIN)?;
        let its = IndexerConfig::read(keys, RopePairs::HalfSplit)?;
        indexer::apply(keys, &mut c, &its, |_| true)?;
        Ok(c)
    },
    record,
};

/// From this context on files that do not say so have an indexer in every fourth layer.
const FEW_INDEXERS: usize = 1 << 20;

/// Some layers read by the choice of one before them.
pub(super) static GLM_DSA: Architecture = Architecture {
    name: "glm-dsa",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
        let few = c.context_length >= FEW_INDEXERS;
        let its = IndexerConfig::read(keys, RopePairs::Interleaved)?;
        indexer::apply(keys, &mut c, &its, |i| !few || i < 2 || (i - 2).is_multiple_of(4))?;
        Ok(c)
    },
    record,
};

fn record(r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ProgramOutputs> {
    let last = Last::default();
    decoder(r, w, c, |l, x| l.block(Norms::PRE, x, |l, h| attend(l, &last, h), ffn::feed))
}

/// Layers with a window, of narrower latents, beside those that choose; a norm on what rotates of a key, and a gate for
/// each head.
pub(super) static DOTS3NOTE: Architecture = Architecture {
    name: "dots3note",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
        let its = IndexerConfig::read(keys, RopePairs::HalfSplit)?;
        indexer::apply(keys, &mut c, &its, |_| true)?;
        let windows = window::apply(keys, &mut c, 1, None)?;
        config::latent::windowed(keys, &mut c, &windows)?;
        for (layer, sees_part) in c.layers.iter_mut().zip(windows) {
            layer.indexer = layer.indexer.take().filter(|_| !sees_part);
        }
        Ok(c)
    },
    record: |r, w, c| {
        let last = Last::default();
        let attend = |l: &Layer<'_>, h| gated(l, &last, h, GateWidth::Heads);
        decoder(r, w, c, |l, x| l.block(Norms::PRE, x, attend, ffn::feed))
    },
};

/// Several residual streams, a gate for each element of what heads found, sinks; indexers in files that have them.
pub(super) static HY_V4: Architecture = Architecture {
    name: "hy_v4",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
        experts::clamp_before(keys, &mut c)?;
        if let Some(its) = read_if_any(keys, RopePairs::Interleaved)? {
            let its = IndexerConfig { rotates_last: true, norm_eps: c.norm_eps, ..its };
            indexer::apply(keys, &mut c, &its, |_| true)?;
        }
        c.layers.iter_mut().flat_map(|layer| &mut layer.latent).for_each(|l| l.sinks = true);
        c.hyper = Some(HyperConnections { adds_eps: true, ..HyperConnections::read(keys)? });
        Ok(c)
    },
    record: |r, w, c| {
        let last = Last::default();
        let attend = |l: &Layer<'_>, h| gated(l, &last, h, GateWidth::Elements);
        let x = hyper::open(r, c, decoder::embed(r, w, c)?)?;
        let x = decoder::layers(r, w, c, x, |l, x| hyper::block(l, x, attend, ffn::feed))?;
        decoder::normed_head(r, w, c, hyper::close(r, w, c, x)?)
    },
};

/// What the layer attends to of its choice, weighed by a gate.
fn gated(l: &Layer<'_>, last: &Last, h: ValueId, width: GateWidth) -> Result<ValueId> {
    let a = latent::find_chosen(l, h, |source| choose(l, last, h, source))?;
    latent::gated(l, a, h, width)
}

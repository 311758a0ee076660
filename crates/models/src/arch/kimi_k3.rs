//! Kimi K3: Kimi Linear's layers, whose halves read a mix of what the residual stream was at the start of every few layers
//! and of what it is; experts of latents; a gate on what latent attention finds; bounded activations.
//!
//! Source: tensor names of GGUF's `kimi-k3`.

use std::cell::RefCell;

use program::{Gate, Norm, Recorder, ValueId, WeightId};

use super::attention::GateWidth;
use super::decoder::{self, Layer};
use super::{Architecture, ffn, kimi, latent};
use crate::config::experts::{self, Silent};
use crate::{Bias, Keys, ModelConfig, Result};

pub(super) static KIMI_K3: Architecture = Architecture {
    name: "kimi-k3",
    config,
    record: |r, w, c| {
        let streams = Streams::default();
        let x = decoder::embed(r, w, c)?;
        let x = decoder::layers(r, w, c, x, |l, x| block(l, &streams, x))?;
        let score = || w.vector("output_res_score", c.hidden_size);
        let x = streams.mixed(r, c, "output_res_score", score, x)?;
        decoder::normed_head(r, w, c, x)
    },
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = kimi::config(keys)?;
    experts::read(keys, &mut c, &Silent::PLAIN)?;
    let bound = |key: &str| keys.require(key, keys.positive(key)?);
    let (gate, up) = (bound("activation.situ_beta")?, bound("activation.situ_linear_beta")?);
    let gate = Gate::Situ { gate, up };
    let latent_size = keys.count("expert_latent_length", 0..=1 << 20)?.filter(|n| *n > 0);
    c.residual_blocks = keys.count("attn_res.block_size", 0..=1 << 20)?.filter(|n| *n > 0);
    for layer in &mut c.layers {
        (layer.rope, layer.gate) = (None, gate);
        if let Some(e) = &mut layer.experts {
            (e.act, e.shared_act, e.latent_size) = (gate, gate, latent_size);
        }
        layer.recurrent.iter_mut().for_each(|its| its.rates_below = true);
    }
    Ok(c)
}

/// What the residual stream was before it was begun anew.
#[derive(Default)]
struct Streams(RefCell<Vec<ValueId>>);

impl Streams {
    /// The sum of all streams, `x` last, by shares that their norms' products with a vector come to.
    fn mixed(
        &self,
        r: &Recorder,
        c: &ModelConfig,
        name: &str,
        score: impl FnOnce() -> Result<WeightId>,
        x: ValueId,
    ) -> Result<ValueId> {
        let kept = self.0.borrow();
        if kept.is_empty() {
            return Ok(x);
        }
        let all: Vec<ValueId> = kept.iter().copied().chain([x]).collect();
        let all = r.concat(&format!("{name}_streams"), &all)?; // [n, streams, hidden_size]
        let norm = Norm { weight: Some(score()?), ..c.plain_norm() };
        let scores = r.sum_groups(&format!("{name}_sums"), r.norm(name, all, norm)?)?;
        let shares = r.softmax(&format!("{name}_shares"), scores)?;
        Ok(r.mix(&format!("{name}_mixed"), shares, all)?)
    }
}

fn block(l: &Layer<'_>, streams: &Streams, x: ValueId) -> Result<ValueId> {
    let mixed = |name: &str, x| {
        let score = || l.w.vector(name, l.model.hidden_size);
        streams.mixed(l.r, l.model, name, score, x)
    };
    let h = l.norm("attn_norm", mixed("attn_res_score", x)?)?;
    let a = match &l.config.recurrent {
        Some(s) => kimi::delta(l, s, h)?,
        None => latent::gated(l, latent::find(l, h)?, h, GateWidth::Elements)?,
    };
    let begins = l.model.residual_blocks.is_some_and(|every| l.index.is_multiple_of(every));
    let x = if begins {
        streams.0.borrow_mut().push(x);
        a
    } else {
        l.add("attn_residual", x, a)?
    };
    let f = feed(l, l.norm("ffn_norm", mixed("ffn_res_score", x)?)?)?;
    l.add("ffn_residual", x, f)
}

fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some((e, latent)) = l.config.experts.as_ref().and_then(|e| Some((e, e.latent_size?)))
    else {
        return ffn::feed(l, h);
    };
    let x = l.linear("ffn_routed_down", h, latent, Bias::Never)?;
    let x = ffn::experts(l, e, x, h)?;
    let x = if l.w.is_there("ffn_routed_norm") { l.norm("ffn_routed_norm", x)? } else { x };
    let f = l.linear("ffn_routed_up", x, l.model.hidden_size, Bias::Never)?;
    ffn::with_shared(l, e, h, f)
}

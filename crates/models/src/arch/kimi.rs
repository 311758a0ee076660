//! Kimi Linear and Ling 3: delta nets whose decay is of each channel, and latent attention in every few layers.
//!
//! Source: arXiv:2510.26692, section 3; tensor names of GGUF's `kimi-linear` and `bailingmoe3`.

use program::{Act, ConvWeights, LinearWeight, RopePairs, ScanKind, ValueId};

use super::attention::GateWidth;
use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ffn, latent};
use crate::config::experts::{self, Silent};
use crate::config::{self, Recurrent, recurrent};
use crate::{Bias, Error, Keys, ModelConfig, Result};

pub(super) static KIMI_LINEAR: Architecture = Architecture {
    name: "kimi-linear",
    config: |keys| {
        let mut c = config(keys)?;
        c.layers.iter_mut().for_each(|layer| layer.rope = None);
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, mix, ffn::feed)),
};

/// A bound on decays, gates of what latent attention finds, bounded activations.
pub(super) static BAILING_MOE3: Architecture = Architecture {
    name: "bailingmoe3",
    config: |keys| {
        let mut c = config(keys)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        experts::clamp(keys, &mut c)?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, mix, ffn::feed)),
};

pub(super) fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = config::latent::with_recurrent(keys, RopePairs::Interleaved)?;
    let head_dim = keys.required("kda.head_dim", 1..=1 << 16)?;
    let mut its = Recurrent::of_heads(c.first_layer().n_heads, head_dim);
    its.conv_width = keys.required("ssm.conv_kernel", 2..=64)?;
    its.least_decay = keys.real("kda.gate_lower_bound")?;
    recurrent::where_bare(&mut c, &its);
    Ok(c)
}

fn mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    match &l.config.recurrent {
        Some(s) => delta(l, s, h),
        None => attend(l, h),
    }
}

/// A delta net, through the output projection.
pub(super) fn delta(l: &Layer<'_>, s: &Recurrent, h: ValueId) -> Result<ValueId> {
    let (n, heads, dim) = (s.inner_size, s.n_heads, s.state_size);
    let channels = |name: &str| {
        let x = l.linear(&format!("attn_{name}"), h, n, Bias::Never)?;
        let taps = l.w.stack(&format!("ssm_conv1d_{name}"), n, 1, s.conv_width)?;
        let weights = ConvWeights { taps, bias: None };
        let x = l.r.causal_conv(&format!("conv_{name}"), x, weights, Some(Act::Silu))?;
        Ok::<_, Error>(l.r.view(&format!("{name}_heads"), x, heads)?)
    };
    let (q, k, v) = (channels("q")?, channels("k")?, channels("v")?);
    let beta = l.linear("ssm_beta", h, heads, Bias::Never)?;
    let beta = l.r.act("beta", Act::Sigmoid, beta)?;
    let kind = ScanKind::Delta { eps: s.key_eps.unwrap_or(l.model.norm_eps) };
    let y = l.r.scan("scan", kind, false, &[q, k, v, decay(l, s, h)?, beta])?;
    let y = l.norm("ssm_norm", l.r.view("scan_heads", y, heads)?)?;
    let z = narrow(l, "ssm_g", h, n, None)?;
    let y = l.r.gated_act("gated", Act::Sigmoid, l.r.view("z_heads", z, heads)?, y)?;
    debug_assert_eq!(l.r.shape(y).dim, dim, "heads as wide as their keys");
    l.linear("attn_output", l.r.view("gated_joined", y, 1)?, l.model.hidden_size, Bias::Never)
}

/// The logarithm of what each channel keeps, `[n, heads, dim]`.
fn decay(l: &Layer<'_>, s: &Recurrent, h: ValueId) -> Result<ValueId> {
    let bias = Some(l.w.bias("ssm_dt", s.inner_size)?);
    let f = l.r.view("f_heads", narrow(l, "ssm_f", h, s.inner_size, bias)?, s.n_heads)?;
    let rates = l.w.numbers("ssm_a", s.n_heads)?;
    match s.least_decay {
        None => Ok(l.r.multiply_groups("decay", l.r.act("times", Act::Softplus, f)?, rates)?),
        Some(least) => {
            let f = l.r.multiply_groups("rates", f, rates)?;
            let f = if s.rates_below { l.r.scale("rates_above", f, -1.0)? } else { f };
            Ok(l.r.scale("decay", l.r.act("shares", Act::Sigmoid, f)?, least)?)
        }
    }
}

/// A matrix `NAME_a` with a second one, `NAME_b`, behind it; `NAME_a` alone; or `NAME`.
fn narrow(
    l: &Layer<'_>,
    name: &str,
    x: ValueId,
    rows: usize,
    bias: Option<program::WeightId>,
) -> Result<ValueId> {
    let (first, second) = (format!("{name}_a"), format!("{name}_b"));
    let cols = l.r.shape(x).cols();
    let rank = l.config.recurrent.as_ref().map_or(0, |s| s.state_size);
    let (name, x, cols) = match (l.w.is_there(&first), l.w.is_there(&second)) {
        (_, true) => (second.as_str(), l.linear(&first, x, rank, Bias::Never)?, rank),
        (true, false) => (first.as_str(), x, cols),
        (false, false) => (name, x, cols),
    };
    let weight = l.w.matrix(name, rows, cols)?;
    Ok(l.r.linear(name, x, LinearWeight { weight, bias })?)
}

/// Latent attention, what each head finds weighed by a gate where the file has one.
fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    match l.w.is_there("attn_gate") {
        true => latent::gated(l, latent::find(l, h)?, h, GateWidth::Heads),
        false => latent::attend(l, h),
    }
}

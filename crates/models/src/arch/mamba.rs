//! Mamba and Mamba-2, alone and with attention: Falcon Mamba, Jamba, Granite 4, Nemotron-H, Falcon-H1, PLaMo 2.
//!
//! Source: arXiv:2312.00752, section 3; arXiv:2405.21060, section 7; tensor names of GGUF's `mamba`, `mamba2`, `jamba`,
//! `granitehybrid`, `nemotron_h`, `falcon-h1` and `plamo2`.

use program::{Act, ConvWeights, Gate, Gating, LinearWeight, RopePairs, ScanKind, ValueId};

use super::attention::{HeadNorm, Heads};
use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ffn, granite};
use crate::config::experts::{self, Silent, Width};
use crate::config::{Recurrent, read, recurrent};
use crate::{Bias, Keys, LayerConfig, ModelConfig, Result};

pub(super) static MAMBA: Architecture = Architecture {
    name: "mamba",
    config: |keys| {
        let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
        recurrent::everywhere(&mut c, &Recurrent::selective(keys)?);
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| half(l, x, mix)),
};

pub(super) static MAMBA2: Architecture = Architecture {
    name: "mamba2",
    config: |keys| {
        let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
        recurrent::everywhere(&mut c, &Recurrent::read(keys)?);
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| half(l, x, mix2)),
};

/// Mamba in most layers, attention without rotation in others, experts in every second one.
pub(super) static JAMBA: Architecture = Architecture {
    name: "jamba",
    config: |keys| {
        let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
        c.layers.iter_mut().for_each(|layer| layer.rope = None);
        let silent = Silent { width: Width::OfDense, ..Silent::PLAIN };
        experts::read_if_any(keys, &mut c, &silent)?;
        recurrent::where_bare(&mut c, &Recurrent::selective(keys)?);
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, or_attend(mix), ffn::feed)),
};

pub(super) static GRANITE_HYBRID: Architecture = Architecture {
    name: "granitehybrid",
    config: |keys| {
        let mut c = granite::scaled(keys, read::with_recurrent(keys, RopePairs::Interleaved)?)?;
        let silent = Silent { width: Width::OfDense, ..Silent::NORMALIZED };
        experts::read_if_any(keys, &mut c, &silent)?;
        recurrent::where_bare(&mut c, &Recurrent::read(keys)?);
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, or_attend(mix2), ffn::feed)),
};

/// Each layer is one of three: Mamba-2, attention without rotation, or a feed-forward layer without a gate.
pub(super) static NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    config: |keys| {
        experts::none(keys)?;
        nemotron(keys)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| match l.config {
            c if c.intermediate_size > 0 => half(l, x, |l, h| ffn::ungated(l, Act::Relu2, h)),
            _ => half(l, x, or_attend(mix2)),
        })
    },
};

/// Experts without gates beside a shared one, in place of each feed-forward layer.
pub(super) static NEMOTRON_H_MOE: Architecture = Architecture {
    name: "nemotron_h_moe",
    config: |keys| {
        let mut c = nemotron(keys)?;
        let silent = Silent { gating: Gating::Sigmoid, ..Silent::NORMALIZED };
        experts::read(keys, &mut c, &silent)?;
        for layer in &mut c.layers {
            let is_fed = layer.intermediate_size > 0;
            layer.experts = layer.experts.take().filter(|_| is_fed);
            if let Some(e) = &mut layer.experts {
                (e.act, e.shared_act) = (Gate::Alone(Act::Relu2), Gate::Alone(Act::Relu2));
            }
        }
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| match l.config {
            LayerConfig { experts: Some(_), .. } => half(l, x, ffn::feed),
            c if c.intermediate_size > 0 => half(l, x, |l, h| ffn::ungated(l, Act::Relu2, h)),
            _ => half(l, x, or_attend(mix2)),
        })
    },
};

/// Attention and Mamba-2 side by side.
pub(super) static FALCON_H1: Architecture = Architecture {
    name: "falcon-h1",
    config: |keys| {
        experts::none(keys)?;
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        recurrent::everywhere(&mut c, &Recurrent::read(keys)?);
        Ok(c)
    },
    record: |r, w, c| {
        let both = |l: &Layer<'_>, h| {
            let (a, s) = (Heads::PLAIN.record(l, h)?, mix2(l, h)?);
            l.add("mixed", a, s)
        };
        decoder(r, w, c, |l, x| l.block(Norms::PRE, x, both, ffn::feed))
    },
};

/// Mamba-2 with one time for each head and norms on what it makes of its input, or attention; norms on both sides of each half.
pub(super) static PLAMO2: Architecture = Architecture {
    name: "plamo2",
    config: |keys| {
        experts::none(keys)?;
        let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
        let mut its = Recurrent::read(keys)?;
        let bare = c.layers.iter().position(|layer| layer.n_kv_heads == 0);
        let name = format!("blk.{}.ssm_dt.weight", bare.unwrap_or(0));
        let dims = keys.dims(&name).unwrap_or_default();
        its.ranks[0] = dims.first().and_then(|n| usize::try_from(*n).ok()).unwrap_or(0);
        recurrent::where_bare(&mut c, &its);
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { joint: true, norm: HeadNorm::Own, ..Heads::PLAIN };
        let mix = move |l: &Layer<'_>, h| match l.config.recurrent {
            Some(_) => mix_of_heads(l, h),
            None => heads.record(l, h),
        };
        let feed = |l: &Layer<'_>, h| ffn::Gated { joint: true, ..ffn::Gated::of(l) }.record(l, h);
        decoder(r, w, c, |l, x| l.block(Norms::SANDWICH, x, mix, feed))
    },
};

pub(super) fn nemotron(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
    c.layers.iter_mut().for_each(|layer| layer.rope = None);
    let its = Recurrent::read(keys)?;
    for layer in &mut c.layers {
        let recurs = layer.n_kv_heads == 0 && layer.intermediate_size == 0;
        layer.recurrent = recurs.then(|| its.clone());
    }
    Ok(c)
}

/// `x` plus what `of` makes of its norm: a layer that is half of others.
pub(super) fn half(
    l: &Layer<'_>,
    x: ValueId,
    of: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let y = of(l, l.norm("attn_norm", x)?)?;
    l.residual("residual", x, y)
}

/// `mix` in layers that recur, attention in the others.
pub(super) fn or_attend(
    mix: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> impl Fn(&Layer<'_>, ValueId) -> Result<ValueId> {
    move |l, h| match l.config.recurrent {
        Some(_) => mix(l, h),
        None => Heads::PLAIN.record(l, h),
    }
}

fn settings<'a>(l: &Layer<'a>) -> Result<&'a Recurrent> {
    l.config.recurrent.as_ref().ok_or_else(|| crate::Error::incomplete(l.model))
}

fn conv(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let (n, width) = (l.r.shape(x).cols(), settings(l)?.conv_width);
    let weights = ConvWeights {
        taps: l.w.matrix("ssm_conv1d", n, width)?,
        bias: l.w.optional_tensor("ssm_conv1d.bias", n)?,
    };
    Ok(l.r.causal_conv("conv", x, weights, Some(Act::Silu))?)
}

/// A norm where the file has its vector, or where all are without.
fn normed(l: &Layer<'_>, name: &str, x: ValueId) -> Result<ValueId> {
    if settings(l)?.plain_norms {
        return Ok(l.r.norm(name, x, l.model.plain_norm())?);
    }
    match l.w.optional_vector(name, l.r.shape(x).dim)? {
        Some(_) => l.norm(name, x),
        None => Ok(x),
    }
}

/// Times of positive length from a narrow layer.
fn times(l: &Layer<'_>, x: ValueId, n: usize) -> Result<ValueId> {
    let weight = l.w.matrix("ssm_dt", n, l.r.shape(x).cols())?;
    let bias = Some(l.w.bias("ssm_dt", n)?);
    let dt = l.r.linear("ssm_dt", x, LinearWeight { weight, bias })?;
    Ok(l.r.act("dt", Act::Softplus, dt)?)
}

/// Mamba: every channel on its own.
fn mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let s = settings(l)?;
    let (n, state, rank) = (s.inner_size, s.state_size, s.ranks[0]);
    let [x, z] = l.joint("ssm_in", h, ["x", "z"], [n; 2], Bias::IfPresent)?;
    let x = conv(l, x)?;
    let made = l.linear("ssm_x", x, rank + 2 * state, Bias::Never)?;
    let part = |name: &str, start, len| normed(l, name, l.r.slice(name, made, start, len)?);
    let dt = part("ssm_dt_norm", 0, rank)?;
    let (b, c) = (part("ssm_b_norm", rank, state)?, part("ssm_c_norm", rank + state, state)?);
    let kind =
        ScanKind::Selective { a: l.w.table("ssm_a", n, state)?, d: l.w.numbers("ssm_d", n)? };
    let y = l.r.scan("scan", kind, false, &[c, b, x, times(l, dt, n)?])?;
    let y = l.r.gated_act("gated", Act::Silu, z, y)?;
    l.linear("ssm_out", y, l.model.hidden_size, Bias::IfPresent)
}

/// Mamba-2: heads.
pub(super) fn mix2(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let s = settings(l)?;
    let (n, heads, groups) = (s.inner_size, s.n_heads, s.n_key_heads);
    let keys = groups * s.state_size;
    let rows = [n, n + 2 * keys, heads];
    let [z, xbc, mut dt] = l.w.joint("ssm_in", rows, l.r.shape(h).cols(), Bias::Never)?;
    dt.bias = Some(l.w.bias("ssm_dt", heads)?);
    let (z, dt) = (l.r.linear("z", h, z)?, l.r.linear("dt_in", h, dt)?);
    let xbc = conv(l, l.r.linear("xbc", h, xbc)?)?;
    let dt = l.r.act("dt", Act::Softplus, dt)?;
    let part = |name: &str, start, len, groups| {
        l.r.view(&format!("{name}_heads"), l.r.slice(name, xbc, start, len)?, groups)
    };
    let x = part("x", 0, n, heads)?;
    let (b, c) = (part("b", n, keys, groups)?, part("c", n + keys, keys, groups)?);
    let kind = ScanKind::Ssd { a: l.w.numbers("ssm_a", heads)?, d: l.w.numbers("ssm_d", heads)? };
    let y = l.r.scan("scan", kind, false, &[c, b, x, dt])?;
    let y = l.r.gated_act("gated", Act::Silu, z, y)?;
    let y = match l.w.has("ssm_norm", groups, n / groups)? {
        true => {
            l.r.view("normed", l.norm_groups("ssm_norm", l.r.view("groups", y, groups)?)?, 1)?
        }
        false => y,
    };
    l.linear("ssm_out", y, l.model.hidden_size, Bias::IfPresent)
}

/// The same as PLaMo 2 has it: a gate and an input for each head, from which the rest is made.
fn mix_of_heads(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let s = settings(l)?;
    let (n, heads, state, dim) = (s.inner_size, s.n_heads, s.state_size, s.head_dim());
    let both = l.linear("ssm_in", h, 2 * n, Bias::Never)?;
    let both = l.r.view("ssm_in_heads", both, heads)?;
    let (z, x) = (l.r.slice("z", both, 0, dim)?, l.r.slice("x", both, dim, dim)?);
    let x = conv(l, l.r.view("x_joined", x, 1)?)?;
    let made = l.linear("ssm_x", x, s.ranks[0] + 2 * state, Bias::Never)?;
    let part = |name: &str, start, len| normed(l, name, l.r.slice(name, made, start, len)?);
    let (b, c) = (part("ssm_b_norm", 0, state)?, part("ssm_c_norm", state, state)?);
    let dt = times(l, part("ssm_dt_norm", 2 * state, s.ranks[0])?, heads)?;
    let kind = ScanKind::Ssd { a: l.w.numbers("ssm_a", heads)?, d: l.w.numbers("ssm_d", heads)? };
    let x = l.r.view("x_heads", x, heads)?;
    let y = l.r.scan("scan", kind, false, &[c, b, x, dt])?;
    let y = l.r.gated_act("gated", Act::Silu, z, l.r.view("scan_heads", y, heads)?)?;
    l.linear("ssm_out", l.r.view("gated_joined", y, 1)?, l.model.hidden_size, Bias::IfPresent)
}

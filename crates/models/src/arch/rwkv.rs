//! RWKV 6 and 7, and models of Qwen2's shape whose attention became theirs.
//!
//! Source: arXiv:2404.05892, section 4; arXiv:2503.14456, section 4; tensor names of GGUF's `rwkv6`, `rwkv7`,
//! `rwkv6qwen2` and `arwkv7`.

use std::cell::Cell;

use program::{Act, LinearWeight, Norm, NormKind, Recorder, RopePairs, ScanKind, ValueId};

use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ProgramOutputs, ffn};
use crate::config::experts;
use crate::config::{Recurrent, read, recurrent};
use crate::{Bias, Error, Keys, ModelConfig, Result, Weights};

/// Under the root of the norm of what heads read.
const HEAD_EPS: f32 = 64e-5;
/// Under the root of a key's length.
const KEY_EPS: f32 = 1e-12;
/// The least logarithm of a decay of RWKV 7: `-exp(-0.5)`.
const LEAST_DECAY: f32 = -0.606_531;

pub(super) static RWKV6: Architecture = Architecture {
    name: "rwkv6",
    config: |keys| {
        let mut c = config(keys)?;
        read::set_layer_norm(keys, &mut c)?;
        c.norm_embedding = true;
        let every = keys.count("rescale_every_n_layers", 0..=1 << 16)?.unwrap_or(0);
        c.rescale_every = Some(every).filter(|every| *every > 0);
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| {
            let x = l.residual("time_residual", x, time_mix6(l, l.norm("attn_norm", x)?)?)?;
            let y = channel_mix(l, l.norm("attn_norm_2", x)?)?;
            let x = l.residual("channel_residual", x, y)?;
            // weights behind it are as much larger
            match l.model.rescale_every {
                Some(every) if (l.index + 1).is_multiple_of(every) => {
                    Ok(l.r.scale("halved", x, 0.5)?)
                }
                _ => Ok(x),
            }
        })
    },
};

pub(super) static RWKV6_QWEN2: Architecture = Architecture {
    name: "rwkv6qwen2",
    config,
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, time_mix6, ffn::feed)),
};

pub(super) static RWKV7: Architecture = Architecture {
    name: "rwkv7",
    config: |keys| {
        let mut c = config(keys)?;
        read::set_layer_norm(keys, &mut c)?;
        c.norm_embedding = true;
        Ok(c)
    },
    record: |r, w, c| {
        let first = Cell::new(None);
        decoder(r, w, c, |l, x| {
            let y = time_mix7(l, l.norm("attn_norm", x)?, &first)?;
            let x = l.residual("time_residual", x, y)?;
            let y = channel_mix(l, l.norm("attn_norm_2", x)?)?;
            l.residual("channel_residual", x, y)
        })
    },
};

pub(super) static ARWKV7: Architecture =
    Architecture { name: "arwkv7", config, record: record_arwkv7 };

fn record_arwkv7(r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ProgramOutputs> {
    let first = Cell::new(None);
    decoder(r, w, c, |l, x| l.block(Norms::PRE, x, |l, h| time_mix7(l, h, &first), ffn::feed))
}

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    experts::none(keys)?;
    let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
    let head_dim = keys.required("wkv.head_size", 1..=1 << 16)?;
    if !c.hidden_size.is_multiple_of(head_dim) {
        let expected = format!("a divisor of embedding_length {}", c.hidden_size);
        return Err(Error::key(&keys.name("wkv.head_size"), expected, head_dim));
    }
    let rank = |key: &str| Ok::<_, Error>(keys.count(key, 0..=1 << 20)?.unwrap_or(0));
    let mut its = Recurrent::of_heads(c.hidden_size / head_dim, head_dim);
    its.ranks = match keys.get("time_mix_extra_dim") {
        Some(_) => [rank("time_decay_extra_dim")?, rank("time_mix_extra_dim")?, 0, 0],
        None => [
            rank("attention.decay_lora_rank")?,
            rank("attention.iclr_lora_rank")?,
            rank("attention.value_residual_mix_lora_rank")?,
            rank("attention.gate_lora_rank")?,
        ],
    };
    recurrent::everywhere(&mut c, &its);
    Ok(c)
}

fn settings<'a>(l: &Layer<'a>) -> Result<&'a Recurrent> {
    l.config.recurrent.as_ref().ok_or_else(|| Error::incomplete(l.model))
}

/// The row before, less the row.
fn change(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let before = l.r.row_before("before", h)?;
    l.add("change", before, l.r.scale("negative", h, -1.0)?)
}

/// `h` and a share of its change, as a vector says.
fn lerp(l: &Layer<'_>, name: &str, h: ValueId, change: ValueId) -> Result<ValueId> {
    let share = l.w.vector(name, l.model.hidden_size)?;
    let part = l.r.multiply(&format!("{name}_share"), change, share)?;
    l.add(&format!("{name}_mixed"), h, part)
}

/// `second . act(first . x) + bias`.
fn narrow(
    l: &Layer<'_>,
    [first, second]: [&str; 2],
    bias: Option<&str>,
    x: ValueId,
    rank: usize,
    act: Option<Act>,
) -> Result<ValueId> {
    let n = l.model.hidden_size;
    let mut y = l.linear(first, x, rank, Bias::Never)?;
    if let Some(act) = act {
        y = l.r.act(&format!("{first}_act"), act, y)?;
    }
    let bias = bias.map(|name| l.w.vector(name, n)).transpose()?;
    let weight = l.w.matrix(second, n, rank)?;
    Ok(l.r.linear(second, y, LinearWeight { weight, bias })?)
}

fn product(l: &Layer<'_>, name: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
    Ok(l.r.gated_act(name, Act::Identity, a, b)?)
}

/// What heads read, normed head by head where the file has a norm for that.
fn head_norm(l: &Layer<'_>, y: ValueId, heads: usize) -> Result<ValueId> {
    let n = l.r.shape(y).cols();
    if !l.w.is_there("time_mix_ln") {
        return Ok(y);
    }
    let norm = Norm {
        kind: NormKind::Layer,
        weight: Some(l.w.vector("time_mix_ln", n)?),
        bias: Some(l.w.bias("time_mix_ln", n)?),
        eps: HEAD_EPS,
    };
    Ok(l.r.view("normed", l.r.norm("time_mix_ln", l.r.view("heads", y, heads)?, norm)?, 1)?)
}

fn time_mix6(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let s = settings(l)?;
    let (n, heads, [decay_rank, rank, ..]) = (s.inner_size, s.n_heads, s.ranks);
    let by_attention = !l.w.is_there("time_mix_first");
    let change = change(l, h)?;
    let all = lerp(l, "time_mix_lerp_x", h, change)?;
    let all = l.linear("time_mix_w1", all, 5 * rank, Bias::Never)?;
    let all = l.r.act("time_mix_all", Act::Tanh, all)?;
    let shares = l.w.each("time_mix_w2", 5, n, rank)?;
    let fused = l.w.is_there("time_mix_lerp_fused");
    // each is mixed by a share of its own, which depends on the row
    let mixed = |i: usize, name: &str| {
        let x = l.r.slice(&format!("time_mix_part_{name}"), all, i * rank, rank)?;
        let bias = Some(match fused {
            true => l.w.part("time_mix_lerp_fused", i, 5, n)?,
            false => l.w.vector(&format!("time_mix_lerp_{name}"), n)?,
        });
        let share = LinearWeight { weight: shares[i], bias };
        let share = l.r.linear(&format!("time_mix_share_{name}"), x, share)?;
        let part = product(l, &format!("time_mix_by_{name}"), share, change)?;
        l.add(&format!("time_mix_{name}"), h, part)
    };
    let [xw, xk, xv, xr, xg] =
        [mixed(0, "w")?, mixed(1, "k")?, mixed(2, "v")?, mixed(3, "r")?, mixed(4, "g")?];
    let r = l.linear("time_mix_receptance", xr, n, Bias::IfPresent)?;
    let k = l.linear("time_mix_key", xk, n, Bias::IfPresent)?;
    let v = l.linear("time_mix_value", xv, n, Bias::IfPresent)?;
    let gate = l.linear("time_mix_gate", xg, n, Bias::IfPresent)?;
    let names = ["time_mix_decay_w1", "time_mix_decay_w2"];
    let g = narrow(l, names, Some("time_mix_decay"), xw, decay_rank, Some(Act::Tanh))?;
    let g = l.r.scale("decay", l.r.act("decay_exp", Act::Exp, g)?, -1.0)?;
    let k = match by_attention {
        false => k,
        true => {
            // a key adds what the decay makes room for
            let kept = product(l, "key_kept", l.r.act("kept", Act::Exp, g)?, k)?;
            l.add("key_added", k, l.r.scale("key_less", kept, -1.0)?)?
        }
    };
    let view = |name: &str, x| l.r.view(name, x, heads);
    let inputs = [view("r", r)?, view("k", k)?, view("v", v)?, view("g", g)?];
    let kind = match by_attention {
        true => ScanKind::Linear { scale: (s.state_size as f32).powf(-0.5) },
        false => ScanKind::Wkv6 { first: l.w.matrix("time_mix_first", heads, s.state_size)? },
    };
    let y = head_norm(l, l.r.scan("scan", kind, false, &inputs)?, heads)?;
    let act = if by_attention { Act::Sigmoid } else { Act::Silu };
    let y = l.r.gated_act("gated", act, gate, y)?;
    l.linear("time_mix_output", y, l.model.hidden_size, Bias::Never)
}

fn time_mix7(l: &Layer<'_>, h: ValueId, first_value: &Cell<Option<ValueId>>) -> Result<ValueId> {
    let s = settings(l)?;
    let (n, heads, dim) = (s.inner_size, s.n_heads, s.state_size);
    let [decay_rank, rate_rank, value_rank, gate_rank] = s.ranks;
    let has_gate = l.w.is_there("time_mix_g1");
    let change = change(l, h)?;
    let mixed = |i: usize, name: &str| {
        let share = l.w.part("time_mix_lerp_fused", i, if has_gate { 6 } else { 5 }, n)?;
        let part = l.r.multiply(&format!("time_mix_by_{name}"), change, share)?;
        l.add(&format!("time_mix_{name}"), h, part)
    };
    let [xr, xw, xk, xv, xa] =
        [mixed(0, "r")?, mixed(1, "w")?, mixed(2, "k")?, mixed(3, "v")?, mixed(4, "a")?];
    let r = l.linear("time_mix_receptance", xr, n, Bias::IfPresent)?;
    let w = ["time_mix_w1", "time_mix_w2"];
    let g = narrow(l, w, Some("time_mix_w0"), xw, decay_rank, Some(Act::Tanh))?;
    let g = l.r.scale("decay", l.r.act("decay_share", Act::Sigmoid, g)?, LEAST_DECAY)?;
    let k = l.linear("time_mix_key", xk, n, Bias::IfPresent)?;
    let v = l.linear("time_mix_value", xv, n, Bias::IfPresent)?;
    let v = match first_value.get() {
        None => {
            first_value.set(Some(v));
            v
        }
        Some(first) => {
            let to = ["time_mix_v1", "time_mix_v2"];
            let share = narrow(l, to, Some("time_mix_v0"), xv, value_rank, None)?;
            let way = l.add("value_way", first, l.r.scale("value_less", v, -1.0)?)?;
            let part = l.r.gated_act("value_part", Act::Sigmoid, share, way)?;
            l.add("value_mixed", v, part)?
        }
    };
    let a = ["time_mix_a1", "time_mix_a2"];
    let a = narrow(l, a, Some("time_mix_a0"), xa, rate_rank, None)?;
    let a = l.r.act("rate", Act::Sigmoid, a)?;
    // keys of length 1, by which heads erase
    let erased = l.r.multiply("key_erased", k, l.w.vector("time_mix_k_k", n)?)?;
    let unit = Norm { kind: NormKind::Rms, weight: None, bias: None, eps: KEY_EPS / dim as f32 };
    let erased = l.r.norm("key_normed", l.r.view("key_heads", erased, heads)?, unit)?;
    let erased = l.r.scale("key_unit", erased, (dim as f32).powf(-0.5))?;
    let erased = l.r.view("key_joined", erased, 1)?;
    // keys as far as the rate says
    let ka = l.r.multiply("key_rated", k, l.w.vector("time_mix_k_a", n)?)?;
    let less =
        l.add("key_way", product(l, "key_part", a, ka)?, l.r.scale("key_less", ka, -1.0)?)?;
    let k = l.add("key_added", k, less)?;
    let view = |name: &str, x| l.r.view(name, x, heads);
    let (erase, back) = (l.r.scale("erase", erased, -1.0)?, product(l, "back", a, erased)?);
    let inputs = [
        view("r_heads", r)?,
        view("k_heads", k)?,
        view("v_heads", v)?,
        view("g_heads", g)?,
        view("erase_heads", erase)?,
        view("back_heads", back)?,
    ];
    let y = head_norm(l, l.r.scan("scan", ScanKind::Wkv7, false, &inputs)?, heads)?;
    // what a row reads of itself
    let rk = l.r.multiply("r_weighed", r, l.w.vector("time_mix_r_k", n)?)?;
    let own = l.r.sum_groups("own", view("rk_heads", product(l, "rk", rk, k)?)?)?;
    let own = l.r.gated_act("own_value", Act::Identity, own, view("own_heads", v)?)?;
    let mut y = l.add("seen", y, l.r.view("own_joined", own, 1)?)?;
    if has_gate {
        let xg = mixed(5, "g")?;
        let to = ["time_mix_g1", "time_mix_g2"];
        let gate = narrow(l, to, None, xg, gate_rank, Some(Act::Sigmoid))?;
        y = product(l, "gated", gate, y)?;
    }
    l.linear("time_mix_output", y, l.model.hidden_size, Bias::Never)
}

/// A feed-forward layer of a row and the one before; RWKV 6 has a gate before its result.
fn channel_mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let n = l.model.hidden_size;
    let change = change(l, h)?;
    let k = lerp(l, "channel_mix_lerp_k", h, change)?;
    let k = l.linear("channel_mix_key", k, l.config.intermediate_size, Bias::Never)?;
    let k = l.r.act("channel_mix_act", Act::Relu2, k)?;
    if !l.w.is_there("channel_mix_receptance") {
        return l.linear("channel_mix_value", k, n, Bias::Never);
    }
    let r = lerp(l, "channel_mix_lerp_r", h, change)?;
    let r = l.linear("channel_mix_receptance", r, n, Bias::Never)?;
    let v = l.linear("channel_mix_value", k, n, Bias::Never)?;
    Ok(l.r.gated_act("channel_mix_gated", Act::Sigmoid, r, v)?)
}

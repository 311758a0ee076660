//! Qwen3.5 and Qwen3-Next: of four layers three are gated delta nets, the fourth has attention whose result a gate of the
//! input weighs.
//!
//! Source: arXiv:2412.06464, section 3; arXiv:2505.06708, section 3; tensor names of GGUF's `qwen35`, `qwen35moe` and
//! `qwen3next`.

use program::{Act, ConvWeights, LinearWeight, Lookup, RopePairs, ScanKind, Selection, ValueId};

use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, attention, ffn, qwen2moe};
use crate::config::experts::{self, Silent};
use crate::config::{Recurrent, read, recurrent};
use crate::{Bias, Error, Keys, LayerConfig, ModelConfig, Result};

pub(super) static QWEN35: Architecture = Architecture {
    name: "qwen35",
    config: |keys| {
        experts::none(keys)?;
        config(keys)
    },
    record: |r, w, c| decoder(r, w, c, block),
};

pub(super) fn block(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    l.block(Norms::PRE_AND_BETWEEN, x, mix, ffn::feed)
}

/// Experts beside a shared one.
pub(super) static QWEN35_MOE: Architecture = Architecture {
    name: "qwen35moe",
    config: |keys| {
        let mut c = config(keys)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, block_of_experts),
};

pub(super) fn block_of_experts(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    l.block(Norms::PRE_AND_BETWEEN, x, mix, qwen2moe::feed)
}

/// Heads that share a key are neighbours, and their rates and times come of one matrix.
pub(super) static QWEN3_NEXT: Architecture = Architecture {
    name: "qwen3next",
    record: |r, w, c| {
        decoder(r, w, c, |l, x| l.block(Norms::PRE_AND_BETWEEN, x, mix_neighbours, qwen2moe::feed))
    },
    ..QWEN35_MOE
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
    recurrent::where_named(keys, &mut c, &Recurrent::read(keys)?)?;
    Ok(c)
}

/// A delta net, or attention in layers that do not recur.
pub(super) fn mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some(s) = &l.config.recurrent else { return attend(l, h) };
    let rates = l.linear("ssm_beta", h, s.n_heads, Bias::Never)?;
    let weight = l.w.matrix("ssm_alpha", s.n_heads, l.r.shape(h).cols())?;
    let bias = Some(l.w.bias("ssm_dt", s.n_heads)?);
    let times = l.r.linear("ssm_alpha", h, LinearWeight { weight, bias })?;
    delta(l, s, h, rates, times, true)
}

fn mix_neighbours(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some(s) = &l.config.recurrent else { return attend(l, h) };
    let shared = s.n_heads / s.n_key_heads;
    let both = l.linear("ssm_ba", h, 2 * s.n_heads, Bias::Never)?;
    let both = l.r.view("ssm_ba_heads", both, s.n_key_heads)?;
    let half = |name: &str, start| {
        l.r.view(&format!("{name}_joined"), l.r.slice(name, both, start, shared)?, 1)
    };
    let (rates, times) = (half("ssm_beta", 0)?, half("ssm_alpha", shared)?);
    let bias = l.r.lookup("ssm_dt", l.w.bias("ssm_dt", s.n_heads)?, Lookup::Only)?;
    let times = l.add("ssm_times", times, bias)?;
    delta(l, s, h, rates, times, false)
}

/// A delta net, given before their activations how much of each head is replaced, and how fast it decays.
fn delta(
    l: &Layer<'_>,
    s: &Recurrent,
    h: ValueId,
    rates: ValueId,
    times: ValueId,
    by_turns: bool,
) -> Result<ValueId> {
    let (n_heads, keys) = (s.n_heads, s.n_key_heads * s.state_size);
    let channels = 2 * keys + s.inner_size;
    let qkv = l.linear("attn_qkv", h, channels, Bias::Never)?;
    let z = l.linear("attn_gate", h, s.inner_size, Bias::Never)?;
    let taps = l.w.matrix("ssm_conv1d", channels, s.conv_width)?;
    let qkv = l.r.causal_conv("conv", qkv, ConvWeights { taps, bias: None }, Some(Act::Silu))?;
    let part = |name: &str, start, len, groups| {
        l.r.view(&format!("{name}_heads"), l.r.slice(name, qkv, start, len)?, groups)
    };
    let (q, k) = (part("q", 0, keys, s.n_key_heads)?, part("k", keys, keys, s.n_key_heads)?);
    let v = part("v", 2 * keys, s.inner_size, n_heads)?;
    let beta = l.r.act("beta", Act::Sigmoid, rates)?;
    let times = l.r.act("times", Act::Softplus, times)?;
    let g = l.r.multiply("decay", times, l.w.vector("ssm_a", n_heads)?)?;
    let kind = ScanKind::Delta { eps: l.model.norm_eps };
    let y = l.r.scan("scan", kind, by_turns, &[q, k, v, g, beta])?;
    let y = l.norm("ssm_norm", l.r.view("scan_heads", y, n_heads)?)?;
    let y = l.r.gated_act("gated", s.gate, l.r.view("z_heads", z, n_heads)?, y)?;
    l.linear("ssm_out", l.r.view("gated_joined", y, 1)?, l.model.hidden_size, Bias::Never)
}

/// Attention whose queries come with a gate for each element of what they find.
fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    attend_to(l, h, None)
}

/// The same of what an indexer chose, if one did.
pub(super) fn attend_to(
    l: &Layer<'_>,
    h: ValueId,
    chosen: Option<(Selection, ValueId)>,
) -> Result<ValueId> {
    let LayerConfig { n_heads, n_kv_heads, head_dim, value_dim, .. } = *l.config;
    if value_dim != head_dim {
        let expected = format!("the key length {head_dim}");
        return Err(Error::key("attention.value_length", expected, value_dim));
    }
    let both = l.linear("attn_q", h, 2 * n_heads * head_dim, Bias::IfPresent)?;
    let both = l.r.view("q_and_gate", both, n_heads)?;
    let q = l.norm("attn_q_norm", l.r.slice("q", both, 0, head_dim)?)?;
    let gate = l.r.slice("gate", both, head_dim, head_dim)?;
    let k = l.linear("attn_k", h, n_kv_heads * head_dim, Bias::IfPresent)?;
    let k = l.norm("attn_k_norm", l.r.view("k", k, n_kv_heads)?)?;
    let v = l.linear("attn_v", h, n_kv_heads * head_dim, Bias::IfPresent)?;
    let v = l.r.view("v", v, n_kv_heads)?;
    let (factors, score) = (attention::factors(l)?, l.config.score.clone());
    let a = attention::attend(l, &[q, k, v], factors, score, None, chosen)?;
    let a = l.r.gated_act("attn_gated", Act::Sigmoid, gate, l.r.view("attn_heads", a, n_heads)?)?;
    let a = l.r.view("attn_joined", a, 1)?;
    l.linear("attn_output", a, l.model.hidden_size, Bias::IfPresent)
}

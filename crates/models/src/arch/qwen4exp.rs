//! Qwen3.8 Flash Next: Qwen3.5's layers on several residual streams, which narrow gates mix element by element; attention to
//! positions that an indexer chooses; rows that hashes of the last few tokens choose.
//!
//! Source: tensor names of GGUF's `qwen4exp`.

use program::{Act, ConvWeights, IndexScore, Norm, Recorder, Rope, RopePairs, Selection, ValueId};

use super::decoder::{self, Layer};
use super::indexer::recorded;
use super::{Architecture, attention, head, hyper, qwen2moe, qwen35};
use crate::config::experts::{self, Silent};
use crate::config::{read, recurrent};
use crate::{
    Bias, Error, HyperConnections, IndexerConfig, Keys, ModelConfig, NgramConfig, Recurrent,
    Result, Weights,
};

pub(super) static QWEN4_EXP: Architecture = Architecture {
    name: "qwen4exp",
    config,
    record: |r, w, c| {
        let x = decoder::embed(r, w, c)?;
        let rows = c.ngrams.as_ref().map(|its| rows(r, w, its)).transpose()?;
        let x = hyper::open(r, c, x)?;
        let x = decoder::layers(r, w, c, x, |l, x| block(l, rows, x))?;
        let x = Mixed::of(r, w, c, "output_hc", x)?.read;
        head::record(r, w, c, x, None)
    },
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
    let its = Recurrent { gate: Act::Sigmoid, ..Recurrent::read(keys)? };
    recurrent::where_named(keys, &mut c, &its)?;
    experts::read(keys, &mut c, &Silent::NORMALIZED)?;
    c.hyper = Some(HyperConnections::gated(keys)?);
    c.ngrams = NgramConfig::read(keys, &c)?;
    let pools = keys.per_layer("attention.compress_ratios", 0..=128)?;
    let pools = pools.unwrap_or_else(|| vec![0; c.layers.len()]);
    for (layer, pool) in c.layers.iter_mut().zip(pools) {
        if layer.recurrent.is_none() && pool > 0 {
            layer.indexer = Some(IndexerConfig::of_means(keys, pool, c.norm_eps)?);
        }
    }
    Ok(c)
}

/// The table's rows for each token, one after the other.
fn rows(r: &Recorder, w: &Weights<'_>, its: &NgramConfig) -> Result<ValueId> {
    let mut ids = vec![r.ids("ids")?];
    for i in 1..its.grams.multipliers.len() {
        ids.push(r.row_before("ids_before", ids[i - 1])?);
    }
    let table = w.matrix("per_layer_token_embd", its.n_rows, its.width)?;
    let rows = r.grams("ngrams", r.concat("ids_all", &ids)?, table, its.grams.clone())?;
    Ok(r.view("ngrams_joined", rows, 1)?)
}

fn block(l: &Layer<'_>, rows: Option<ValueId>, x: ValueId) -> Result<ValueId> {
    let x = match (&l.model.ngrams, rows) {
        (Some(its), Some(rows)) if its.layer == l.index => remember(l, its, rows, x)?,
        _ => x,
    };
    let x = half(l, "hc_attn", x, |h| match &l.config.recurrent {
        Some(_) => qwen35::mix(l, h),
        None => qwen35::attend_to(l, h, choose(l, h)?),
    })?;
    half(l, "hc_ffn", x, |h| qwen2moe::feed(l, h))
}

/// The streams plus what a half makes of their mix, times a share for each.
fn half(
    l: &Layer<'_>,
    name: &str,
    x: ValueId,
    of: impl FnOnce(ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let Mixed { read, normed, n } = Mixed::of(l.r, &l.w, l.model, name, x)?;
    let shares = l.linear(&format!("{name}_inject"), normed, n, Bias::Never)?;
    let shares = l.r.scale(&format!("{name}_shares"), shares, 1.0 / n as f32)?;
    let shares = l.r.act(&format!("{name}_sigmoid"), Act::Sigmoid, shares)?;
    let shares = l.r.scale(&format!("{name}_doubled"), shares, 2.0)?;
    let made = l.r.mix(&format!("{name}_made"), shares, of(read)?)?;
    l.add(&format!("{name}_streams"), x, made)
}

/// What a half reads of the streams.
struct Mixed {
    /// Their mean, each element by a gate of its own: `[n, hidden_size]`.
    read: ValueId,
    /// All of them, each behind its norm: `[n, n_streams * hidden_size]`.
    normed: ValueId,
    /// Streams.
    n: usize,
}

impl Mixed {
    fn of(r: &Recorder, w: &Weights<'_>, c: &ModelConfig, name: &str, x: ValueId) -> Result<Mixed> {
        let rank = c.hyper.as_ref().and_then(|its| its.rank).ok_or_else(|| Error::incomplete(c))?;
        let n = r.shape(x).groups;
        let name = |what: &str| format!("{name}_{what}");
        let linear = |what: &str, x, rows| {
            let weight = w.linear(&name(what), rows, r.shape(x).cols(), Bias::Never)?;
            Ok::<_, Error>(r.linear(&name(what), x, weight)?)
        };
        let weight = Some(w.matrix(&name("norm"), n, r.shape(x).dim)?);
        let normed = r.norm(&name("norm"), x, Norm { weight, ..c.plain_norm() })?;
        let normed = r.view(&name("normed"), normed, 1)?;
        let narrow = r.scale(&name("narrow"), linear("down", normed, rank)?, 1.0 / n as f32)?;
        let narrow = r.act(&name("silu"), Act::Silu, narrow)?;
        let gate = linear("up", narrow, r.shape(normed).cols())?;
        let gated = r.gated_act(&name("gated"), Act::Sigmoid, gate, normed)?;
        Ok(Mixed { read: hyper::mean(r, c, &name("mean"), gated)?, normed, n })
    }
}

/// The streams plus what a token's rows say, as far as it goes with each of them, and a convolution of that.
fn remember(l: &Layer<'_>, its: &NgramConfig, rows: ValueId, x: ValueId) -> Result<ValueId> {
    let (r, n, dim) = (l.r, l.r.shape(x).groups, l.model.hidden_size);
    let key = r.view("ple_keys", l.linear("ple_key", rows, n * dim, Bias::Never)?, n)?;
    let key = l.norm_groups("ple_norm_key", key)?;
    let query = l.norm_groups("ple_norm_query", x)?;
    let product = r.gated_act("ple_products", Act::Identity, key, query)?;
    let product =
        r.scale("ple_score", r.sum_groups("ple_sums", product)?, (dim as f32).sqrt().recip())?;
    let gate = r.act("ple_gate", Act::Sigmoid, r.signed_root("ple_root", product, 1e-6)?)?;
    let value = l.linear("ple_value", rows, dim, Bias::Never)?;
    let gated = r.mix("ple_gated", gate, value)?; // [n, n_streams, hidden_size]
    let normed = r.view("ple_flat", l.norm_groups("ple_norm_conv", gated)?, 1)?;
    let taps = l.w.matrix("ple_conv1d", n * dim, its.conv_width)?;
    let (weights, step) = (ConvWeights { taps, bias: None }, its.grams.multipliers.len());
    let conv = r.spaced_conv("ple_conv", normed, weights, step, Some(Act::Silu))?;
    let conv = r.view("ple_conv_streams", conv, n)?;
    l.add("ple_streams", x, l.add("ple_said", gated, conv)?)
}

/// Positions by the keys of pools, each the mean of theirs; `None` in a layer that reads all.
fn choose(l: &Layer<'_>, h: ValueId) -> Result<Option<(Selection, ValueId)>> {
    let Some(its) = &l.config.indexer else { return Ok(None) };
    let (r, pool) = (l.r, its.keys_back as usize + 1);
    let q = l.linear("indexer.q_proj", h, its.n_heads * its.head_dim, Bias::Never)?;
    // all heads weigh alike
    let nothing = r.scale("indexer.nothing", r.slice("indexer.some", q, 0, its.n_heads)?, 0.0)?;
    let weights = r.shift("indexer.weights", nothing, 1.0)?;
    let q = l.norm("indexer.q_norm", r.view("indexer.q", q, its.n_heads)?)?;
    let mut row = l.linear("indexer.k_proj", h, its.head_dim, Bias::Never)?;
    let mut sum = row;
    for _ in 1..pool {
        row = r.row_before("indexer.k_before", row)?;
        sum = l.add("indexer.k_sum", sum, row)?;
    }
    let k = l.norm("indexer.k_norm", r.scale("indexer.k_mean", sum, 1.0 / pool as f32)?)?;
    let factors = attention::factors(l)?;
    let rope = l.config.rope.clone().map(|rope| Rope { factors, ..rope });
    let at = recorded(l, its, rope, IndexScore::Weighted);
    let select = at.selection();
    Ok(Some((select, r.indexer("indexer", at, &[q, weights, k])?)))
}

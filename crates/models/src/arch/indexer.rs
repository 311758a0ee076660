//! Indexers of layers that attend to what these choose.
//!
//! Source: DeepSeek-V3.2-Exp, section 2.1.

use std::cell::Cell;

use program::{
    Act, CacheKind, CacheSpec, IndexScore, Indexer, Lookup, Norm, NormKind, Rope, Selection,
    UnitScore, ValueId,
};

use super::decoder::Layer;
use super::{attention, latent};
use crate::{Bias, IndexerConfig, Result};

/// The choice of the last layer that had an indexer.
pub(super) type Last = Cell<Option<(Selection, ValueId)>>;

/// What the layer attends to of its choice, through the output projection: `[n, hidden_size]`.
pub(super) fn attend(l: &Layer<'_>, last: &Last, h: ValueId) -> Result<ValueId> {
    let a = latent::find_chosen(l, h, |source| choose(l, last, h, source))?;
    l.linear("attn_output", a, l.model.hidden_size, Bias::Never)
}

/// The layer's choice, or the last one where it has none of its own; `None` in a layer that reads all. Queries are made of
/// `source`, keys and weights of `h`.
pub(super) fn choose(
    l: &Layer<'_>,
    last: &Last,
    h: ValueId,
    source: ValueId,
) -> Result<Option<(Selection, ValueId)>> {
    let Some(its) = &l.config.indexer else { return Ok(None) };
    if !its.own {
        return Ok(last.get());
    }
    let IndexerConfig { n_heads, head_dim, pairs, .. } = *its;
    let q = l.linear("indexer.attn_q_b", source, n_heads * head_dim, Bias::Never)?;
    let q = l.r.view("indexer.q", q, n_heads)?;
    let weights = l.linear("indexer.proj", h, n_heads, Bias::Never)?;
    let k = l.linear("indexer.attn_k", h, head_dim, Bias::Never)?;
    let norm = Norm {
        kind: NormKind::Layer,
        weight: Some(l.w.vector("indexer.k_norm", head_dim)?),
        bias: Some(l.w.bias("indexer.k_norm", head_dim)?),
        eps: its.norm_eps,
    };
    let k = l.r.norm("indexer.k_norm", k, norm)?;
    let k = match its.unit_score {
        UnitScore::Greatest | UnitScore::OfPool(_) => k,
        UnitScore::Last => pooled(l, its, h, k)?,
    };
    let factors = attention::factors(l)?;
    let rope = l.config.rope.clone().map(|rope| Rope { pairs, factors, ..rope });
    let rotates = rope.as_ref().map_or(0, |rope| rope.dims);
    let at = Indexer {
        rope_start: if its.rotates_last { head_dim - rotates } else { 0 },
        ..recorded(l, its, rope, IndexScore::Weighted)
    };
    let select = at.selection();
    last.set(Some((select, l.r.indexer("indexer", at, &[q, weights, k])?)));
    Ok(last.get())
}

/// An indexer with a cache of its own.
pub(super) fn recorded(
    l: &Layer<'_>,
    its: &IndexerConfig,
    rope: Option<Rope>,
    score: IndexScore,
) -> Indexer {
    let kind = CacheKind::Keys { dim: its.head_dim };
    Indexer {
        cache: l.r.cache(CacheSpec { layer: l.index, kind }),
        rope,
        rope_start: 0,
        keys_back: its.keys_back,
        score,
        unit: its.unit as u32,
        unit_score: its.unit_score,
        n_units: its.n_units as u32,
        n_last: its.n_last as u32,
    }
}

/// Each row's sum of the keys of its unit's length, channel by channel by shares that a gate gives: at the last position of
/// a unit the key of that.
fn pooled(l: &Layer<'_>, its: &IndexerConfig, h: ValueId, k: ValueId) -> Result<ValueId> {
    let (r, dim, n) = (l.r, its.head_dim, its.unit);
    let gate = l.linear("indexer_compressor_gate", h, dim, Bias::Never)?;
    let mut rows = vec![r.view("pool_row", r.concat("pool_both", &[k, gate])?, 1)?];
    for i in 1..n {
        rows.push(r.row_before("pool_row", rows[i - 1])?);
    }
    let part = |name: &str, start: usize| -> Result<ValueId> {
        let slice = |row: &ValueId| r.slice(name, *row, start, dim);
        let oldest_first = rows.iter().rev().map(slice).collect::<Result<Vec<_>, _>>()?;
        Ok(r.concat(name, &oldest_first)?) // [n, unit, dim]
    };
    let place = |i: usize| -> Result<ValueId> {
        let numbers = l.w.stretch("indexer_compressor_ape", &[dim, n], i * dim, dim)?;
        Ok(r.lookup("pool_place", numbers, Lookup::Only)?)
    };
    let places = (0..n).map(place).collect::<Result<Vec<_>>>()?;
    let places = r.concat("pool_places", &places)?;
    let gates = r.turn("pool_gates", r.add("pool_sums", part("pool_gate", dim)?, places)?)?;
    let shares = r.softmax("pool_shares", gates)?; // [n, dim, unit]
    let keys = r.turn("pool_keys_turned", part("pool_key", 0)?)?;
    let keys = r.gated_act("pool_weighed", Act::Identity, shares, keys)?;
    Ok(r.sum_groups("pool_sum", keys)?)
}

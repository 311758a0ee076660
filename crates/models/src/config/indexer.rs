//! [`IndexerConfig`]: the hyper-parameters of layers that attend to what an indexer chooses.

use program::{RopePairs, UnitScore};

use super::ModelConfig;
use crate::keys::Keys;
use crate::{Error, Result};

/// How a layer chooses what it attends to.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexerConfig {
    /// The layer has an indexer; else it reads by the choice of the last one before it that has.
    pub own: bool,
    /// Heads.
    pub n_heads: usize,
    /// Width of a query or key.
    pub head_dim: usize,
    /// Positions of a unit.
    pub unit: usize,
    /// Units that are chosen.
    pub n_units: usize,
    /// How many of them are the last.
    pub n_last: usize,
    /// What the score of a unit is.
    pub unit_score: UnitScore,
    /// Keys rotate as if they stood so many positions before their own.
    pub keys_back: u32,
    /// Which of the elements that rotate pair up.
    pub pairs: RopePairs,
    /// The last elements of a head rotate, not the first.
    pub rotates_last: bool,
    /// Added under the root of the norm of keys.
    pub norm_eps: f32,
}

/// Most of anything here.
const MOST: u64 = 1 << 16;
/// Most positions that are chosen.
const MOST_CHOSEN: u64 = 1 << 20;

impl IndexerConfig {
    /// Of positions one by one, by the keys of DeepSeek V3.2, for a layer that has an indexer.
    ///
    /// # Errors
    /// A key that is missing or out of range.
    pub(crate) fn read(keys: &Keys<'_>, pairs: RopePairs) -> Result<IndexerConfig> {
        Ok(IndexerConfig {
            own: true,
            n_heads: keys.required("attention.indexer.head_count", 1..=MOST)?,
            head_dim: keys.required("attention.indexer.key_length", 1..=MOST)?,
            unit: 1,
            n_units: keys.required("attention.indexer.top_k", 1..=MOST_CHOSEN)?,
            n_last: 0,
            unit_score: UnitScore::Greatest,
            keys_back: 0,
            pairs,
            rotates_last: false,
            norm_eps: 1e-6,
        })
    }

    /// Of pools of positions, each of which has one key, by the keys of GLM-5.3: as many as come to `attention.indexer.top_k`
    /// positions, and what is behind the last whole one.
    ///
    /// # Errors
    /// A key that is missing or out of range; positions that are no whole pools; a tail that is not to be read.
    pub(crate) fn of_pools(keys: &Keys<'_>) -> Result<IndexerConfig> {
        const TOP: &str = "attention.indexer.top_k";
        const TAIL: &str = "attention.indexer.kpool_select_tail";
        let its = IndexerConfig::read(keys, RopePairs::HalfSplit)?;
        let unit = keys.required("attention.indexer.kpool", 2..=64)?;
        if !its.n_units.is_multiple_of(unit) {
            let expected = format!("a multiple of attention.indexer.kpool {unit}");
            return Err(Error::key(&keys.name(TOP), expected, its.n_units));
        }
        if keys.flag(TAIL)? != Some(true) {
            let found = if keys.get(TAIL).is_some() { "false" } else { "none" };
            return Err(Error::key(&keys.name(TAIL), "true", found));
        }
        Ok(IndexerConfig { unit, n_units: its.n_units / unit, unit_score: UnitScore::Last, ..its })
    }

    /// Of positions by pools of so many, whose key stands where the pool begins, by the keys of Qwen3.8. Beside the best ones
    /// there is room for a pool that is not complete, or for a part of the next one.
    ///
    /// # Errors
    /// A key that is missing or out of range.
    pub(crate) fn of_means(keys: &Keys<'_>, pool: usize, norm_eps: f32) -> Result<IndexerConfig> {
        let its = IndexerConfig::read(keys, RopePairs::HalfSplit)?;
        Ok(IndexerConfig {
            n_units: its.n_units + pool - 1,
            unit_score: UnitScore::OfPool(pool as u32),
            keys_back: pool as u32 - 1,
            norm_eps,
            ..its
        })
    }

    /// Of blocks, by the keys of MiniMax M3.
    ///
    /// # Errors
    /// A key that is missing or out of range; more blocks that are always chosen than are chosen.
    pub(crate) fn of_blocks(keys: &Keys<'_>, norm_eps: f32) -> Result<IndexerConfig> {
        let its = IndexerConfig::read(keys, RopePairs::HalfSplit)?;
        let n_last = keys.count("attention.indexer.local_blocks", 0..=its.n_units as u64)?;
        Ok(IndexerConfig {
            unit: keys.required("attention.indexer.block_size", 1..=MOST_CHOSEN)?,
            n_last: n_last.unwrap_or(0),
            norm_eps,
            ..its
        })
    }
}

/// Give all layers this way to choose: those have an indexer of their own that `attention.indexer.types` says, or `silent`
/// by its number where there is no such key.
///
/// # Errors
/// An array of another length, or of anything but flags; a head that is narrower than what rotates; no layer before one
/// that has none of its own.
pub(crate) fn apply(
    keys: &Keys<'_>,
    c: &mut ModelConfig,
    indexer: &IndexerConfig,
    silent: impl Fn(usize) -> bool,
) -> Result<()> {
    const TYPES: &str = "attention.indexer.types";
    let named = keys.flags(TYPES, c.layers.len())?;
    let own = |i: usize| named.as_ref().map_or_else(|| silent(i), |named| named[i]);
    let first = c.layers.iter().position(|layer| layer.recurrent.is_none());
    if !own(first.unwrap_or(0)) {
        let expected = "an indexer in the first layer that attends";
        return Err(Error::key(&keys.name(TYPES), expected, "none"));
    }
    let rotates = c.first_layer().rope.as_ref().map_or(0, |rope| rope.dims);
    if rotates > indexer.head_dim {
        let key = keys.name("attention.indexer.key_length");
        return Err(Error::key(&key, format!("{rotates} or more, which rotate"), indexer.head_dim));
    }
    for (i, layer) in c.layers.iter_mut().enumerate() {
        layer.indexer = Some(IndexerConfig { own: own(i), ..indexer.clone() });
    }
    Ok(())
}

/// The keys of an indexer that chooses positions one by one, for architectures whose files may have none.
///
/// # Errors
/// As [`IndexerConfig::read`], in a file that has one.
pub(crate) fn read_if_any(keys: &Keys<'_>, pairs: RopePairs) -> Result<Option<IndexerConfig>> {
    match keys.count("attention.indexer.top_k", 0..=u64::MAX)? {
        None | Some(0) => Ok(None),
        Some(_) => IndexerConfig::read(keys, pairs).map(Some),
    }
}

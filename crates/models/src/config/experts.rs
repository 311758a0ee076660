//! [`Experts`]: the hyper-parameters of mixtures of experts (arXiv:2401.06066, section 3).

use gguf::Gguf;
use program::{Gating, GroupScore, Groups, Router, WeightId};

use crate::keys::Keys;
use crate::{Error, Result};

/// Feed-forward layers of which each token uses a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Experts to choose from, in each layer that has them.
    pub n_experts: usize,
    /// Experts each token uses.
    pub n_experts_used: usize,
    /// Width inside one expert.
    pub intermediate_size: usize,
    /// Width inside the feed-forward layer that every token uses beside them; 0 if there is none.
    pub shared_intermediate_size: usize,
    /// Layers without experts, the first ones.
    pub n_dense_layers: usize,
    /// From scores to weights.
    pub gating: Gating,
    /// A bias helps to choose experts (`exp_probs_b`).
    pub bias: bool,
    /// Experts are chosen among the best groups only.
    pub groups: Option<Groups>,
    /// The weights of a token's experts are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
}

/// Their ids are exact in f32, and a list of them is short.
const MAX_EXPERTS: u64 = 4096;

impl Experts {
    pub(super) fn read(
        gguf: &Gguf,
        keys: &Keys<'_>,
        n_layers: usize,
        intermediate_size: usize,
    ) -> Result<Experts> {
        let n_experts =
            keys.require("expert_count", keys.count("expert_count", 1..=MAX_EXPERTS)?)?;
        let n_used = keys.count("expert_used_count", 1..=n_experts as u64)?;
        let n_used = keys.require("expert_used_count", n_used)?;
        let n_dense_layers =
            keys.count("leading_dense_block_count", 0..=n_layers as u64)?.unwrap_or(0);
        let has = |name: &str| gguf.tensor(&format!("blk.{n_dense_layers}.{name}")).is_some();
        // Files of early 2024 give one width for all.
        let width = keys.count("expert_feed_forward_length", 1..=1 << 24)?;
        let width = width.unwrap_or((intermediate_size / n_used).max(1));
        let shared = keys.count("expert_shared_feed_forward_length", 0..=1 << 24)?;
        let n_shared = keys.count("expert_shared_count", 0..=MAX_EXPERTS)?;
        let shared = match (shared, n_shared) {
            (Some(shared), _) => shared,
            (None, Some(n)) => n * width,
            (None, None) if has("ffn_gate_shexp.weight") => intermediate_size,
            (None, None) => 0,
        };
        let bias = has("exp_probs_b.bias");
        let gating = gating(keys)?;
        if has("ffn_gate_up_exps.weight") {
            return Err(Error::Unsupported {
                name: format!("blk.{n_dense_layers}.ffn_gate_up_exps.weight"),
                problem: "gate and up in one tensor",
            });
        }
        // What Qwen3's configurations say and those of the others do not, where the file is silent.
        let normalize = keys.flag("expert_weights_norm")?;
        Ok(Experts {
            n_experts,
            n_experts_used: n_used,
            intermediate_size: width,
            shared_intermediate_size: shared,
            n_dense_layers,
            gating,
            bias,
            groups: groups(keys, n_experts, (gating, bias))?,
            normalize: normalize.unwrap_or(keys.architecture() == "qwen3moe"),
            scale: scale(keys)?,
        })
    }

    /// Whether this layer has experts.
    pub fn in_layer(&self, layer: usize) -> bool {
        layer >= self.n_dense_layers
    }

    /// The router of a layer with this bias.
    pub fn router(&self, bias: Option<WeightId>) -> Router {
        Router {
            n_used: self.n_experts_used,
            gating: self.gating,
            bias,
            groups: self.groups,
            normalize: self.normalize,
            scale: self.scale,
        }
    }
}

/// Refuse experts in an architecture that has none.
pub(super) fn none(keys: &Keys<'_>) -> Result<()> {
    match keys.get("expert_count").filter(|value| value.as_u64() != Some(0)) {
        None => Ok(()),
        Some(value) => {
            Err(Error::key(&keys.name("expert_count"), "0 in a dense architecture", value))
        }
    }
}

fn gating(keys: &Keys<'_>) -> Result<Gating> {
    const KEY: &str = "expert_gating_func";
    match keys.count(KEY, 0..=u64::MAX)? {
        None | Some(0 | 1) => Ok(Gating::Softmax),
        Some(2) => Ok(Gating::Sigmoid),
        Some(other) => Err(Error::key(&keys.name(KEY), "1 (softmax) or 2 (sigmoid)", other)),
    }
}

/// V2 rates a group by its best expert, V3 by its best two; files do not say which, but V3 has a bias and sigmoids.
/// `docs/decisions/003-group-scores.md` tells how this differs from llama.cpp.
fn groups(
    keys: &Keys<'_>,
    n_experts: usize,
    (gating, bias): (Gating, bool),
) -> Result<Option<Groups>> {
    const COUNT: &str = "expert_group_count";
    const USED: &str = "expert_group_used_count";
    let n_groups = keys.count(COUNT, 0..=n_experts as u64)?.unwrap_or(0);
    if n_groups <= 1 {
        return Ok(None);
    }
    if !n_experts.is_multiple_of(n_groups) {
        let expected = format!("a divisor of expert_count {n_experts}");
        return Err(Error::key(&keys.name(COUNT), expected, n_groups));
    }
    let n_used = keys.require(USED, keys.count(USED, 1..=n_groups as u64)?)?;
    let score = match (gating, bias) {
        (Gating::Softmax, false) => GroupScore::Max,
        _ => GroupScore::TopTwoSum,
    };
    Ok(Some(Groups { n_groups, n_used, score }))
}

/// 0 means none, as in early files.
fn scale(keys: &Keys<'_>) -> Result<f32> {
    const KEY: &str = "expert_weights_scale";
    if keys.get(KEY).and_then(|value| value.as_f32()) == Some(0.0) {
        return Ok(1.0);
    }
    Ok(keys.positive(KEY)?.unwrap_or(1.0))
}

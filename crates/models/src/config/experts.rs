//! [`Experts`]: the hyper-parameters of mixtures of experts (arXiv:2401.06066, section 3).

use program::{Act, Gate, Gating, GroupScore, Groups, Router, WeightId};

use super::ModelConfig;
use crate::keys::Keys;
use crate::{Bias, Error, Result};

/// The feed-forward layers of one decoder block, of which each token uses a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Experts to choose from.
    pub n_experts: usize,
    /// Experts each token uses.
    pub n_experts_used: usize,
    /// Width inside one expert.
    pub intermediate_size: usize,
    /// Width inside the feed-forward layer that every token uses beside them; 0 if there is none.
    pub shared_intermediate_size: usize,
    /// From scores to weights.
    pub gating: Gating,
    /// The tensor, `exp_probs_b` by some name, that helps to choose experts.
    pub bias: Option<&'static str>,
    /// Gate and up are one tensor.
    pub joint: bool,
    /// The tensor `ffn_down_exps.scale` has a factor for each expert's weight.
    pub factors: bool,
    /// Of the router and of each expert's matrices.
    pub biases: Bias,
    /// Experts are chosen among the best groups only.
    pub groups: Option<Groups>,
    /// The weights of a token's experts are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// Weights scale what goes into an expert, not what comes out.
    pub weighs_inputs: bool,
    /// Activation inside an expert.
    pub act: Gate,
    /// That of the layer beside them.
    pub shared_act: Gate,
    /// Further experts, each shared by some of them.
    pub chunks: Option<Chunks>,
    /// What experts read and yield is so wide, between two matrices; `None`: as wide as the residual stream.
    pub latent_size: Option<usize>,
}

/// Experts that neighbours among the others share: where one of a chunk is chosen, its own is mixed too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunks {
    /// Neighbours that share one; divides their number.
    pub per_chunk: usize,
    /// Width inside one.
    pub intermediate_size: usize,
    /// Factor on their sum.
    pub scale: f32,
}

/// Their ids are exact in f32, and a list of them is short.
const MAX_EXPERTS: u64 = 4096;

/// What a model does where its file is silent.
pub(crate) struct Silent {
    /// [`Experts::normalize`].
    pub(crate) normalize: bool,
    /// [`Experts::intermediate_size`].
    pub(crate) width: Width,
    /// Layers of experts have a dense one, too.
    pub(crate) both: bool,
    /// [`Experts::gating`].
    pub(crate) gating: Gating,
    /// The architecture has [`Experts::factors`].
    pub(crate) factors: bool,
}

impl Silent {
    /// Weights are normalized.
    pub(crate) const NORMALIZED: Silent = Silent {
        normalize: true,
        width: Width::Own,
        both: false,
        gating: Gating::Softmax,
        factors: false,
    };
    /// Weights are not normalized.
    pub(crate) const PLAIN: Silent = Silent { normalize: false, ..Silent::NORMALIZED };
}

/// The key that says how wide one expert is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// `expert_feed_forward_length`; where it is missing, as in files of early 2024, `feed_forward_length` is the width of
    /// all experts that a token uses.
    Own,
    /// `feed_forward_length`, whatever other keys say.
    OfDense,
}

/// The same for an architecture whose files may have experts or none.
///
/// # Errors
/// As [`read`], in a file that has some.
pub(crate) fn read_if_any(keys: &Keys<'_>, c: &mut ModelConfig, silent: &Silent) -> Result<()> {
    match keys.count("expert_count", 0..=u64::MAX)? {
        None | Some(0) => Ok(()),
        Some(_) => read(keys, c, silent),
    }
}

/// Give all layers but the first dense ones experts.
///
/// # Errors
/// A key that is missing or out of range.
pub(crate) fn read(keys: &Keys<'_>, c: &mut ModelConfig, silent: &Silent) -> Result<()> {
    let n_experts = keys.required("expert_count", 1..=MAX_EXPERTS)?;
    let n_experts_used = keys.required("expert_used_count", 1..=n_experts as u64)?;
    let n_layers = c.layers.len() as u64;
    let n_dense = keys.count("leading_dense_block_count", 0..=n_layers)?.unwrap_or(0);
    let has = |name: &str| (0..n_layers).any(|i| keys.has(&format!("blk.{i}.{name}")));
    let dense = c.first_layer().intermediate_size;
    let width = match silent.width {
        Width::OfDense => dense,
        Width::Own => {
            let own = keys.count("expert_feed_forward_length", 1..=1 << 24)?;
            own.unwrap_or((dense / n_experts_used).max(1))
        }
    };
    let shared = keys.count("expert_shared_feed_forward_length", 0..=1 << 24)?;
    let n_shared = keys.count("expert_shared_count", 0..=MAX_EXPERTS)?;
    let shared = match (shared, n_shared) {
        (Some(shared), _) => shared,
        (None, Some(n)) => n * width,
        (None, None) if has("ffn_gate_shexp.weight") => dense,
        (None, None) => 0,
    };
    let gating = gating(keys, silent.gating)?;
    let bias = ["exp_probs_b.bias", "exp_probs_b"].into_iter().find(|name| has(name));
    let scaled = ["ffn_gate_exps.scale", "ffn_up_exps.scale", "ffn_down_exps.scale"];
    if let Some(name) = scaled.into_iter().find(|name| has(name) && !silent.factors) {
        let name = format!("blk.{n_dense}.{name}");
        return Err(Error::Unsupported { name, problem: "factors on experts" });
    }
    let experts = Experts {
        n_experts,
        n_experts_used,
        intermediate_size: width,
        shared_intermediate_size: shared,
        gating,
        bias,
        joint: has("ffn_gate_up_exps.weight"),
        factors: silent.factors && has("ffn_down_exps.scale"),
        biases: Bias::Never,
        groups: groups(keys, n_experts, gating, bias.is_some())?,
        normalize: keys.flag("expert_weights_norm")?.unwrap_or(silent.normalize)
            || keys.count("expert_gating_func", 0..=u64::MAX)? == Some(3),
        // 0 means none, as in early files.
        scale: keys.positive_or_zero("expert_weights_scale")?.unwrap_or(1.0),
        weighs_inputs: false,
        act: Gate::Act(Act::Silu),
        shared_act: Gate::Act(Act::Silu),
        chunks: None,
        latent_size: None,
    };
    for (i, layer) in c.layers.iter_mut().enumerate().skip(n_dense) {
        // some files have no key for layers that are dense
        if !keys.has(&format!("blk.{i}.ffn_gate.weight")) || silent.both {
            layer.experts = Some(experts.clone());
        }
    }
    Ok(())
}

/// Bounds on what gates let through and on their activations, layer by layer, where the file has some.
///
/// # Errors
/// Numbers below 0, or not one for each layer.
pub(crate) fn clamp(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    let [experts, shared] =
        ["swiglu_clamp_exp", "swiglu_clamp_shexp"].map(|key| keys.positive_per_layer(key));
    bound(c, &experts?, &shared?, true);
    Ok(())
}

/// Such bounds on gates before their activation, those of experts alone.
///
/// # Errors
/// As [`clamp`].
pub(crate) fn clamp_before(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    let experts = keys.positive_per_layer("swiglu_clamp_exp")?;
    let shared = vec![None; experts.len()];
    bound(c, &experts, &shared, false);
    Ok(())
}

/// The same on all gates, those of experts and those of others, which are as the first where the file does not say.
///
/// # Errors
/// As [`clamp`].
pub(crate) fn clamp_all_before(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    const OTHERS: &str = "swiglu_clamp_shexp";
    let experts = keys.positive_per_layer("swiglu_clamp_exp")?;
    let others = match keys.get(OTHERS) {
        Some(_) => keys.positive_per_layer(OTHERS)?,
        None => experts.clone(),
    };
    bound(c, &experts, &others, false);
    for (layer, limit) in c.layers.iter_mut().zip(others) {
        let clamped = |limit| Gate::ClampedSwiglu { limit, after: false };
        layer.gate = limit.map_or(layer.gate, clamped);
    }
    Ok(())
}

fn bound(c: &mut ModelConfig, experts: &[Option<f32>], shared: &[Option<f32>], after: bool) {
    let limits = experts.iter().zip(shared);
    for (layer, (experts, shared)) in c.layers.iter_mut().zip(limits) {
        let clamped = |limit| Gate::ClampedSwiglu { limit, after };
        if let Some(e) = &mut layer.experts {
            e.act = experts.map_or(e.act, clamped);
            e.shared_act = shared.map_or(e.shared_act, clamped);
        }
    }
}

impl Experts {
    /// The router of a layer with this bias and these factors.
    pub fn router(&self, bias: Option<WeightId>, factors: Option<WeightId>) -> Router {
        Router {
            n_used: self.n_experts_used,
            gating: self.gating,
            bias,
            groups: self.groups,
            normalize: self.normalize,
            scale: self.scale,
            factors,
            per_chunk: 1,
        }
    }
}

/// Refuse experts in an architecture that has none.
pub(crate) fn none(keys: &Keys<'_>) -> Result<()> {
    match keys.get("expert_count").filter(|value| value.as_u64() != Some(0)) {
        None => Ok(()),
        Some(value) => {
            Err(Error::key(&keys.name("expert_count"), "0 in a dense architecture", value))
        }
    }
}

fn gating(keys: &Keys<'_>, silent: Gating) -> Result<Gating> {
    const KEY: &str = "expert_gating_func";
    match keys.count(KEY, 0..=u64::MAX)? {
        None | Some(0) => Ok(silent),
        Some(1) => Ok(Gating::Softmax),
        Some(2) => Ok(Gating::Sigmoid),
        // softmax over the chosen is that of all, normalized
        Some(3) => Ok(Gating::Softmax),
        Some(other) => {
            let expected = "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)";
            Err(Error::key(&keys.name(KEY), expected, other))
        }
    }
}

/// V2 rates a group by its best expert, V3 by its best two; files do not say which, but V3 has a bias and sigmoids.
/// `docs/decisions/003-group-scores.md` tells how this differs from llama.cpp.
fn groups(keys: &Keys<'_>, n_experts: usize, gating: Gating, bias: bool) -> Result<Option<Groups>> {
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

//! Attention over keys and values, by settings that architectures choose.

use program::{
    Act, Attention, CacheKind, CacheSpec, Mask, Rope, RopeScaling, RotatedNorm, Score, ValueId,
    WeightId,
};

use super::decoder::Layer;
use crate::{Bias, LayerConfig, Result};

/// A layer of attention: queries, keys and values of the input, what they attend to, the output projection.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    /// q, k and v are rows of one tensor, `attn_qkv`, in this order.
    pub(super) joint: bool,
    /// Of q, k and v.
    pub(super) bias: Bias,
    /// Of the output projection.
    pub(super) out_bias: Bias,
    pub(super) norm: HeadNorm,
    /// Layers that have the vector `attn_sinks` use it.
    pub(super) sinks: bool,
    /// Activation of `attn_gate` times the input, a factor on what each head, or each element of it, attended to.
    pub(super) gate: Option<(Act, GateWidth)>,
}

/// How wide a gate on the result of attention is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateWidth {
    /// A number for each head.
    Heads,
    /// A number for each element.
    Elements,
}

/// The model's norms on queries and keys, with the vectors `attn_q_norm` and `attn_k_norm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadNorm {
    None,
    /// On each head, one vector for all.
    Each,
    /// On each head, a vector for each.
    Own,
    /// On all heads of a row together.
    Whole,
    /// On each head once it has rotated.
    Rotated,
}

impl Heads {
    /// As Llama has it; biases where the file has them.
    pub(super) const PLAIN: Heads = Heads {
        joint: false,
        bias: Bias::IfPresent,
        out_bias: Bias::IfPresent,
        norm: HeadNorm::None,
        sinks: false,
        gate: None,
    };
    /// With a norm on each head of q and k.
    pub(super) const NORMED: Heads = Heads { norm: HeadNorm::Each, ..Heads::PLAIN };

    /// What the layer attends to, through the output projection: `[n, hidden_size]`.
    pub(super) fn record(self, l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
        let a = self.attend(l, h)?;
        l.linear("attn_output", a, l.model.hidden_size, self.out_bias)
    }

    /// What the layer attends to: `[n, n_heads * value_dim]`.
    pub(super) fn attend(self, l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
        let score = self.score(l)?;
        let a = attend(l, self.queries_keys_values(l, h)?, factors(l)?, score, self.rotated(l)?)?;
        let a = match l.model.attention_scale {
            Some(factor) => l.r.scale("attn_scaled", a, factor)?,
            None => a,
        };
        let Some((act, width)) = self.gate else { return Ok(a) };
        let n_heads = l.config.n_heads;
        let (groups, cols) = match width {
            GateWidth::Heads => (n_heads, n_heads),
            GateWidth::Elements => (1, l.r.shape(a).cols()),
        };
        let gate = l.linear("attn_gate", h, cols, Bias::IfPresent)?;
        let a = l.r.gated_act("attn_gated", act, gate, l.r.view("attn_heads", a, groups)?)?;
        Ok(l.r.view("attn_joined", a, 1)?)
    }

    fn rotated(self, l: &Layer<'_>) -> Result<Option<RotatedNorm>> {
        if self.norm != HeadNorm::Rotated {
            return Ok(None);
        }
        let [q, k] = ["attn_q_norm", "attn_k_norm"].map(|name| l.w.vector(name, l.config.head_dim));
        Ok(Some(RotatedNorm { q: q?, k: k?, eps: l.model.norm_eps }))
    }

    fn score(self, l: &Layer<'_>) -> Result<Score> {
        let sinks = self.sinks.then(|| l.w.optional_vector("attn_sinks", l.config.n_heads));
        Ok(Score { sinks: sinks.transpose()?.flatten(), ..l.config.score.clone() })
    }

    /// Queries, keys and values of `h`: `[n, heads, dim]` each.
    pub(super) fn queries_keys_values(self, l: &Layer<'_>, h: ValueId) -> Result<[ValueId; 3]> {
        let LayerConfig { n_heads, n_kv_heads, head_dim, value_dim, .. } = *l.config;
        let [q, k, v] = self.products(l, h)?;
        let [q, k, v] = match l.model.clamp_qkv {
            Some(c) => {
                let clamp = |name: &str, x| l.r.act(name, Act::Clamp(c), x);
                [
                    clamp("attn_q_clamped", q)?,
                    clamp("attn_k_clamped", k)?,
                    clamp("attn_v_clamped", v)?,
                ]
            }
            None => [q, k, v],
        };
        let [q, k] = match self.norm {
            HeadNorm::Whole => [l.norm("attn_q_norm", q)?, l.norm("attn_k_norm", k)?],
            HeadNorm::None | HeadNorm::Each | HeadNorm::Own | HeadNorm::Rotated => [q, k],
        };
        debug_assert_eq!(l.r.shape(q).cols(), n_heads * head_dim);
        debug_assert_eq!(l.r.shape(v).cols(), n_kv_heads * value_dim);
        let (q, k) = (l.r.view("q", q, n_heads)?, l.r.view("k", k, n_kv_heads)?);
        let v = l.r.view("v", v, n_kv_heads)?;
        Ok(match self.norm {
            HeadNorm::Each => [l.norm("attn_q_norm", q)?, l.norm("attn_k_norm", k)?, v],
            HeadNorm::Own => {
                [l.norm_groups("attn_q_norm", q)?, l.norm_groups("attn_k_norm", k)?, v]
            }
            HeadNorm::None | HeadNorm::Whole | HeadNorm::Rotated => [q, k, v],
        })
    }

    fn products(self, l: &Layer<'_>, h: ValueId) -> Result<[ValueId; 3]> {
        const NAMES: [&str; 3] = ["attn_q", "attn_k", "attn_v"];
        let LayerConfig { n_heads, n_kv_heads, head_dim, value_dim, .. } = *l.config;
        let rows = [n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * value_dim];
        if self.joint {
            return l.joint("attn_qkv", h, NAMES, rows, self.bias);
        }
        let mut products = [h; 3];
        for ((product, name), rows) in products.iter_mut().zip(NAMES).zip(rows) {
            *product = l.linear(name, h, rows, self.bias)?;
        }
        Ok(products)
    }
}

/// Divisors of the rotation's frequencies, where the file has some for all layers.
pub(super) fn factors(l: &Layer<'_>) -> Result<Option<WeightId>> {
    let Some(rope) = &l.config.rope else { return Ok(None) };
    let pairs = rope.dims / 2;
    let long = match rope.scaling {
        RopeScaling::Long { .. } => l.global.optional_vector("rope_factors_long", pairs)?,
        _ => None,
    };
    long.map_or_else(|| l.global.optional_vector("rope_freqs", pairs), |long| Ok(Some(long)))
}

/// What the layer attends to, given its queries, keys and values: `[n, n_heads * value_dim]`. `factors` divide the
/// frequencies of the rotation.
pub(super) fn attend(
    l: &Layer<'_>,
    qkv: [ValueId; 3],
    factors: Option<WeightId>,
    score: Score,
    norm: Option<RotatedNorm>,
) -> Result<ValueId> {
    let LayerConfig { n_kv_heads, head_dim: key_dim, value_dim, ref rope, .. } = *l.config;
    let window = match score.mask {
        Mask::Window(n) | Mask::Chunk(n) => Some(n as usize),
        Mask::Causal | Mask::Full | Mask::Around(_) => None,
    };
    let kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window };
    let at = Attention {
        cache: l.r.cache(CacheSpec { layer: l.index, kind }),
        appends: true,
        rope: rope.clone().map(|rope| Rope { factors, ..rope }),
        norm,
        score,
    };
    Ok(l.r.attention("attn", at, &qkv)?)
}

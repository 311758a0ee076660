//! Attention over keys and values, by settings that architectures choose.

use program::{
    Act, Attention, CacheKind, CacheSpec, Mask, Rope, RopeScaling, RotatedNorm, Score, Selection,
    ValueId, WeightId,
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
    /// Factors on the products of q, k and v, where the file has some.
    pub(super) scaled: bool,
    /// Of the output projection.
    pub(super) out_bias: Bias,
    pub(super) norm: HeadNorm,
    /// A norm without a vector on each head of v.
    pub(super) value_norm: bool,
    /// Where the file has no `attn_v`, v is what k is before its norm.
    pub(super) value_may_be_key: bool,
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
    /// On each head, with a number for each of q.
    Gained,
    /// On each head, a vector for each.
    Own,
    /// On all heads of a row together.
    Whole,
    /// On each head once it has rotated.
    Rotated,
    /// The same without vectors, on layers that rotate.
    PlainRotated,
}

impl Heads {
    /// As Llama has it; biases where the file has them.
    pub(super) const PLAIN: Heads = Heads {
        joint: false,
        bias: Bias::IfPresent,
        scaled: false,
        out_bias: Bias::IfPresent,
        norm: HeadNorm::None,
        value_norm: false,
        value_may_be_key: false,
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
        self.attend_to(l, h, None)
    }

    /// The same of what an indexer chose, if one did.
    pub(super) fn attend_to(
        self,
        l: &Layer<'_>,
        h: ValueId,
        chosen: Option<(Selection, ValueId)>,
    ) -> Result<ValueId> {
        let score = self.score(l)?;
        let (factors, rotated) = (factors(l)?, self.rotated(l)?);
        let a = if l.config.reads_layer.is_some() {
            attend(l, &[self.queries(l, h)?], factors, score, rotated, chosen)?
        } else {
            attend(l, &self.queries_keys_values(l, h)?, factors, score, rotated, chosen)?
        };
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
        let eps = l.model.norm_eps;
        match self.norm {
            HeadNorm::Rotated => {
                let vector = |name| l.w.vector(name, l.config.head_dim).map(Some);
                let (q, k) = (vector("attn_q_norm")?, vector("attn_k_norm")?);
                Ok(Some(RotatedNorm { q, k, eps }))
            }
            HeadNorm::PlainRotated => {
                Ok(l.config.rope.is_some().then_some(RotatedNorm { q: None, k: None, eps }))
            }
            HeadNorm::None
            | HeadNorm::Each
            | HeadNorm::Gained
            | HeadNorm::Own
            | HeadNorm::Whole => Ok(None),
        }
    }

    fn score(self, l: &Layer<'_>) -> Result<Score> {
        let sinks = self.sinks.then(|| l.w.optional_vector("attn_sinks", l.config.n_heads));
        Ok(Score { sinks: sinks.transpose()?.flatten(), ..l.config.score.clone() })
    }

    /// Queries, keys and values of `h`: `[n, heads, dim]` each.
    pub(super) fn queries_keys_values(self, l: &Layer<'_>, h: ValueId) -> Result<[ValueId; 3]> {
        let n_kv_heads = l.config.n_kv_heads;
        let [q, k, v] = self.products(l, h)?;
        let (q, k) = (self.query(l, q)?, self.normed(l, ["k", "attn_k"], k, n_kv_heads)?);
        let v = l.r.view("v", clamped(l, "attn_v", v)?, n_kv_heads)?;
        let v = match self.value_norm {
            true => l.r.norm("attn_v_norm", v, l.model.plain_norm())?,
            false => v,
        };
        Ok([q, k, v])
    }

    /// Queries alone: `[n, n_heads, head_dim]`.
    fn queries(self, l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
        let q = l.linear("attn_q", h, l.config.n_heads * l.config.head_dim, self.bias)?;
        self.query(l, q)
    }

    fn query(self, l: &Layer<'_>, q: ValueId) -> Result<ValueId> {
        self.normed(l, ["q", "attn_q"], q, l.config.n_heads)
    }

    /// Bounded, split into heads and normed, as far as it is to be: the value by its name as heads and as a product.
    fn normed(
        self,
        l: &Layer<'_>,
        [heads, name]: [&str; 2],
        x: ValueId,
        groups: usize,
    ) -> Result<ValueId> {
        let norm = format!("{name}_norm");
        let x = clamped(l, name, x)?;
        let x = if self.norm == HeadNorm::Whole { l.norm(&norm, x)? } else { x };
        let x = l.r.view(heads, x, groups)?;
        match self.norm {
            HeadNorm::Each => l.norm(&norm, x),
            HeadNorm::Own => l.norm_groups(&norm, x),
            HeadNorm::Gained => {
                let x = l.norm(&norm, x)?;
                if name != "attn_q" {
                    return Ok(x);
                }
                let gains = l.w.matrix(&norm, groups, 1)?;
                Ok(l.r.multiply_groups("attn_q_gained", x, gains)?)
            }
            HeadNorm::None | HeadNorm::Whole | HeadNorm::Rotated | HeadNorm::PlainRotated => Ok(x),
        }
    }

    fn products(self, l: &Layer<'_>, h: ValueId) -> Result<[ValueId; 3]> {
        const NAMES: [&str; 3] = ["attn_q", "attn_k", "attn_v"];
        let LayerConfig { n_heads, n_kv_heads, head_dim, value_dim, .. } = *l.config;
        let rows = [n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * value_dim];
        if self.joint {
            return l.joint("attn_qkv", h, NAMES, rows, self.bias);
        }
        let mut products = [h; 3];
        for (i, name) in NAMES.into_iter().enumerate() {
            let may_be_key = self.value_may_be_key && name == "attn_v";
            let is_key = may_be_key && !l.w.has(name, rows[i], l.r.shape(h).cols())?;
            products[i] = match (is_key, self.scaled) {
                (true, _) => products[1],
                (false, false) => l.linear(name, h, rows[i], self.bias)?,
                (false, true) => l.scaled_linear(name, h, rows[i], self.bias)?,
            };
        }
        Ok(products)
    }
}

/// Bounded where the model has a bound.
fn clamped(l: &Layer<'_>, name: &str, x: ValueId) -> Result<ValueId> {
    match l.model.clamp_qkv {
        Some(c) => Ok(l.r.act(&format!("{name}_clamped"), Act::Clamp(c), x)?),
        None => Ok(x),
    }
}

/// Divisors of the rotation's frequencies, where the file has some for all layers.
pub(super) fn factors(l: &Layer<'_>) -> Result<Option<WeightId>> {
    let Some(rope) = l.config.rope.as_ref().filter(|_| l.config.rope_factors) else {
        return Ok(None);
    };
    let pairs = rope.dims / 2;
    let name = if l.model.rotates_short { "rope_factors_short" } else { "rope_factors_long" };
    let of_length = match rope.scaling {
        RopeScaling::Long { .. } => l.global.optional_vector(name, pairs)?,
        _ => None,
    };
    of_length.map_or_else(|| l.global.optional_vector("rope_freqs", pairs), |it| Ok(Some(it)))
}

/// What the layer attends to, given its queries, keys and values, or its queries alone where it reads the keys and values of
/// another: `[n, n_heads * value_dim]`. `factors` divide the frequencies of the rotation.
pub(super) fn attend(
    l: &Layer<'_>,
    qkv: &[ValueId],
    factors: Option<WeightId>,
    score: Score,
    norm: Option<RotatedNorm>,
    chosen: Option<(Selection, ValueId)>,
) -> Result<ValueId> {
    let LayerConfig { n_kv_heads, head_dim: key_dim, value_dim, ref rope, .. } = *l.config;
    let window = match score.mask {
        Mask::Window(n) | Mask::Chunk(n) => Some(n as usize),
        Mask::Causal | Mask::Full | Mask::Around(_) => None,
    };
    let kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window };
    let shared = l.config.reads_layer.and_then(|layer| l.r.cache_of(layer));
    let at = Attention {
        cache: shared.unwrap_or_else(|| l.r.cache(CacheSpec { layer: l.index, kind })),
        appends: shared.is_none(),
        rope: rope.clone().map(|rope| Rope { factors, ..rope }),
        norm,
        score,
        select: chosen.map(|(select, _)| select),
    };
    let inputs: Vec<ValueId> = qkv.iter().copied().chain(chosen.map(|(_, units)| units)).collect();
    Ok(l.r.attention("attn", at, &inputs)?)
}

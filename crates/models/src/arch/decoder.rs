//! The skeleton that decoders share: embedding, blocks, selected rows, last norm, head.

use std::ops::Range;

use program::{Lookup, Norm, Recorder, ValueId};

use super::attention::Heads;
use super::{ProgramOutputs, head};
use crate::{Bias, LayerConfig, ModelConfig, Result, Weights};

/// Record a decoder whose blocks `block` records: it is given the layer and the residual stream `[n, hidden_size]`, and
/// returns the stream after the layer. The results of the program are returned.
pub(super) fn decoder(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    block: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ProgramOutputs> {
    let x = layers(r, w, c, embed(r, w, c)?, block)?;
    normed_head(r, w, c, x)
}

/// The residual stream before the first block: `[n, hidden_size]`.
pub(super) fn embed(r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
    let mut x = r.embed(w.token_embd(c)?)?;
    if let Some(n) = c.n_token_types {
        let first = w.first_row("token_types", n, c.hidden_size)?; // texts are of the first type
        x = r.add("embed_typed", x, r.lookup("token_type", first, Lookup::Only)?)?;
    }
    if let Some(n) = c.n_positions {
        let table = w.matrix("position_embd", n, c.hidden_size)?;
        x = r.add("embed_placed", x, r.lookup("positions", table, Lookup::Position)?)?;
    }
    if c.norm_embedding {
        x = r.norm("embed_normed", x, w.norm("token_embd_norm", c, c.hidden_size)?)?;
    }
    match c.embedding_scale {
        Some(factor) => Ok(r.scale("embed_scaled", x, factor)?),
        None => Ok(x),
    }
}

/// The blocks, one after another.
pub(super) fn layers(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    x: ValueId,
    block: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    some_layers(r, w, c, 0..c.layers.len(), x, block)
}

/// Some of the blocks, one after another.
pub(super) fn some_layers(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    which: Range<usize>,
    mut x: ValueId,
    block: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    for (index, config) in c.layers.iter().enumerate().take(which.end).skip(which.start) {
        r.layer(Some(index));
        x = block(&Layer { r, w: w.layer(config.block), global: w, model: c, config, index }, x)?;
    }
    r.layer(None);
    Ok(x)
}

/// The results, from the residual stream behind the last block on.
pub(super) fn normed_head(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    x: ValueId,
) -> Result<ProgramOutputs> {
    head::record(r, w, c, x, Some(w.norm("output_norm", c, c.hidden_size)?))
}

/// A decoder block that is being recorded.
pub(super) struct Layer<'a> {
    pub(super) r: &'a Recorder,
    /// Its tensors.
    pub(super) w: Weights<'a>,
    /// Those of no layer.
    pub(super) global: &'a Weights<'a>,
    pub(super) model: &'a ModelConfig,
    pub(super) config: &'a LayerConfig,
    pub(super) index: usize,
}

/// Names of the norms of a block with two halves, attention and feed-forward: before each half and after it, each
/// before its residual sum.
#[derive(Clone, Copy)]
pub(super) struct Norms {
    attn: [Option<&'static str>; 2],
    ffn: [Option<&'static str>; 2],
}

impl Norms {
    /// Before both halves.
    pub(super) const PRE: Norms =
        Norms { attn: [Some("attn_norm"), None], ffn: [Some("ffn_norm"), None] };
    /// The same, the second one named for where it stands.
    pub(super) const PRE_AND_BETWEEN: Norms =
        Norms { ffn: [Some("post_attention_norm"), None], ..Norms::PRE };
    /// Likewise.
    pub(super) const PRE_AND_OUTPUT: Norms =
        Norms { ffn: [Some("attn_output_norm"), None], ..Norms::PRE };
    /// After both.
    pub(super) const POST: Norms =
        Norms { attn: [None, Some("post_attention_norm")], ffn: [None, Some("post_ffw_norm")] };
    /// Before and after both, by names of its own.
    pub(super) const GROK: Norms = Norms {
        attn: [Some("attn_norm"), Some("attn_output_norm")],
        ffn: [Some("ffn_norm"), Some("layer_output_norm")],
    };
    /// Before and after both.
    pub(super) const SANDWICH: Norms = Norms {
        attn: [Some("attn_norm"), Some("post_attention_norm")],
        ffn: [Some("ffn_norm"), Some("post_ffw_norm")],
    };
}

impl Layer<'_> {
    /// The model's norm of each group of `x`, with the vector of the same name.
    pub(super) fn norm(&self, name: &str, x: ValueId) -> Result<ValueId> {
        let norm = self.w.norm(name, self.model, self.r.shape(x).dim)?;
        Ok(self.r.norm(name, x, norm)?)
    }

    /// The same with a vector for each group.
    pub(super) fn norm_groups(&self, name: &str, x: ValueId) -> Result<ValueId> {
        let shape = self.r.shape(x);
        let weight = Some(self.w.matrix(name, shape.groups, shape.dim)?);
        Ok(self.r.norm(name, x, Norm { weight, ..self.model.plain_norm() })?)
    }

    /// `x` plus both halves, which read the norm of `x`: with norms of their own where `norms` names two.
    pub(super) fn parallel(
        &self,
        norms: [Option<&str>; 2],
        x: ValueId,
        attend: impl Fn(&Self, ValueId) -> Result<ValueId>,
        feed: impl Fn(&Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let [first, second] = norms;
        let h = first.map_or(Ok(x), |name| self.norm(name, x))?;
        let f = second.map_or(Ok(h), |name| self.norm(name, x))?;
        let a = attend(self, h)?;
        let f = feed(self, f)?;
        let x = self.residual("attn_residual", x, a)?;
        self.residual("ffn_residual", x, f)
    }

    /// `x` times the matrix of the same name: `[n, rows]`.
    pub(super) fn linear(
        &self,
        name: &str,
        x: ValueId,
        rows: usize,
        bias: Bias,
    ) -> Result<ValueId> {
        let weight = self.w.linear(name, rows, self.r.shape(x).cols(), bias)?;
        Ok(self.r.linear(name, x, weight)?)
    }

    /// The same times the number `NAME.scale`, where the file has one.
    pub(super) fn scaled_linear(
        &self,
        name: &str,
        x: ValueId,
        rows: usize,
        bias: Bias,
    ) -> Result<ValueId> {
        let product = self.linear(name, x, rows, bias)?;
        match self.w.optional_tensor(&format!("{name}.scale"), 1)? {
            Some(scale) => Ok(self.r.multiply(&format!("{name}_scaled"), product, scale)?),
            None => Ok(product),
        }
    }

    /// `x` times matrices that stand one after another in the tensor `name`, each with as many rows as `rows` says.
    pub(super) fn joint<const N: usize>(
        &self,
        name: &str,
        x: ValueId,
        names: [&str; N],
        rows: [usize; N],
        bias: Bias,
    ) -> Result<[ValueId; N]> {
        let weights = self.w.joint(name, rows, self.r.shape(x).cols(), bias)?;
        let mut products = [x; N];
        for ((product, name), weight) in products.iter_mut().zip(names).zip(weights) {
            *product = self.r.linear(name, x, weight)?;
        }
        Ok(products)
    }

    /// `x` plus what a half of the block made of it.
    pub(super) fn residual(&self, name: &str, x: ValueId, half: ValueId) -> Result<ValueId> {
        let half = match self.model.residual_scale {
            Some(factor) => self.r.scale(&format!("{name}_scaled"), half, factor)?,
            None => half,
        };
        self.add(name, x, half)
    }

    /// `a + b`.
    pub(super) fn add(&self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        Ok(self.r.add(name, a, b)?)
    }

    /// The block of most decoders: `x + attend(norm(x))`, then the same with `feed`; norms where `norms` says.
    pub(super) fn block(
        &self,
        norms: Norms,
        x: ValueId,
        attend: impl Fn(&Self, ValueId) -> Result<ValueId>,
        feed: impl Fn(&Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let norm = |name: Option<&str>, y| name.map_or(Ok(y), |name| self.norm(name, y));
        let a = norm(norms.attn[1], attend(self, norm(norms.attn[0], x)?)?)?;
        let x = self.residual("attn_residual", x, a)?;
        let f = norm(norms.ffn[1], feed(self, norm(norms.ffn[0], x)?)?)?;
        self.residual("ffn_residual", x, f)
    }
}

/// A decoder of such blocks, all alike but for their configuration.
pub(super) fn blocks(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    norms: Norms,
    heads: Heads,
    feed: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ProgramOutputs> {
    decoder(r, w, c, |l, x| l.block(norms, x, |l, h| heads.record(l, h), &feed))
}

/// A decoder whose blocks' halves stand side by side, all alike but for their configuration.
pub(super) fn parallel_blocks(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    norms: [Option<&str>; 2],
    heads: Heads,
    feed: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ProgramOutputs> {
    decoder(r, w, c, |l, x| l.parallel(norms, x, |l, h| heads.record(l, h), &feed))
}

/// One norm for both halves of a block that stand side by side.
pub(super) const ONE_NORM: [Option<&str>; 2] = [Some("attn_norm"), None];

//! The skeleton that decoders share: embedding, blocks, selected rows, last norm, head.

use program::{Act, OutputKind, Recorder, ValueId};

use super::ProgramOutputs;
use crate::{Bias, LayerConfig, ModelConfig, Result, Weights};

/// Record a decoder whose blocks `block` records: it is given the layer and the residual stream `[n, hidden_size]`, and
/// returns the stream after the layer. The results of the program are returned.
pub(super) fn decoder(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    block: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ProgramOutputs> {
    let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
    if let Some(factor) = c.embedding_scale {
        x = r.scale("embed_scaled", x, factor)?;
    }
    for (index, config) in c.layers.iter().enumerate() {
        r.layer(Some(index));
        x = block(&Layer { r, w: w.layer(index), model: c, config, index }, x)?;
    }
    r.layer(None);
    let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
    let norm = w.vector("output_norm", c.hidden_size)?;
    let h = r.rms_norm("output_norm", x, norm, c.rms_norm_eps)?;
    let mut logits = r.linear("output", h, w.output(c)?)?; // [selected, vocab_size]
    if let Some(bound) = c.logit_softcap {
        logits = r.act("output_softcap", Act::Softcap(bound), logits)?;
    }
    Ok(vec![(OutputKind::Logits, logits), (OutputKind::Hidden, h)])
}

/// A decoder block that is being recorded.
pub(super) struct Layer<'a> {
    pub(super) r: &'a Recorder,
    /// Its tensors.
    pub(super) w: Weights<'a>,
    pub(super) model: &'a ModelConfig,
    pub(super) config: &'a LayerConfig,
    pub(super) index: usize,
}

impl Layer<'_> {
    /// RMS norm of each group of `x`, with the vector of the same name.
    pub(super) fn norm(&self, name: &str, x: ValueId) -> Result<ValueId> {
        let weight = self.w.vector(name, self.r.shape(x).dim)?;
        Ok(self.r.rms_norm(name, x, weight, self.model.rms_norm_eps)?)
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

    /// `a + b`.
    pub(super) fn add(&self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        Ok(self.r.add(name, a, b)?)
    }

    /// The block of most decoders: `x + attend(norm(x))`, then the same with `feed`.
    pub(super) fn pre_norm(
        &self,
        x: ValueId,
        attend: impl Fn(&Self, ValueId) -> Result<ValueId>,
        feed: impl Fn(&Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let a = attend(self, self.norm("attn_norm", x)?)?;
        let x = self.add("attn_residual", x, a)?;
        let f = feed(self, self.norm("ffn_norm", x)?)?;
        self.add("ffn_residual", x, f)
    }

    /// A block with norms after both halves too: `x + norm(attend(norm(x)))`, then the same with `feed`.
    pub(super) fn sandwich(
        &self,
        x: ValueId,
        attend: impl Fn(&Self, ValueId) -> Result<ValueId>,
        feed: impl Fn(&Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let after = |name: &str, y: Result<ValueId>| self.norm(name, y?);
        self.pre_norm(
            x,
            |l, h| after("post_attention_norm", attend(l, h)),
            |l, h| after("post_ffw_norm", feed(l, h)),
        )
    }
}

//! Embeddings by layer: each block adds a little of what a table of its own says of the token.
//!
//! Source: `modeling_gemma3n.py` of transformers (`per_layer_inputs`); tensor names of GGUF's `gemma3n` and `gemma4`.

use program::{Act, Norm, Recorder, ValueId};

use super::decoder::Layer;
use crate::{Bias, ModelConfig, Result, Weights};

/// What all blocks are to read, of the token and of the stream `x` before the first: `[n, n_layers, per_layer_size]`.
pub(super) fn inputs(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    x: ValueId,
) -> Result<ValueId> {
    let (size, n_layers) = (c.per_layer_size, c.layers.len());
    let width = size * n_layers;
    let tokens = r.embed(w.matrix("per_layer_token_embd", c.vocab_size, width)?)?;
    let tokens = r.scale("per_layer_embed", tokens, (size as f32).sqrt())?;
    let tokens = r.view("per_layer_tokens", tokens, n_layers)?;
    let product = w.linear("per_layer_model_proj", width, c.hidden_size, Bias::Never)?;
    let product = r.linear("per_layer_product", x, product)?;
    let product = r.scale("per_layer_scaled", product, (c.hidden_size as f32).sqrt().recip())?;
    let product = r.view("per_layer_groups", product, n_layers)?;
    let norm = Norm::rms(w.vector("per_layer_proj_norm", size)?, c.norm_eps);
    let product = r.norm("per_layer_normed", product, norm)?;
    let both = r.add("per_layer_sum", product, tokens)?;
    Ok(r.scale("per_layer_inputs", both, std::f32::consts::FRAC_1_SQRT_2)?)
}

/// What a block adds of its part of `inputs`, by a gate of `x`: `[n, hidden_size]`.
pub(super) fn branch(l: &Layer<'_>, inputs: ValueId, x: ValueId) -> Result<ValueId> {
    let size = l.model.per_layer_size;
    let gate = l.linear("inp_gate", x, size, Bias::Never)?;
    let joined = l.r.view("per_layer_joined", inputs, 1)?;
    let part = l.r.slice("per_layer_part", joined, l.index * size, size)?;
    let gated = l.r.gated_act("per_layer_gated", Act::Gelu, gate, part)?;
    let y = l.linear("proj", gated, l.model.hidden_size, Bias::Never)?;
    l.norm("post_norm", y)
}

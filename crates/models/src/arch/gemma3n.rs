//! Gemma 3n: four residual streams of which blocks work on one (AltUp), a narrow path beside attention (LAuReL), gates
//! that let few elements through, embeddings by layer, layers that read what earlier ones cached.
//!
//! Source: arXiv:2301.13310 (AltUp), arXiv:2411.07501 (LAuReL), `modeling_gemma3n.py` of transformers; tensor names of
//! GGUF's `gemma3n`.

use std::f32::consts::FRAC_1_SQRT_2;

use program::{Act, Recorder, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{self, Layer};
use super::{Architecture, ffn, gemma2, per_layer};
use crate::config::{read, window};
use crate::{Bias, ModelConfig, Result, Weights};

/// Files do not say how wide the narrow path is, and the oldest not the others.
const STREAMS: usize = 4;
const LAUREL: usize = 64;
const OWN_CACHES: usize = 20;
const SPARSE: usize = 10;
/// A normal distribution has 95 % of itself below.
const DEVIATIONS: f32 = 1.644_853_6;
const SPARSITY: &str = "activation_sparsity_scale";

pub(super) static GEMMA3N: Architecture = Architecture {
    name: "gemma3n",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        c.embedding_scale = Some((c.hidden_size as f32).sqrt());
        c.logit_softcap = Some(keys.positive("final_logit_softcapping")?.unwrap_or(30.0));
        c.per_layer_size =
            keys.count("embedding_length_per_layer_input", 1..=1 << 20)?.unwrap_or(256);
        window::apply(keys, &mut c, 5, Some(10_000.0))?;
        let silent = c.layers.len().saturating_sub(OWN_CACHES);
        window::share(keys, &mut c, silent)?;
        c.layers.iter_mut().for_each(|layer| layer.score.scale = 1.0);
        keys.count("altup.num_inputs", STREAMS as u64..=STREAMS as u64)?;
        keys.count("altup.active_idx", 0..=0)?;
        let said = match keys.get(SPARSITY) {
            Some(_) => Some(keys.numbers_per_layer(SPARSITY)?),
            None => None,
        };
        for (i, layer) in c.layers.iter_mut().enumerate() {
            let silent = if i < SPARSE { DEVIATIONS } else { 0.0 };
            let deviations = said.as_ref().map_or(silent, |said| said[i]);
            // a layer that lets all through is at minus infinity
            layer.gate_deviations = Some(deviations).filter(|x| x.is_finite() && *x > 0.0);
        }
        Ok(c)
    },
    record: |r, w, c| {
        let x = decoder::embed(r, w, c)?;
        let inputs = per_layer::inputs(r, w, c, x)?;
        let x = decoder::layers(r, w, c, split(r, w, c, x)?, |l, x| block(l, inputs, x))?;
        decoder::normed_head(r, w, c, join(r, w, c, x)?)
    },
};

/// The stream, and others that are projections of it: `[n, STREAMS, hidden_size]`.
fn split(r: &Recorder, w: &Weights<'_>, c: &ModelConfig, x: ValueId) -> Result<ValueId> {
    let mut streams = vec![x];
    for matrix in w.each("altup_proj", STREAMS - 1, c.hidden_size, c.hidden_size)? {
        let y = r.linear("altup_product", x, matrix)?;
        streams.push(r.resize("altup_stream", y, x)?);
    }
    Ok(r.concat("streams", &streams)?)
}

/// The mean of the first stream and of projections of the others.
fn join(r: &Recorder, w: &Weights<'_>, c: &ModelConfig, x: ValueId) -> Result<ValueId> {
    let size = c.hidden_size;
    let all = r.view("streams_joined", x, 1)?;
    let first = r.slice("stream", all, 0, size)?;
    let mut sum = first;
    for (i, matrix) in (1..).zip(w.each("altup_unembd_proj", STREAMS - 1, size, size)?) {
        let y = r.linear("altup_product", r.slice("stream", all, i * size, size)?, matrix)?;
        sum = r.add("streams_sum", sum, r.resize("altup_stream", y, first)?)?;
    }
    Ok(r.scale("streams_mean", sum, 1.0 / STREAMS as f32)?)
}

fn block(l: &Layer<'_>, inputs: ValueId, x: ValueId) -> Result<ValueId> {
    let size = l.model.hidden_size;
    let active = |x| {
        Ok::<_, crate::Error>(l.r.slice("stream", l.r.view("streams_joined", x, 1)?, 0, size)?)
    };
    // predict
    let by =
        l.linear("altup_predict_coef", modalities(l, active(x)?)?, STREAMS * STREAMS, Bias::Never)?;
    let x = l.add("altup_predicted", l.r.mix("altup_prediction", by, x)?, x)?;
    let predicted = active(x)?;
    let y = decoded(l, predicted)?;
    // correct
    let missed = l.add("altup_innovation", y, l.r.scale("altup_negated", predicted, -1.0)?)?;
    let by = l.linear("altup_correct_coef", modalities(l, y)?, STREAMS, Bias::Never)?;
    let corrections = l.r.mix("altup_corrections", by, missed)?;
    let x = l.add("altup_half_corrected", x, corrections)?;
    let x = l.add("altup_corrected", x, l.r.concat("altup_innovations", &[missed; STREAMS])?)?;
    // what the layer says of the token goes to the other streams
    let joined = l.r.view("streams_joined", x, 1)?;
    let (first, others) =
        (active(x)?, l.r.slice("streams_rest", joined, size, (STREAMS - 1) * size)?);
    let scale = l.w.vector("altup_correct_scale", size)?;
    let scaled = l.r.multiply("altup_scaled", first, scale)?;
    let branch = per_layer::branch(l, inputs, scaled)?;
    let branches = l.r.concat("per_layer_branches", &[branch; STREAMS - 1])?;
    let others = l.r.view("streams_others", others, STREAMS - 1)?;
    let others = l.add("per_layer_residual", others, branches)?;
    Ok(l.r.concat("streams", &[first, others])?)
}

/// How much of each stream: `[n, STREAMS]`.
fn modalities(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let h = l.norm("altup_router_norm", x)?;
    let m = l.linear("altup_router", h, STREAMS, Bias::Never)?;
    let m = l.r.scale("altup_scores", m, 1.0 / l.model.hidden_size as f32)?;
    Ok(l.r.act("altup_modalities", Act::Tanh, m)?)
}

/// Attention with the narrow path beside it, then the feed-forward layer.
fn decoded(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let h = l.norm("attn_norm", x)?;
    let narrow = l.linear("laurel_l", h, LAUREL, Bias::Never)?;
    let narrow = l.linear("laurel_r", narrow, l.model.hidden_size, Bias::Never)?;
    let laurel = l.add("laurel_out", l.norm("laurel_post_norm", narrow)?, h)?;
    let a = Heads { value_norm: true, ..Heads::NORMED }.record(l, h)?;
    let a = l.add("attn_residual", l.norm("post_attention_norm", a)?, x)?;
    let a = l.r.scale("attn_scaled", l.add("laurel_residual", a, laurel)?, FRAC_1_SQRT_2)?;
    let h = l.norm("ffn_norm", a)?;
    let f = match l.config.gate_deviations {
        Some(deviations) => sparse(l, deviations, h)?,
        None => gemma2::feed(l, h)?,
    };
    l.add("ffn_residual", a, l.norm("post_ffw_norm", f)?)
}

/// A feed-forward layer whose gates are those far above their mean.
fn sparse(l: &Layer<'_>, deviations: f32, h: ValueId) -> Result<ValueId> {
    let ffn::Gated { width, bias, .. } = ffn::Gated::of(l);
    let gate = l.linear("ffn_gate", h, width, bias)?;
    let gate = l.r.excess("ffn_gate_excess", gate, deviations)?;
    let up = l.linear("ffn_up", h, width, bias)?;
    let f = l.r.gated_act("ffn_act", Act::Gelu, gate, up)?;
    l.linear("ffn_down", f, l.model.hidden_size, bias)
}

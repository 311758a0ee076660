//! LFM2: gated convolutions over the last few rows, and attention in every few layers.
//!
//! Source: arXiv:2511.23404, section 2; tensor names of GGUF's `lfm2` and `lfm2moe`.

use program::{Act, ConvWeights, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{self, Layer, Norms};
use super::{Architecture, ProgramOutputs, ffn, head};
use crate::config::experts::{self, Silent};
use crate::config::{Recurrent, read, recurrent};
use crate::{Bias, Keys, ModelConfig, Result, Weights};

pub(super) static LFM2: Architecture = Architecture {
    name: "lfm2",
    config: |keys| {
        experts::none(keys)?;
        config(keys)
    },
    record,
};

/// Dense layers first, then experts.
pub(super) static LFM2_MOE: Architecture = Architecture {
    name: "lfm2moe",
    config: |keys| {
        let mut c = config(keys)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        Ok(c)
    },
    record,
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig> {
    let mut c = read::with_recurrent(keys, RopePairs::HalfSplit)?;
    recurrent::where_bare(&mut c, &Recurrent::convolution(keys, "shortconv.l_cache")?);
    Ok(c)
}

/// The last norm is named for the embedding.
fn record(r: &program::Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ProgramOutputs> {
    let x = decoder::embed(r, w, c)?;
    let x = decoder::layers(r, w, c, x, |l, x| l.block(Norms::PRE, x, mix, ffn::feed))?;
    let name =
        if w.has_vector("output_norm", c.hidden_size)? { "output_norm" } else { "token_embd_norm" };
    head::record(r, w, c, x, Some(w.norm(name, c, c.hidden_size)?))
}

fn mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some(s) = &l.config.recurrent else { return Heads::NORMED.record(l, h) };
    let n = l.model.hidden_size;
    let [b, c, x] = l.joint("shortconv.in_proj", h, ["b", "c", "x"], [n; 3], Bias::IfPresent)?;
    let x = l.r.gated_act("bx", Act::Identity, b, x)?;
    let taps = l.w.matrix("shortconv.conv", n, s.conv_width)?;
    let x = l.r.causal_conv("conv", x, ConvWeights { taps, bias: None }, None)?;
    let x = l.r.gated_act("cx", Act::Identity, c, x)?;
    l.linear("shortconv.out_proj", x, n, Bias::IfPresent)
}

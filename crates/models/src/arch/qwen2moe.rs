//! Qwen1.5-MoE and Qwen2-MoE: the attention of Qwen2, experts beside a shared one that each token weighs.
//!
//! Source: arXiv:2407.10671, section 2.2.2; tensor names of GGUF's `qwen2moe`.

use program::{Act, RopePairs, ValueId};

use super::decoder::{Layer, Norms, blocks};
use super::qwen2::BIASED;
use super::{Architecture, ffn};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::{Bias, Result};

pub(super) static QWEN2_MOE: Architecture = Architecture {
    name: "qwen2moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::PLAIN)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, BIASED, feed),
};

pub(super) fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some(e) = &l.config.experts else { return ffn::feed(l, h) };
    let f = ffn::experts(l, e, h, h)?;
    let shared = ffn::Gated::shared(l, e).record(l, h)?;
    let weight = l.linear("ffn_gate_inp_shexp", h, 1, Bias::Never)?; // [n, 1]
    let shared = l.r.gated_act("ffn_shexp", Act::Sigmoid, weight, shared)?;
    l.add("ffn_out", f, shared)
}

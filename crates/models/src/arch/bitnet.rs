//! BitNet b1.58: ternary weights with a factor for each matrix; norms within both halves of a block.
//!
//! Source: arXiv:2402.17764, section 2; tensor names of GGUF's `bitnet`.

use program::{Act, RopePairs, ValueId};

use super::Architecture;
use super::attention::Heads;
use super::decoder::{Layer, Norms, decoder};
use crate::config::read;
use crate::{Bias, Result};

pub(super) static BITNET: Architecture = Architecture {
    name: "bitnet",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, attend, feed)),
};

fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let a = Heads { scaled: true, ..Heads::PLAIN }.attend(l, h)?;
    let a = l.norm("attn_sub_norm", a)?;
    l.scaled_linear("attn_output", a, l.model.hidden_size, Bias::IfPresent)
}

fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let width = l.config.intermediate_size;
    let gate = l.scaled_linear("ffn_gate", h, width, Bias::IfPresent)?;
    let up = l.scaled_linear("ffn_up", h, width, Bias::IfPresent)?;
    let f = l.r.gated_act("ffn_act", Act::Silu, gate, up)?;
    let f = l.norm("ffn_sub_norm", f)?;
    l.scaled_linear("ffn_down", f, l.model.hidden_size, Bias::IfPresent)
}

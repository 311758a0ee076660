//! Arctic: a dense layer and experts in every block; the experts read the block's input with a norm of their own.
//!
//! Source: Snowflake Arctic's model card and `modeling_arctic.py`; tensor names of GGUF's `arctic`.

use program::{RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ffn};
use crate::Result;
use crate::config::experts::{self, Silent, Width};
use crate::config::read;

pub(super) static ARCTIC: Architecture = Architecture {
    name: "arctic",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        experts::read(
            keys,
            &mut c,
            &Silent { normalize: true, width: Width::OfDense, both: true, ..Silent::PLAIN },
        )?;
        // the dense layer is as wide as the residual stream
        let hidden_size = c.hidden_size;
        c.layers.iter_mut().for_each(|layer| layer.intermediate_size = hidden_size);
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, block),
};

fn block(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    let dense = |l: &Layer<'_>, h| ffn::Gated::of(l).record(l, h);
    let out = l.block(Norms::PRE, x, |l, h| Heads::PLAIN.record(l, h), dense)?;
    let Some(e) = &l.config.experts else { return Ok(out) };
    let h = l.norm("ffn_norm_exps", x)?;
    let experts = ffn::experts(l, e, h, h)?;
    l.residual("ffn_exps_residual", out, experts)
}

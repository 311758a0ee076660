//! DeciLM and Llama-Nemotron: Llama some of whose layers have no attention or a matrix in place of it, or are skipped.
//!
//! Source: arXiv:2411.19146, section 2; tensor names of GGUF's `deci`.

use program::RopePairs;

use super::Architecture;
use super::attention::Heads;
use super::decoder::decoder;
use super::ffn;
use crate::Bias;
use crate::config::read;

pub(super) static DECI: Architecture = Architecture {
    name: "deci",
    config: |keys| read::with_gaps(keys, RopePairs::Interleaved),
    record: |r, w, c| {
        decoder(r, w, c, |l, mut x| {
            // files of Nemotron Ultra name blocks that are nothing at all
            if l.config.intermediate_size == 0 {
                return Ok(x);
            }
            if l.config.n_heads > 0 {
                let h = l.norm("attn_norm", x)?;
                let a = match l.config.n_kv_heads {
                    0 => l.linear("attn_output", h, c.hidden_size, Bias::IfPresent)?,
                    _ => Heads::PLAIN.record(l, h)?,
                };
                x = l.residual("attn_residual", x, a)?;
            }
            let f = ffn::feed(l, l.norm("ffn_norm", x)?)?;
            l.residual("ffn_residual", x, f)
        })
    },
};

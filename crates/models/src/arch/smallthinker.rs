//! SmallThinker: experts are chosen by what a block reads, before its attention; windows on three of four layers, which
//! alone rotate.
//!
//! Source: arXiv:2507.20984, section 2; tensor names of GGUF's `smallthinker`.

use program::{Act, Gate, Gating, Mask, RopePairs};

use super::Architecture;
use super::attention::Heads;
use super::decoder::decoder;
use super::ffn;
use crate::Error;
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

/// Whatever a file says, if it says something.
const WINDOW: u32 = 4096;

/// The first of so many layers sees all and does not rotate.
const PERIOD: usize = 4;

pub(super) static SMALLTHINKER: Architecture = Architecture {
    name: "smallthinker",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        let gating = Gating::Sigmoid;
        experts::read(keys, &mut c, &Silent { gating, ..Silent::NORMALIZED })?;
        let windows = keys.count("attention.sliding_window", 0..=1 << 24)?.unwrap_or(0) > 0;
        // llama.cpp's rule, and so what files of one period mean
        let all_rotate = c.layers.len() == PERIOD;
        for (i, layer) in c.layers.iter_mut().enumerate() {
            if let Some(experts) = &mut layer.experts {
                experts.act = Gate::Act(Act::Relu);
            }
            if windows && i % PERIOD == 0 {
                layer.rope = layer.rope.take().filter(|_| all_rotate);
            } else if windows {
                window::set(keys, &mut layer.score, Mask::Window(WINDOW))?;
            }
        }
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| {
            let e = l.config.experts.as_ref().ok_or_else(|| Error::incomplete(l.model))?;
            let a = Heads::PLAIN.record(l, l.norm("attn_norm", x)?)?;
            let y = l.residual("attn_residual", x, a)?;
            let f = ffn::experts(l, e, l.norm("ffn_norm", y)?, x)?;
            l.residual("ffn_residual", y, f)
        })
    },
};

//! gpt-oss: windows on every other layer, sinks, biases everywhere, experts with bounded activations.
//!
//! Source: arXiv:2508.10925, section 2; tensor names of GGUF's `gpt-oss`.

use program::{Gate, RopePairs};

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn};
use crate::Bias;
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

pub(super) static GPT_OSS: Architecture = Architecture {
    name: "gpt-oss",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        for experts in c.layers.iter_mut().flat_map(|layer| &mut layer.experts) {
            experts.biases = Bias::Always;
            experts.act = Gate::SwigluOai { alpha: 1.702, limit: 7.0 };
        }
        window::apply(keys, &mut c, 2, None)?;
        Ok(c)
    },
    record: |r, w, c| {
        let heads =
            Heads { bias: Bias::Always, out_bias: Bias::Always, sinks: true, ..Heads::PLAIN };
        blocks(r, w, c, Norms::PRE_AND_BETWEEN, heads, ffn::feed)
    },
};

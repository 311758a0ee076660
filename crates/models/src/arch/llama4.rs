//! Llama 4: stretches of positions that layers see within, every fourth layer seeing all without rotation; experts whose
//! inputs are weighed, one for each token.
//!
//! Source: `modeling_llama4.py` of transformers; tensor names of GGUF's `llama4`.

use program::{Gating, Mask, RopePairs, Temperature};

use super::Architecture;
use super::attention::{HeadNorm, Heads};
use super::decoder::{Norms, blocks};
use super::ffn;
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

/// Files do not say these.
const CHUNK: u32 = 8192;
const TEMPERATURE: Temperature = Temperature { beta: 0.1, floor: 8192.0, offset: 1.0 };
/// Maverick, whose heads are not normed, is told by its experts.
const MAVERICK_EXPERTS: usize = 128;

pub(super) static LLAMA4: Architecture = Architecture {
    name: "llama4",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::PLAIN })?;
        for experts in c.layers.iter_mut().flat_map(|layer| &mut layer.experts) {
            experts.weighs_inputs = true;
            experts.shared_intermediate_size = experts.intermediate_size;
        }
        // a window of 0 says that all layers see all, and rotate
        if keys.count("attention.sliding_window", 0..=1 << 24)? == Some(0) {
            return Ok(c);
        }
        for (i, layer) in c.layers.iter_mut().enumerate() {
            if (i + 1) % 4 == 0 {
                layer.rope = None;
                layer.score.temperature = Some(TEMPERATURE);
            } else {
                window::set(keys, &mut layer.score, Mask::Chunk(CHUNK))?;
            }
        }
        Ok(c)
    },
    record: |r, w, c| {
        let experts = c.layers.iter().find_map(|layer| layer.experts.as_ref());
        let normed = experts.is_some_and(|experts| experts.n_experts != MAVERICK_EXPERTS);
        let norm = if normed { HeadNorm::PlainRotated } else { HeadNorm::None };
        blocks(r, w, c, Norms::PRE, Heads { norm, ..Heads::PLAIN }, ffn::feed)
    },
};

//! Decoders with windows on most layers that differ from others in settings: Mellum, PLaMo 3, MiMo-V2, Maple.
//!
//! Source: tensor names of GGUF's `mellum`, `plamo3`, `mimo2` and `maple`, and the models' `config.json`.

use program::{Gate, Gating, RopePairs};

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn, glm, qwen3};
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

pub(super) static MELLUM: Architecture = Architecture {
    name: "mellum",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        window::mask(keys, &mut c, 4)?;
        Ok(c)
    },
    record: qwen3::QWEN3.record,
};

/// Activations are bounded; layers with a window rotate alone, by a base of their own.
pub(super) static MAPLE: Architecture = Architecture {
    name: "maple",
    config: |keys| {
        let mut c = (MELLUM.config)(keys)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        if let Some(limit) = keys.positive_or_zero("swiglu_clamp_exp")? {
            for experts in c.layers.iter_mut().flat_map(|layer| &mut layer.experts) {
                experts.act = Gate::ClampedSwiglu { limit, after: false };
            }
        }
        Ok(c)
    },
    ..MELLUM
};

pub(super) static PLAMO3: Architecture = Architecture {
    name: "plamo3",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        window::apply(keys, &mut c, 8, None)?;
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { joint: true, ..Heads::NORMED };
        blocks(r, w, c, Norms::SANDWICH, heads, glm::feed)
    },
};

/// Sinks on layers with a window; a factor on values.
pub(super) static MIMO2: Architecture = Architecture {
    name: "mimo2",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { gating: Gating::Sigmoid, ..Silent::NORMALIZED })?;
        window::apply(keys, &mut c, 6, None)?;
        c.attention_scale = keys.positive_or_zero("attention.value_scale")?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { sinks: true, ..Heads::PLAIN }, ffn::feed),
};

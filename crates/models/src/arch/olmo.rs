//! OLMo 2 and 3, OLMoE: norms on q and k over all heads of a row together.
//!
//! Source: arXiv:2501.00656, section 2; arXiv:2409.02060, section 2; tensor names of GGUF's `olmo2` and `olmoe`.

use program::RopePairs;

use super::Architecture;
use super::attention::{HeadNorm, Heads};
use super::decoder::{Norms, blocks};
use super::ffn;
use crate::config::experts::{self, Silent, Width};
use crate::config::{read, window};

pub(super) const WHOLE: Heads = Heads { norm: HeadNorm::Whole, ..Heads::PLAIN };

/// Norms after both halves of a block, none before; the third has windows on three of four layers.
pub(super) static OLMO2: Architecture = Architecture {
    name: "olmo2",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::scale_others(&mut c, &windows);
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::POST, WHOLE, ffn::feed),
};

pub(super) static OLMOE: Architecture = Architecture {
    name: "olmoe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::PLAIN })?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, WHOLE, ffn::feed),
};

/// MiniMax M2: the same with sigmoids.
pub(super) static MINIMAX_M2: Architecture = Architecture {
    name: "minimax-m2",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    ..OLMOE
};

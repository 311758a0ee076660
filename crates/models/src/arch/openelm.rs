//! OpenELM: heads and widths grow from layer to layer.
//!
//! Source: arXiv:2404.14619, section 2.1; tensor names of GGUF's `openelm`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn};
use crate::config::read;

pub(super) static OPENELM: Architecture = Architecture {
    name: "openelm",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| {
        blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::NORMED }, ffn::feed)
    },
};

//! Phi-3, Phi-3.5 and Phi-4: q, k and v in one tensor, gate and up in another.
//!
//! Source: arXiv:2404.14219, section 2; tensor names of GGUF's `phi3`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, glm};
use crate::config::read;

pub(super) static PHI3: Architecture = Architecture {
    name: "phi3",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads { joint: true, ..Heads::PLAIN }, glm::feed),
};

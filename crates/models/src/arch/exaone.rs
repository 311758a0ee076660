//! EXAONE 3 and 4: Llama with factors of the frequencies; the fourth has norms after both halves and on q and k.
//!
//! Source: arXiv:2408.03541, section 2; arXiv:2507.11407, section 2; tensor names of GGUF's `exaone` and `exaone4`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn, llama};
use crate::config::experts::{self, Silent};
use crate::config::{read, window};

pub(super) static EXAONE: Architecture = Architecture {
    name: "exaone",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: llama::record,
};

/// The 32B, which files tell by its 64 layers only, has windows, and rotates on the layers that have one alone.
pub(super) static EXAONE4: Architecture = Architecture {
    name: "exaone4",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        if c.layers.len() == 64 {
            let windows = window::apply(keys, &mut c, 4, None)?;
            window::rotate_within(keys, &mut c, &windows)?;
        }
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::POST, Heads::NORMED, ffn::feed),
};

/// K-EXAONE.
pub(super) static EXAONE_MOE: Architecture = Architecture {
    name: "exaone-moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::PLAIN)?;
        let windows = window::apply(keys, &mut c, 4, None)?;
        window::rotate_within(keys, &mut c, &windows)?;
        Ok(c)
    },
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::NORMED, ffn::feed),
};

//! Hunyuan, dense or with experts beside a shared one, and Maincoder: norms on the heads of q and k behind the rotation.
//!
//! Source: arXiv:2411.02265, section 2.2; tensor names of GGUF's `hunyuan-dense`, `hunyuan-moe`, `maincoder`.

use program::RopePairs;

use super::attention::{HeadNorm, Heads};
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn};
use crate::config::experts::{self, Silent, Width};
use crate::config::read;

pub(super) const ROTATED: Heads = Heads { norm: HeadNorm::Rotated, ..Heads::PLAIN };

pub(super) static HUNYUAN_DENSE: Architecture = Architecture {
    name: "hunyuan-dense",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, ROTATED, ffn::feed),
};

pub(super) static MAINCODER: Architecture = Architecture {
    name: "maincoder",
    config: |keys| read::dense(keys, RopePairs::Interleaved),
    ..HUNYUAN_DENSE
};

pub(super) static HUNYUAN_MOE: Architecture = Architecture {
    name: "hunyuan-moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    ..HUNYUAN_DENSE
};

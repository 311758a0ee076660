//! DeepSeek-V2, V2-Lite, V3 and R1: latent attention, then a dense layer or experts beside a shared one.
//!
//! Source: arXiv:2405.04434, section 2; arXiv:2412.19437, section 2.1; tensor names of GGUF's `deepseek2`.

use program::{RopePairs, ValueId};

use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ffn, latent};
use crate::Result;
use crate::config;
use crate::config::experts::{self, Silent};

pub(super) static DEEPSEEK2: Architecture = Architecture {
    name: "deepseek2",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent::PLAIN)?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, block),
};

pub(super) fn block(l: &Layer<'_>, x: ValueId) -> Result<ValueId> {
    l.block(Norms::PRE, x, latent::attend, ffn::feed)
}

//! DeepSeek-V2, V2-Lite, V3 and R1: latent attention, then a dense layer or experts beside a shared one.
//!
//! Source: arXiv:2405.04434, section 2; arXiv:2412.19437, section 2.1; tensor names of GGUF's `deepseek2`.

use program::{RopePairs, ValueId};

use super::decoder::{Layer, decoder};
use super::{Architecture, ffn, latent};
use crate::Result;
use crate::config;
use crate::config::experts::{self, Silent};

pub(super) static DEEPSEEK2: Architecture = Architecture {
    name: "deepseek2",
    config: |keys| {
        let mut c = config::latent::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent { normalize: false, joint_width: true })?;
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.pre_norm(x, latent::attend, feed)),
};

fn feed(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let f = ffn::feed(l, h)?;
    match &l.config.experts {
        Some(e) if e.shared_intermediate_size > 0 => {
            let shared = ffn::Gated::shared(e).record(l, h)?;
            l.add("ffn_out", f, shared)
        }
        _ => Ok(f),
    }
}

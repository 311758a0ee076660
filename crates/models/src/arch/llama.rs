//! Llama 1 to 3 and what shares their shape, Mixtral too: interleaved rotation, which may be slowed by factors from the
//! file; biases where the file has them.
//!
//! Source: arXiv:2302.13971, section 2.2; arXiv:2407.21783, section 3.2; tensor names of GGUF's `llama`.

use program::RopePairs;

use super::decoder::decoder;
use super::{Architecture, attention, ffn};
use crate::Bias;
use crate::config::experts::{self, Silent};
use crate::config::read;

pub(super) static LLAMA: Architecture = Architecture {
    name: "llama",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        if keys.count("expert_count", 0..=u64::MAX)?.is_some_and(|n| n > 0) {
            experts::read(keys, &mut c, &Silent { normalize: true, joint_width: false })?;
        }
        Ok(c)
    },
    record: |r, w, c| {
        // Llama 3.1 and later: a divisor for each frequency.
        let dims = c.first_layer().rope.as_ref().map_or(0, |rope| rope.dims);
        let factors = w.optional_vector("rope_freqs", dims / 2)?;
        decoder(r, w, c, |l, x| {
            let attend = |l: &_, h| {
                let qkv = attention::heads(l, h, Bias::IfPresent)?;
                attention::attend(l, qkv, factors, Bias::IfPresent)
            };
            l.pre_norm(x, attend, |l, h| match l.config.experts {
                Some(_) => ffn::feed(l, h),
                None => ffn::Gated { bias: Bias::IfPresent, ..ffn::Gated::of(l) }.record(l, h),
            })
        })
    },
};

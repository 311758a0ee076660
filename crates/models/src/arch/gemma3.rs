//! Gemma 3: as Gemma 2 with norms on each head of q and k in place of soft caps, and a window on five of six layers, where
//! the rotation has a base of its own.
//!
//! Source: arXiv:2503.19786, section 2; tensor names of GGUF's `gemma3`.

use program::{Mask, RopePairs, RopeScaling};

use super::decoder::decoder;
use super::{Architecture, gemma2, qwen3};
use crate::config::{read, window};

pub(super) static GEMMA3: Architecture = Architecture {
    name: "gemma3",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        gemma2::scale(&mut c, 62);
        c.logit_softcap = keys.positive_or_zero("final_logit_softcapping")?;
        let theta = keys.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
        for (layer, window) in c.layers.iter_mut().zip(window::read(keys, 6)?) {
            let Some(window) = window else { continue };
            layer.score.mask = Mask::Window(window);
            if let Some(rope) = &mut layer.rope {
                (rope.theta, rope.scaling) = (theta, RopeScaling::None);
            }
        }
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.sandwich(x, qwen3::attend, gemma2::feed)),
};

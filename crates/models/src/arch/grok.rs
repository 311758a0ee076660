//! Grok 1 and 2: soft caps on scores and logits, norms before and after each half, experts, in the second beside a dense
//! layer.
//!
//! Source: the model code published with Grok-1's weights; tensor names of GGUF's `grok`.

use program::{Act, Gate, RopePairs};

use super::Architecture;
use super::attention::Heads;
use super::decoder::{Norms, decoder};
use super::{ffn, gemma2};
use crate::Error;
use crate::config::experts::{self, Silent};
use crate::config::read;

/// As Grok-1's files, which leave some keys out, mean it.
const EMBEDDING_SCALE: f32 = 78.383_67;
const LOGIT_SCALE: f32 = 0.577_350_26;
const OUTPUT_SCALE: f32 = 0.088_388_35;
const SOFTCAP: f32 = 30.0;

pub(super) static GROK: Architecture = Architecture {
    name: "grok",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { both: true, ..Silent::NORMALIZED })?;
        c.embedding_scale = Some(keys.positive("embedding_scale")?.unwrap_or(EMBEDDING_SCALE));
        c.logit_scale = Some(keys.positive("logit_scale")?.unwrap_or(LOGIT_SCALE));
        c.logit_softcap = keys.positive_or_zero("final_logit_softcapping")?;
        let scale = keys.positive("attention.output_scale")?.unwrap_or(OUTPUT_SCALE);
        let softcap = keys.positive("attn_logit_softcapping")?.unwrap_or(SOFTCAP);
        for layer in &mut c.layers {
            (layer.score.scale, layer.score.softcap) = (scale, Some(softcap));
            if let Some(experts) = &mut layer.experts {
                experts.act = Gate::Act(Act::Gelu);
            }
        }
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| {
            l.block(
                Norms::GROK,
                x,
                |l, h| Heads::PLAIN.record(l, h),
                |l, h| {
                    let e = l.config.experts.as_ref().ok_or_else(|| Error::incomplete(l.model))?;
                    let experts = ffn::experts(l, e, h, h)?;
                    if !l.w.has("ffn_up", l.config.intermediate_size, l.model.hidden_size)? {
                        return Ok(experts);
                    }
                    let both = l.add("ffn_out", gemma2::feed(l, h)?, experts)?;
                    Ok(l.r.scale("ffn_scaled", both, std::f32::consts::FRAC_1_SQRT_2)?)
                },
            )
        })
    },
};

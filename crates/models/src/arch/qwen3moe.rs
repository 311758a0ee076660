//! Qwen3-MoE: the attention of Qwen3, experts whose weights are normalized.
//!
//! Source: arXiv:2505.09388, section 2; tensor names of GGUF's `qwen3moe`.

use program::{Recorder, ValueId};

use super::{Architecture, ffn, qwen3};
use crate::{Error, ModelConfig, Result, Weights};

pub(super) struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn experts(&self) -> bool {
        true
    }

    fn record(&self, r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ValueId> {
        let (hidden_size, eps) = (c.hidden_size, c.rms_norm_eps);
        let e = c.experts.as_ref().ok_or_else(|| Error::incomplete(c))?;

        let mut x = r.embed(w.token_embd(c)?)?; // [n, hidden_size]
        for i in 0..c.n_layers {
            r.layer(Some(i));
            let w = w.layer(i);
            x = qwen3::attend(r, &w, c, i, x)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let f = ffn::experts(r, &w, e, h)?;
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

//! Qwen1.5-MoE and Qwen2-MoE: the attention of Qwen2, experts beside a shared one that each token weighs.
//!
//! Source: arXiv:2407.10671, section 2.2.2; tensor names of GGUF's `qwen2moe`.

use program::{Act, Recorder, ValueId};

use super::{Architecture, ffn, qwen2};
use crate::{Error, ModelConfig, Result, Weights};

pub(super) struct Qwen2Moe;

impl Architecture for Qwen2Moe {
    fn name(&self) -> &'static str {
        "qwen2moe"
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
            x = qwen2::attend(r, &w, c, i, x)?;

            let h = r.rms_norm("ffn_norm", x, w.vector("ffn_norm", hidden_size)?, eps)?;
            let f = ffn::experts(r, &w, e, h)?;
            let shared = ffn::gated(r, &w, "_shexp", e.shared_intermediate_size, h)?;
            let weigh = w.matrix("ffn_gate_inp_shexp", 1, hidden_size)?;
            let weight = r.linear("ffn_gate_inp_shexp", h, weigh)?; // [n, 1]
            let shared = r.gated_act("ffn_shexp", Act::Sigmoid, weight, shared)?;
            let f = r.add("ffn_out", f, shared)?;
            x = r.add("ffn_residual", x, f)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?; // the head runs only where logits are wanted
        let h = r.rms_norm("output_norm", x, w.vector("output_norm", hidden_size)?, eps)?;
        Ok(r.linear("output", h, w.output(c)?)?) // [selected, vocab_size]
    }
}

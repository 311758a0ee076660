//! MiniMax-01: lightning attention in most layers, softmax attention in every few; each half goes on from its norm.
//!
//! Source: arXiv:2501.08313, section 2; tensor names of GGUF's `minimax-01`.

use program::{Act, RopePairs, ScanKind, ValueId};

use super::attention::Heads;
use super::decoder::{Layer, decoder};
use super::{Architecture, ffn};
use crate::config::experts::{self, Silent, Width};
use crate::config::{Recurrent, read, recurrent};
use crate::{Bias, Result};

pub(super) static MINIMAX_01: Architecture = Architecture {
    name: "minimax-01",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        c.residual_scale = keys.positive_or_zero("residual_scale")?;
        let first = c.first_layer();
        let its = Recurrent::of_heads(first.n_heads, first.head_dim);
        recurrent::where_named(keys, &mut c, &its)?;
        Ok(c)
    },
    record: |r, w, c| {
        decoder(r, w, c, |l, x| {
            let h = l.norm("attn_norm", x)?;
            let a = mix(l, h)?;
            let x = behind_norm(l, "attn_residual", h, a)?;
            let h = l.norm("ffn_norm", x)?;
            let f = ffn::feed(l, h)?;
            behind_norm(l, "ffn_residual", h, f)
        })
    },
};

/// A half's result and, larger, the norm that it read.
fn behind_norm(l: &Layer<'_>, name: &str, h: ValueId, y: ValueId) -> Result<ValueId> {
    let h = l.r.scale(&format!("{name}_scaled"), h, l.model.residual_scale.unwrap_or(1.0))?;
    l.add(name, h, y)
}

fn mix(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let Some(s) = &l.config.recurrent else { return Heads::PLAIN.record(l, h) };
    let (n, heads, dim) = (s.inner_size, s.n_heads, s.state_size);
    let qkv = l.linear("attn_qkv", h, 3 * n, Bias::Never)?;
    let qkv = l.r.view("qkv_heads", l.r.act("qkv", Act::Silu, qkv)?, heads)?;
    let part = |name: &str, i: usize| l.r.slice(name, qkv, i * dim, dim);
    // heads forget the slower, the later the layer
    let last = (l.model.layers.len() - 1).max(1) as f32;
    let kind = ScanKind::Lightning { factor: 1.0 - l.index as f32 / last + 1e-5 };
    let y = l.r.scan("scan", kind, false, &[part("q", 0)?, part("k", 1)?, part("v", 2)?])?;
    let y = l.norm("attn_norm_2", y)?;
    let gate = l.linear("attn_gate", h, n, Bias::Never)?;
    let y = l.r.gated_act("gated", Act::Sigmoid, gate, y)?;
    l.linear("attn_output", y, l.model.hidden_size, Bias::Never)
}

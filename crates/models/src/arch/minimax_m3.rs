//! MiniMax M3: attention to blocks of the past that an indexer chooses, experts with a bounded activation.
//!
//! Source: tensor names of GGUF's `minimax-m3`.

use program::{Gate, IndexScore, Rope, RopePairs, Selection, ValueId};

use super::attention::{self, Heads};
use super::decoder::{Layer, Norms, decoder};
use super::{Architecture, ffn, indexer};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::{Bias, IndexerConfig, Result};

const GATE: Gate = Gate::SwigluOai { alpha: 1.702, limit: 7.0 };

/// Layers with experts choose what they attend to, each of their key-value heads for itself.
pub(super) static MINIMAX_M3: Architecture = Architecture {
    name: "minimax-m3",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent::PLAIN)?;
        let its = IndexerConfig::of_blocks(keys, c.norm_eps)?;
        for layer in &mut c.layers {
            layer.gate = GATE;
            if let Some(experts) = &mut layer.experts {
                (experts.act, experts.shared_act) = (GATE, GATE);
                layer.indexer = Some(its.clone());
            }
        }
        Ok(c)
    },
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, attend, ffn::feed)),
};

fn attend(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    let a = Heads::NORMED.attend_to(l, h, choose(l, h)?)?;
    l.linear("attn_output", a, l.model.hidden_size, Bias::IfPresent)
}

/// Blocks for each key-value head; `None` in a layer that reads all.
fn choose(l: &Layer<'_>, h: ValueId) -> Result<Option<(Selection, ValueId)>> {
    let Some(its) = &l.config.indexer else { return Ok(None) };
    let IndexerConfig { n_heads, head_dim, .. } = *its;
    let q = l.linear("indexer.q_proj", h, n_heads * head_dim, Bias::Never)?;
    let q = l.norm("indexer.q_norm", l.r.view("indexer.q", q, n_heads)?)?;
    let k = l.norm("indexer.k_norm", l.linear("indexer.k_proj", h, head_dim, Bias::Never)?)?;
    let factors = attention::factors(l)?;
    let rope = l.config.rope.clone().map(|rope| Rope { factors, ..rope });
    let at = indexer::recorded(l, its, rope, IndexScore::PerHead);
    let select = at.selection();
    Ok(Some((select, l.r.indexer("indexer", at, &[q, k])?)))
}

//! Encoders: every token sees all others, norms come after each residual sum, and nothing guesses the next token.
//!
//! Source: arXiv:1810.04805, section 3; arXiv:2402.01613, section 3 (Nomic); arXiv:2310.19923, section 2 (Jina 2); tensor
//! names of GGUF's `bert`, `nomic-bert` and `jina-bert-v2`.

use program::{Act, Gate, Mask, Recorder, RopePairs, ValueId};

use super::attention::{HeadNorm, Heads};
use super::decoder::{Layer, embed, layers};
use super::{Architecture, ProgramOutputs, ffn, head, mlp};
use crate::config::{read, text};
use crate::{Error, Keys, ModelConfig, Result, Weights};

/// Learned positions. XLM-RoBERTa is the same: its files leave out the positions that no token takes.
pub(super) static BERT: Architecture = Architecture {
    name: "bert",
    config: |keys| {
        let mut c = encoder(keys)?;
        read::learned_positions(keys, &mut c)?;
        Ok(c)
    },
    record: |r, w, c| record(r, w, c, |l, h| ffn::ungated(l, Act::GeluErf, h)),
};

/// Rotation in place of positions, feed-forward layers with a gate.
pub(super) static NOMIC_BERT: Architecture = Architecture {
    name: "nomic-bert",
    config: encoder,
    record: |r, w, c| record(r, w, c, ffn::feed),
};

/// ALiBi, feed-forward layers with a gate.
pub(super) static JINA_BERT_V2: Architecture = Architecture {
    name: "jina-bert-v2",
    config: |keys| {
        let mut c = encoder(keys)?;
        mlp::alibi(&mut c, keys.positive("attention.max_alibi_bias")?.unwrap_or(8.0));
        c.joint_ffn = !keys.has("blk.0.ffn_gate.weight");
        Ok(c)
    },
    record: |r, w, c| {
        let act = Gate::Act(Act::GeluErf);
        let feed = |l: &Layer<'_>, h| {
            ffn::Gated { act, joint: c.joint_ffn, ..ffn::Gated::of(l) }.record(l, h)
        };
        record(r, w, c, feed)
    },
};

fn encoder(keys: &Keys<'_>) -> Result<ModelConfig> {
    const SECOND_NORM: &str = "blk.0.attn_norm_2.weight";
    if keys.has(SECOND_NORM) {
        let problem = "a second norm behind attention";
        return Err(Error::Unsupported { name: SECOND_NORM.into(), problem });
    }
    let mut c = read::layer_normed(keys, RopePairs::HalfSplit)?;
    c.layers.iter_mut().for_each(|layer| layer.score.mask = Mask::Full);
    c.norm_embedding = true;
    c.n_token_types = keys.dims("token_types.weight").map(|dims| match dims.get(1) {
        Some(n) => usize::try_from(*n).unwrap_or(usize::MAX),
        None => 1,
    });
    c.joint_qkv = keys.has("blk.0.attn_qkv.weight");
    c.normed_heads = keys.has("blk.0.attn_q_norm.weight");
    text::read_encoder(keys, &mut c)?;
    Ok(c)
}

fn record(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    feed: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ProgramOutputs> {
    let norm = if c.normed_heads { HeadNorm::Whole } else { HeadNorm::None };
    let heads = Heads { joint: c.joint_qkv, norm, ..Heads::PLAIN };
    let x = layers(r, w, c, embed(r, w, c)?, |l, x| {
        let a = l.residual("attn_residual", x, heads.record(l, x)?)?;
        let h = l.norm("attn_output_norm", a)?;
        let f = l.residual("ffn_residual", h, feed(l, h)?)?;
        l.norm("layer_output_norm", f)
    })?;
    head::record(r, w, c, x, None)
}

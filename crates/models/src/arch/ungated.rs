//! Decoders whose feed-forward layers have no gate: Arcee, PLM.
//!
//! Source: arXiv:2503.12167, section 2; tensor names of GGUF's `arcee` and `plm`.

use program::{Act, RopePairs, ValueId};

use super::attention::Heads;
use super::decoder::{Layer, Norms, blocks, decoder};
use super::{Architecture, ffn, latent};
use crate::Result;
use crate::config::{self, read};

pub(super) static ARCEE: Architecture = Architecture {
    name: "arcee",
    config: |keys| read::dense(keys, RopePairs::Interleaved),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, Heads::PLAIN, relu2),
};

/// Latent attention.
pub(super) static PLM: Architecture = Architecture {
    name: "plm",
    config: |keys| config::latent::decoder(keys, RopePairs::Interleaved),
    record: |r, w, c| decoder(r, w, c, |l, x| l.block(Norms::PRE, x, latent::attend, relu2)),
};

fn relu2(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::ungated(l, Act::Relu2, h)
}

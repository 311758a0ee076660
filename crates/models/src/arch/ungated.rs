//! Decoders whose feed-forward layers have no gate: Arcee, PLM, Apertus.
//!
//! Source: arXiv:2503.12167, section 2; arXiv:2509.14233, section 2; tensor names of GGUF's `arcee`, `plm` and `apertus`.

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

/// An activation with numbers of its own in each layer; norms on the heads of q and k.
pub(super) static APERTUS: Architecture = Architecture {
    name: "apertus",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        let [alpha_p, alpha_n, beta, eps] = ["alpha_p", "alpha_n", "beta", "eps"]
            .map(|key| keys.real_per_layer(&format!("xielu.{key}")));
        let numbers = alpha_p?.into_iter().zip(alpha_n?).zip(beta?).zip(eps?);
        for (layer, (((alpha_p, alpha_n), beta), eps)) in c.layers.iter_mut().zip(numbers) {
            let softplus = |x: f32| x.exp().ln_1p();
            let (alpha_p, alpha_n) = (softplus(alpha_p), beta + softplus(alpha_n));
            layer.act = Act::Xielu { alpha_p, alpha_n, beta, eps };
        }
        Ok(c)
    },
    record: |r, w, c| {
        let feed = |l: &Layer<'_>, h: ValueId| ffn::ungated(l, l.config.act, h);
        blocks(r, w, c, Norms::PRE, Heads::NORMED, feed)
    },
};

fn relu2(l: &Layer<'_>, h: ValueId) -> Result<ValueId> {
    ffn::ungated(l, Act::Relu2, h)
}

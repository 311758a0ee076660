//! Talkie 1930: norms without vectors, a factor on each head's queries, the embedding added again by each block.
//!
//! Source: the model code published with its weights; tensor names of GGUF's `talkie`.

use program::RopePairs;

use super::Architecture;
use super::attention::{HeadNorm, Heads};
use super::decoder::{self, Norms};
use super::ffn;
use crate::config::read;

pub(super) static TALKIE: Architecture = Architecture {
    name: "talkie",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        (c.plain_norms, c.norm_embedding) = (true, true);
        c.logit_scale = keys.positive("logit_scale")?;
        Ok(c)
    },
    record: |r, w, c| {
        let heads = Heads { norm: HeadNorm::Gained, ..Heads::PLAIN };
        let embedding = decoder::embed(r, w, c)?;
        let x = decoder::layers(r, w, c, embedding, |l, x| {
            let x = l.block(Norms::PRE, x, |l, h| heads.record(l, h), ffn::feed)?;
            let factor = l.w.vector("layer_output_scale", 1)?;
            let again = l.r.multiply("embed_again", embedding, factor)?;
            l.add("embed_residual", x, again)
        })?;
        decoder::normed_head(r, w, c, x)
    },
};

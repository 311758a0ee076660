//! Nanbeige 4.2, which runs all its blocks more than once, each time with caches of their own.
//!
//! Source: arXiv:2607.22083; tensor names of GGUF's `nanbeige`.

use program::RopePairs;

use super::attention::Heads;
use super::decoder::{self, Norms};
use super::{Architecture, ffn};
use crate::config::read;
use crate::keys::MAX_LAYERS;

/// All blocks, over and over, with the last norm after each round.
pub(super) static NANBEIGE: Architecture = Architecture {
    name: "nanbeige",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::Interleaved)?;
        let most = (MAX_LAYERS / c.layers.len() as u64).max(1);
        let rounds = keys.count("num_loops", 1..=most)?.unwrap_or(1);
        c.plain_rounds = keys.flag("skip_loop_final_norm")?.unwrap_or(false);
        let n = c.layers.len() * rounds;
        c.layers = c.layers.iter().cycle().take(n).cloned().collect();
        Ok(c)
    },
    record: |r, w, c| {
        let round = c.layers.iter().map(|layer| layer.block + 1).max().unwrap_or(1);
        let mut x = decoder::embed(r, w, c)?;
        for first in (0..c.layers.len()).step_by(round) {
            if first > 0 && !c.plain_rounds {
                x = r.norm("round_normed", x, w.norm("output_norm", c, c.hidden_size)?)?;
            }
            x = decoder::some_layers(r, w, c, first..first + round, x, |l, x| {
                l.block(Norms::PRE, x, |l, h| Heads::PLAIN.record(l, h), ffn::feed)
            })?;
        }
        decoder::normed_head(r, w, c, x)
    },
};

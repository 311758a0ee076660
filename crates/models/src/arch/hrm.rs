//! HRM-Text: two stacks of blocks over the same tokens, a quick one that runs several times for each time of a slow one.
//! What each makes is what it made before in the other's place; caches are kept for each run.
//!
//! Source: arXiv:2506.21734, section 2, and the `hrm_text` of transformers; tensor names of GGUF's `hrm_text`. The mode in
//! which a prompt's tokens see each other both ways is left out, as in llama.cpp.

use program::{Act, Lookup, RopePairs};

use super::attention::{GateWidth, Heads};
use super::decoder::{self, Norms};
use super::{Architecture, ffn, head};
use crate::Error;
use crate::config::read;
use crate::keys::MAX_LAYERS;

const GATED: Heads = Heads { gate: Some((Act::Sigmoid, GateWidth::Elements)), ..Heads::PLAIN };

pub(super) static HRM_TEXT: Architecture = Architecture {
    name: "hrm_text",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        c.plain_norms = true;
        c.embedding_scale = keys.positive("embedding_scale")?;
        let [stack, slow, quick] = ["layers_per_stack", "h_cycles", "l_cycles"]
            .map(|key| keys.required(&format!("hrm.{key}"), 1..=MAX_LAYERS));
        let (stack, slow, quick) = (stack?, slow?, quick?);
        let n = stack.saturating_mul(slow).saturating_mul(quick + 1);
        if c.layers.len() != n {
            let expected =
                format!("{n}, those of {slow} times {quick} quick stacks and a slow one");
            return Err(Error::key(&keys.name("block_count"), expected, c.layers.len()));
        }
        // the blocks of the quick stack come first in the file
        c.layers = (0..n)
            .map(|i| {
                let is_slow = i / stack % (quick + 1) == quick;
                c.layers[i % stack + if is_slow { stack } else { 0 }].clone()
            })
            .collect();
        Ok(c)
    },
    record: |r, w, c| {
        let stack = c.layers.iter().map(|layer| layer.block + 1).max().unwrap_or(2) / 2;
        let mut slow = decoder::embed(r, w, c)?;
        let first = w.vector("hrm.z_l_init", c.hidden_size)?;
        let mut quick = r.lookup("quick_first", first, Lookup::Only)?;
        for i in (0..c.layers.len()).step_by(stack) {
            let x = r.add("stack_input", quick, slow)?;
            let x = decoder::some_layers(r, w, c, i..i + stack, x, |l, x| {
                l.block(Norms::PRE, x, |l, h| GATED.record(l, h), ffn::feed)
            })?;
            let x = r.norm("stack_normed", x, c.plain_norm())?;
            *if c.layers[i].block < stack { &mut quick } else { &mut slow } = x;
        }
        head::record(r, w, c, slow, None)
    },
};

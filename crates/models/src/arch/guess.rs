//! Blocks at the end of a file that guess the token after the next one, of the next one and what the model made of the
//! last: multi-token prediction, NextN.
//!
//! Source: arXiv:2412.19437, section 2.2; tensor names of GGUF's `nextn`. As published, the two halves of what a block reads
//! are the embedding and then the hidden row, which is the one that the model's own head reads.

use program::{OutputKind, Recorder, ValueId};

use super::decoder::{Layer, embed};
use super::{Architecture, ProgramOutputs, deepseek2, glm, head, qwen35};
use crate::{Bias, Error, LayerConfig, ModelConfig, Result, Weights};

/// How blocks of an architecture guess.
struct Guess {
    of: &'static Architecture,
    /// Records a block as those of the model are.
    block: fn(&Layer<'_>, ValueId) -> Result<ValueId>,
    /// What the guess after a guess reads as its hidden row.
    carried: Carried,
}

/// See [`Guess::carried`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// What the head reads.
    Normed,
    /// The residual stream.
    Plain,
}

/// The architectures whose guesses are known.
static GUESSES: &[Guess] = &[
    Guess { of: &deepseek2::DEEPSEEK2, block: deepseek2::block, carried: Carried::Plain },
    Guess { of: &glm::GLM4_MOE, block: glm::block, carried: Carried::Normed },
    Guess { of: &qwen35::QWEN35, block: qwen35::block, carried: Carried::Normed },
    Guess { of: &qwen35::QWEN35_MOE, block: qwen35::block_of_experts, carried: Carried::Normed },
    Guess { of: &qwen35::QWEN3_NEXT, block: qwen35::block_of_experts, carried: Carried::Normed },
];

fn find(architecture: &str) -> Option<&'static Guess> {
    GUESSES.iter().find(|guess| guess.of.name == architecture)
}

/// Whether such blocks of this architecture can be used.
pub(crate) fn is_known(architecture: &str) -> bool {
    find(architecture).is_some()
}

/// Records the first block that guesses. The program reads the hidden row of each token and the token after it; it yields
/// logits, and what the next guess reads in place of the hidden row.
///
/// # Errors
/// An architecture whose guesses are not known; a model without such blocks; a tensor that is missing or does not fit.
pub(crate) fn record(r: &Recorder, w: &Weights<'_>, c: &ModelConfig) -> Result<ProgramOutputs> {
    let own = c.layers.iter().rev().find(|layer| layer.recurrent.is_none());
    let (Some(guess), Some(own), true) = (find(&c.architecture), own, c.n_guessing > 0) else {
        return Err(Error::NoGuesses);
    };
    let index = c.layers.len();
    let config = &LayerConfig { block: index, ..own.clone() };
    let layer = Layer { r, w: w.layer(index), global: w, model: c, config, index };
    let (w, l) = (&layer.w, &layer);
    // files may have its own table and head, or mean the model's
    let own = |name: &str| w.has(name, c.vocab_size, c.hidden_size);
    let embedded = match own("nextn.embed_tokens")? {
        true => r.embed(w.matrix("nextn.embed_tokens", c.vocab_size, c.hidden_size)?)?,
        false => embed(r, l.global, c)?,
    };
    let hidden = r.input("hidden", c.hidden_size);
    r.layer(Some(index));
    let both = [l.norm("nextn.enorm", embedded)?, l.norm("nextn.hnorm", hidden)?];
    let both = r.view("nextn.joined", r.concat("nextn.both", &both)?, 1)?;
    let x = l.linear("nextn.eh_proj", both, c.hidden_size, Bias::Never)?;
    let x = (guess.block)(l, x)?;
    let x = r.select_rows("rows", x)?;
    let norm = match w.has_vector("nextn.shared_head_norm", c.hidden_size)? {
        true => w.norm("nextn.shared_head_norm", c, c.hidden_size)?,
        false => l.global.norm("output_norm", c, c.hidden_size)?,
    };
    r.layer(None);
    let h = r.norm("output_norm", x, norm)?;
    let carried = if guess.carried == Carried::Normed { h } else { x };
    let output = match own("nextn.shared_head_head")? {
        true => w.linear("nextn.shared_head_head", c.vocab_size, c.hidden_size, Bias::Never)?,
        false => l.global.output(c)?,
    };
    let logits = head::logits(r, c, output, h)?;
    Ok(vec![(OutputKind::Logits, logits), (OutputKind::Rows, carried)])
}

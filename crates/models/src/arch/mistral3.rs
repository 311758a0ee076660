//! Mistral 3 and 4: queries grow with their position, so that attention stays sharp over long contexts.
//!
//! Source: `modeling_ministral3.py` of transformers; tensor names of GGUF's `mistral3` and `mistral4`.

use program::{RopePairs, RopeScaling, Temperature};

use super::{Architecture, deepseek2, llama};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::{Keys, ModelConfig, Result};

pub(super) static MISTRAL3: Architecture = Architecture {
    name: "mistral3",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        experts::read_if_any(keys, &mut c, &Silent::NORMALIZED)?;
        temperature(keys, &mut c, "rope.scaling.original_context_length")?;
        let multiplier = keys.positive_or_zero("rope.scaling.yarn_log_multiplier")?;
        for rope in c.layers.iter_mut().flat_map(|layer| &mut layer.rope) {
            if let RopeScaling::Yarn { factor, attention_factor, .. } = &mut rope.scaling
                && let Some(multiplier) = multiplier
            {
                *attention_factor /= 1.0 + 0.1 * multiplier * factor.max(1.0).ln();
            }
        }
        Ok(c)
    },
    record: llama::record,
};

/// DeepSeek-V2's attention and experts, with the same growth of queries.
pub(super) static MISTRAL4: Architecture = Architecture {
    name: "mistral4",
    config: |keys| {
        let mut c = (deepseek2::DEEPSEEK2.config)(keys)?;
        temperature(keys, &mut c, "attention.temperature_length")?;
        Ok(c)
    },
    record: deepseek2::DEEPSEEK2.record,
};

fn temperature(keys: &Keys<'_>, c: &mut ModelConfig, floor: &str) -> Result<()> {
    let Some(beta) = keys.positive_or_zero("attention.temperature_scale")? else { return Ok(()) };
    let floor = keys.required(floor, 1..=1 << 24)? as f32;
    for layer in &mut c.layers {
        layer.score.temperature = Some(Temperature { beta, floor, offset: 0.0 });
    }
    Ok(())
}

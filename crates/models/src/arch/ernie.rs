//! ERNIE 4.5, and PaddleOCR's text part: Llama's shape; the mixtures have dense layers among those of experts.
//!
//! Source: ERNIE 4.5 Technical Report, section 2; tensor names of GGUF's `ernie4_5`, `ernie4_5-moe` and `paddleocr`.

use program::RopePairs;

use super::{Architecture, llama};
use crate::config::experts::{self, Silent};
use crate::config::read;
use crate::keys::MAX_LAYERS;

pub(super) static ERNIE4_5: Architecture = Architecture {
    name: "ernie4_5",
    config: |keys| read::dense(keys, RopePairs::Interleaved),
    record: llama::record,
};

pub(super) static ERNIE4_5_MOE: Architecture = Architecture {
    name: "ernie4_5-moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::Interleaved)?;
        experts::read(keys, &mut c, &Silent::NORMALIZED)?;
        let step = keys.count("interleave_moe_layer_step", 1..=MAX_LAYERS)?.unwrap_or(1);
        for (i, layer) in c.layers.iter_mut().enumerate() {
            layer.experts = layer.experts.take().filter(|_| (i + 1).is_multiple_of(step));
        }
        Ok(c)
    },
    record: llama::record,
};

/// Rotates by three coordinates, which are the same for text.
pub(super) static PADDLEOCR: Architecture = Architecture {
    name: "paddleocr",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: llama::record,
};

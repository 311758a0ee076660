//! One file per architecture. A new one is a file here and a row in [`ARCHITECTURES`]: it reads its own keys, and records
//! what differs from the skeleton in `decoder.rs` with the pieces in `attention.rs`, `latent.rs` and `ffn.rs`.

mod attention;
mod decoder;
mod deepseek2;
mod ffn;
mod gemma2;
mod gemma3;
mod latent;
mod llama;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;

use gguf::escape;
use program::{OutputKind, Recorder, ValueId};

use crate::{Error, Keys, ModelConfig, Result, Weights};

/// What a recorded pass yields: see [`program::Program::outputs`].
pub type ProgramOutputs = Vec<(OutputKind, ValueId)>;

/// A family of models with one forward pass.
pub struct Architecture {
    /// Its name in `general.architecture`.
    pub name: &'static str,
    /// The hyper-parameters that these keys give. Errors: a key that is missing, of a wrong type or out of range.
    pub config: fn(&Keys<'_>) -> Result<ModelConfig>,
    /// Records one forward pass and returns its results: logits `[selected, vocab_size]`, and the hidden rows before the
    /// head. Errors: a tensor that is missing or does not fit the hyper-parameters.
    pub record: fn(&Recorder, &Weights<'_>, &ModelConfig) -> Result<ProgramOutputs>,
}

/// Every architecture, by name.
pub static ARCHITECTURES: &[&Architecture] = &[
    &deepseek2::DEEPSEEK2,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen2moe::QWEN2_MOE,
    &qwen3::QWEN3,
    &qwen3moe::QWEN3_MOE,
];

/// The architecture with this name.
///
/// # Errors
/// [`Error::Architecture`] quotes an unknown name.
pub fn architecture(name: &str) -> Result<&'static Architecture> {
    by_bytes(name.as_bytes())
}

pub(crate) fn by_bytes(name: &[u8]) -> Result<&'static Architecture> {
    ARCHITECTURES.iter().copied().find(|a| a.name.as_bytes() == name).ok_or_else(|| {
        let supported: Vec<_> = ARCHITECTURES.iter().map(|a| a.name).collect();
        Error::Architecture { name: escape(name, 80), supported: supported.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, a) in ARCHITECTURES.iter().enumerate() {
            assert!(ARCHITECTURES[..i].iter().all(|b| a.name != b.name));
            assert_eq!(architecture(a.name).unwrap().name, a.name);
        }
        let message = architecture("mam\x1bba").err().unwrap().to_string();
        assert_eq!(
            message,
            "unsupported architecture \"mam\\u{1b}ba\" (supported: deepseek2, gemma2, gemma3, \
             llama, qwen2, qwen2moe, qwen3, qwen3moe)"
        );
    }
}

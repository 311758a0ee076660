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

/// A family of models with one forward pass.
pub trait Architecture: Sync {
    /// Its name in `general.architecture`.
    fn name(&self) -> &'static str;

    /// The hyper-parameters that these keys give.
    ///
    /// # Errors
    /// A key that is missing, of a wrong type or out of range.
    fn config(&self, keys: &Keys<'_>) -> Result<ModelConfig>;

    /// Record one forward pass and return its results: logits `[selected, vocab_size]`.
    ///
    /// # Errors
    /// If a tensor is missing or does not fit the hyper-parameters.
    fn record(
        &self,
        r: &Recorder,
        w: &Weights<'_>,
        c: &ModelConfig,
    ) -> Result<Vec<(OutputKind, ValueId)>>;
}

/// Every architecture, by name.
pub static ARCHITECTURES: &[&dyn Architecture] = &[
    &deepseek2::DeepSeek2,
    &gemma2::Gemma2,
    &gemma3::Gemma3,
    &llama::Llama,
    &qwen2::Qwen2,
    &qwen2moe::Qwen2Moe,
    &qwen3::Qwen3,
    &qwen3moe::Qwen3Moe,
];

/// The architecture with this name.
///
/// # Errors
/// [`Error::Architecture`] quotes an unknown name.
pub fn architecture(name: &str) -> Result<&'static dyn Architecture> {
    by_bytes(name.as_bytes())
}

pub(crate) fn by_bytes(name: &[u8]) -> Result<&'static dyn Architecture> {
    ARCHITECTURES.iter().copied().find(|a| a.name().as_bytes() == name).ok_or_else(|| {
        let supported: Vec<_> = ARCHITECTURES.iter().map(|a| a.name()).collect();
        Error::Architecture { name: escape(name, 80), supported: supported.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, a) in ARCHITECTURES.iter().enumerate() {
            assert!(ARCHITECTURES[..i].iter().all(|b| a.name() != b.name()));
            assert_eq!(architecture(a.name()).unwrap().name(), a.name());
        }
        let message = architecture("mam\x1bba").err().unwrap().to_string();
        assert_eq!(
            message,
            "unsupported architecture \"mam\\u{1b}ba\" (supported: deepseek2, gemma2, gemma3, \
             llama, qwen2, qwen2moe, qwen3, qwen3moe)"
        );
    }
}

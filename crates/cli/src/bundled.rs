//! The demo model that comes with the program: small, trained by `training/`, and linked into the binary, so that the
//! first command of a newcomer needs no file, no network and no path.

use gguf::Gguf;

static MODEL: &[u8] = include_bytes!("../../../assets/rooflight-demo-5m-q8_0.gguf");

/// Longest reply unless `-n` says otherwise: the model was trained on short ones.
pub(crate) const REPLY_TOKENS: usize = 256;

/// The model as if its file had been opened.
///
/// # Errors
/// None in practice, as a test shows.
pub(crate) fn open() -> gguf::Result<Gguf> {
    Gguf::from_bytes(MODEL.to_vec())
}

/// The model's file.
pub(crate) fn bytes() -> &'static [u8] {
    MODEL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_model_is_small_complete_and_says_where_it_is_from() {
        assert!(MODEL.len() < 10_000_000);
        let gguf = open().unwrap();
        let model = models::load(&gguf).unwrap();
        assert_eq!(model.config.architecture, "qwen2");
        assert!(model.notes.is_empty(), "{:?}", model.notes);
        let metadata = gguf.metadata();
        for key in ["general.name", "general.size_label", "general.license", "general.description"]
        {
            assert!(metadata.str(key).unwrap().is_some_and(|text| !text.is_empty()), "{key}");
        }
        let tokenizer = tokenizer::Tokenizer::from_gguf(metadata).unwrap();
        assert!(tokenizer.warnings().is_empty());
        let text = "Hello! 你好，12 + 7 = 19.\n";
        let ids = tokenizer.encode(text).unwrap();
        assert!(ids.len() < 20, "{ids:?}");
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id).to_vec()).collect();
        assert_eq!(bytes, text.as_bytes());
        assert_eq!(model.config.vocab_size, 4096);
    }
}

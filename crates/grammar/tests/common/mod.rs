//! A small vocabulary, and forms over it.

use std::sync::{Arc, LazyLock};

use grammar::{CompileBudget, Form, FormSource, TokenTrie};
use tokenizer::Tokenizer;

/// Bytes, some words, and a token that ends replies.
fn small() -> Arc<Tokenizer> {
    let words = ["{\"", "\":", "true", "name", " \"", "\"}", "123", "ab", "the"];
    let byte = |b: u8| format!("<0x{b:02X}>");
    let mut tokens = vec!["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    let mut types = vec![2, 3, 3];
    tokens.extend((0..=255).map(byte));
    types.extend([6; 256]);
    tokens.extend(words.iter().map(|word| word.replace(' ', "▁")));
    types.extend([1; 9]);
    let mut writer = gguf::Writer::new();
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", tokens.clone())
        .set("tokenizer.ggml.scores", (0..tokens.len()).map(|i| -(i as f32)).collect::<Vec<f32>>())
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.add_space_prefix", false)
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32);
    let bytes = writer.to_bytes().expect("it is small");
    let file = gguf::Gguf::from_bytes(bytes).expect("it is whole");
    Arc::new(Tokenizer::from_gguf(file.metadata()).expect("it has what it needs"))
}

pub(crate) static SMALL: LazyLock<(Arc<Tokenizer>, TokenTrie)> = LazyLock::new(|| {
    let tokenizer = small();
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).expect("it has an end");
    (tokenizer, trie)
});

pub(crate) fn schema(text: &str) -> FormSource {
    FormSource::JsonSchema(text.into())
}

pub(crate) fn compile(source: &FormSource) -> Result<Form, String> {
    Form::compile(source, &SMALL.1, &CompileBudget::default()).map_err(|error| error.to_string())
}

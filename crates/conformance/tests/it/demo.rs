//! The model that tests of programs run on.

use std::collections::BTreeSet;

use conformance::demo_gguf;
use gguf::Gguf;

/// The tokens of its vocabulary.
fn tokens(gguf: &Gguf) -> Vec<String> {
    let tokens = gguf.metadata().strings("tokenizer.ggml.tokens");
    let tokens = tokens.expect("a list of strings").expect("it has a vocabulary");
    tokens.map(|token| String::from_utf8(token.to_vec()).expect("it is text")).collect()
}

#[test]
fn the_demo_model_is_a_valid_model() {
    let gguf = Gguf::from_bytes(demo_gguf()).unwrap();
    let model = models::load(&gguf).unwrap();
    assert_eq!(model.config.vocab_size, tokens(&gguf).len());
}

#[test]
fn the_alphabet_has_256_letters() {
    let tokens = tokens(&Gguf::from_bytes(demo_gguf()).unwrap());
    let letters: BTreeSet<&str> = tokens[..256].iter().map(String::as_str).collect();
    assert!(letters.iter().all(|letter| letter.chars().count() == 1));
    let of = |byte: u8| &*tokens[usize::from(byte)];
    assert_eq!((letters.len(), of(b' '), of(b'\n')), (256, "Ġ", "Ċ"));
}

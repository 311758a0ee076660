//! Tests that the bundled file is a complete model.

#[test]
fn the_bundled_model_is_small_complete_and_says_where_it_is_from() {
    assert!(demo_model::BYTES.len() < 10_000_000);
    let gguf = demo_model::open().unwrap();
    let model = models::load(&gguf).unwrap();
    assert_eq!(model.config.architecture, "qwen2");
    assert!(model.notes.is_empty(), "{:?}", model.notes);
    let metadata = gguf.metadata();
    for key in ["general.name", "general.size_label", "general.license", "general.description"] {
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

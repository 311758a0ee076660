//! The table of pre-tokenizers.

use tokenizer::internals::{find_pre_tokenizer, pre_tokenizers};

#[test]
fn names_are_unique_and_found() {
    let mut seen = std::collections::HashSet::new();
    for pre in pre_tokenizers() {
        for name in pre.names {
            assert!(seen.insert(name), "{name} twice");
            assert!(std::ptr::eq(find_pre_tokenizer(name).unwrap(), pre));
        }
    }
    assert!(find_pre_tokenizer("").is_none() && find_pre_tokenizer("Qwen2").is_none());
}

//! Pieces of Unigram vocabularies.

use tokenizer::internals;

#[test]
fn nodes_are_different_beginnings() {
    let nodes = |texts: &[&str]| {
        internals::nodes(&texts.iter().map(|t| ((*t).to_owned(), 0.0)).collect::<Vec<_>>())
    };
    assert_eq!(nodes(&[]), 0);
    assert_eq!(nodes(&["b", "abc", "abd", "ab", "abd"]), 5);
}

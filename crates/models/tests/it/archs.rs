//! The list of architectures.

use models::{ARCHITECTURES, architecture};

#[test]
fn names_are_unique_and_found() {
    for (i, a) in ARCHITECTURES.iter().enumerate() {
        assert!(ARCHITECTURES[..i].iter().all(|b| a.name != b.name));
        assert_eq!(architecture(a.name).unwrap().name, a.name);
    }
    let message = architecture("mam\x1bba").err().unwrap().to_string();
    assert_eq!(
        message,
        "unsupported architecture \"mam\\u{1b}ba\" (docs/models.md lists those that run)"
    );
    let message = architecture("deepseek4").err().unwrap().to_string();
    assert_eq!(
        message,
        "unsupported architecture \"deepseek4\" (it needs attention to a window and to rows made of several positions \
         in one, and experts that ids of tokens choose)"
    );
}

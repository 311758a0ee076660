//! JSON while it comes.

use proptest::prelude::*;
use tools::internals::{JsonProgress, JsonScan};

/// Length of the value that a text begins with; `None` where it is none, or not whole.
fn length(text: &str) -> Option<usize> {
    let mut scan = JsonScan::default();
    for (at, byte) in text.bytes().enumerate() {
        match scan.push(byte) {
            JsonProgress::More => {}
            JsonProgress::Done => return Some(at + 1),
            JsonProgress::Before => return Some(at),
            JsonProgress::Bad => return None,
        }
    }
    None
}

#[test]
fn values_end_where_they_end() {
    for (text, end) in [
        (r#"{"a": [1, -2.5e+3, "x\"}\u00e9", true, null, {}, []]} rest"#, 53),
        (r#""\ud83d\ude00""#, 14),
        ("12,", 2),
        ("0.5]", 3),
        ("false", 5),
        (" [ ] ", 4),
    ] {
        assert_eq!(length(text), Some(end), "{text}");
    }
    for text in [
        "{a: 1}",
        "{\"a\" 1}",
        "[1,]",
        "{\"a\": 1,}",
        "[01]",
        "\"\n\"",
        "'a'",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "-,",
        "1.,",
        "nul,",
        "{]",
        "[}",
        "\"\\x\"",
    ] {
        assert_eq!(length(text), None, "{text}");
    }
    let deep = "[".repeat(129);
    assert_eq!(length(&deep), None);
    assert!(length(&("[".repeat(128) + &"]".repeat(128))).is_some());
}

proptest! {
    /// What is taken whole is what another reader of JSON takes.
    #[test]
    fn readers_agree(text in r#"[\[\]{}",:0-9a-e.\\u \-tnrlsf+E]{0,24}"#) {
        if let Some(end) = length(&text) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text[..end]).is_ok(), "{}", &text[..end]);
        }
        let value = serde_json::from_str::<serde_json::Value>(&text);
        // a number too large is JSON nevertheless
        if value.is_ok() {
            let end = length(&format!("{text} ")).unwrap();
            prop_assert!(text[end..].trim().is_empty());
        }
    }
}

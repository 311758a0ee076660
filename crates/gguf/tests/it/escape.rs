//! Bytes from a file as one line of text.

use gguf::escape;
use proptest::prelude::*;

#[test]
fn one_line_without_control_characters() {
    let check = |text: &[u8], max, expect: &str| assert_eq!(escape(text, max), expect);
    check(b"blk.0.attn_q.weight", 40, "blk.0.attn_q.weight");
    check(b"a\x1b[31m\nb\0", 40, "a\\u{1b}[31m\\nb\\u{0}");
    check(b"\xffab\xc3", 40, "\\xffab\\xc3");
    check("é\u{202e}x\u{9b}".as_bytes(), 40, "é\\u{202e}x\\u{9b}");
    check(b"abcdefgh", 8, "abcdefgh");
    check(b"abcdefghi", 8, "abcde...");
    check(b"abc\n\n\n\n", 8, "abc\\n...");
    check(b"abc", 2, "..");
    check(b"abc", 0, "");
    check(b"", 0, "");
}

proptest! {
    #[test]
    fn never_longer_than_asked(bytes: Vec<u8>, max in 0usize..60) {
        let text = escape(&bytes, max);
        prop_assert!(text.chars().count() <= max);
        prop_assert!(!text.chars().any(char::is_control));
    }
}

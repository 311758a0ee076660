//! Converts keys that were typed during a reply into the text that they would have produced at the prompt.

/// Returns the text of keys as a terminal sends them: Enter breaks the line, the brackets of pastes are removed,
/// Backspace, Ctrl-W and Ctrl-U delete, and cursor keys are ignored.
pub(super) fn text_of(keys: &[u8]) -> String {
    let keys = String::from_utf8_lossy(keys);
    let mut text = String::new();
    let mut rest = keys.chars().peekable();
    while let Some(key) = rest.next() {
        match key {
            '\r' | '\n' => text.push('\n'),
            '\t' => text.push('\t'),
            '\u{8}' | '\u{7f}' => {
                text.pop();
            }
            // Ctrl-U, Ctrl-W
            '\u{15}' => text.truncate(text.rfind('\n').map_or(0, |at| at + 1)),
            '\u{17}' => {
                let kept = text.trim_end_matches(' ');
                text.truncate(kept.rfind([' ', '\n']).map_or(0, |at| at + 1));
            }
            '\u{1b}' => match rest.next() {
                // skips to the character that ends the escape sequence
                Some('[' | 'O') => {
                    let ends = |c: &char| ('@'..='~').contains(c);
                    while rest.next_if(|c| !ends(c)).is_some() {}
                    rest.next_if(ends);
                }
                // Alt-Enter
                Some('\r' | '\n') => text.push('\n'),
                _ => {}
            },
            key if key.is_control() => {}
            key => text.push(key),
        }
    }
    text.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn keys_become_the_text_they_stand_for() {
        for (keys, want) in [
            ("kept", "kept"),
            ("one\rtwo\r", "one\ntwo"),
            ("a\x1b[200~pasted\rlines\x1b[201~b", "apasted\nlinesb"),
            ("\u{e4}\u{f6}\x7f\x7fx", "x"),
            ("one two\x17three\x15four", "four"),
            ("one two \x17", "one "),
            ("a\x1b[D\x1b[1;5C\x1bOHb\x01c", "abc"),
            ("a\x1b\rb", "a\nb"),
            ("\r\r", ""),
        ] {
            assert_eq!(text_of(keys.as_bytes()), want, "{keys:?}");
        }
        assert_eq!(text_of(b"\xff\x1b["), "\u{fffd}");
    }
}

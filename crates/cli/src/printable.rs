//! Model text made safe for a terminal: escape sequences and control characters are dropped.

/// Longest string sequence (title, clipboard, ...) that is swallowed while waiting for its end.
const MAX_SEQUENCE: usize = 4096;

/// A filter over streamed text; a sequence may be spread over several pieces.
#[derive(Debug, Default)]
pub(crate) struct Printable {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC: parameters and intermediates follow until a final character.
    Escape,
    /// After ESC `[`.
    Csi,
    /// Inside OSC, DCS, SOS, PM or APC, with the characters swallowed so far.
    String(usize),
    /// ESC inside such a string: `\` ends it.
    StringEscape(usize),
}

impl Printable {
    /// The part of `text` that may be printed: everything but C0 controls (newline and tab stay), DEL, C1 controls and
    /// escape sequences.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.state = self.next(c, &mut out);
        }
        out
    }

    fn next(&self, c: char, out: &mut String) -> State {
        match (self.state, c) {
            (State::String(_) | State::StringEscape(_), '\u{7}' | '\u{9c}') => State::Text,
            (State::StringEscape(_), '\\') => State::Text,
            (State::String(n) | State::StringEscape(n), '\u{1b}') if n < MAX_SEQUENCE => {
                State::StringEscape(n + 1)
            }
            // A line break ends what was never terminated, so that a broken sequence cannot hide a whole reply.
            (State::String(n) | State::StringEscape(n), c) if n < MAX_SEQUENCE && c != '\n' => {
                State::String(n + 1)
            }
            (_, '\u{1b}') => State::Escape,
            (_, '\u{9b}') => State::Csi,
            (_, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => State::String(0),
            (State::Escape, '[') => State::Csi,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String(0),
            (State::Escape, ' '..='/') => State::Escape,
            (State::Escape, '0'..='~') => State::Text,
            (State::Csi, ' '..='?') => State::Csi,
            (State::Csi, '@'..='~') => State::Text,
            (_, c) => {
                if c == '\n' || c == '\t' || !c.is_control() {
                    out.push(c);
                }
                State::Text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_and_controls_go_and_text_stays() {
        for (text, want) in [
            ("plain\ttext\n, gruss \u{1f680}", "plain\ttext\n, gruss \u{1f680}"),
            ("a\u{1b}[31;1mred\u{1b}[0mb", "aredb"),
            ("a\u{1b}]52;c;aGk=\u{7}b", "ab"),
            ("a\u{1b}]0;title\u{1b}\\b", "ab"),
            ("a\u{1b}Pq#0\u{9c}b", "ab"),
            ("a\u{9b}2Jb\u{9d}0;x\u{9c}c", "abc"),
            ("a\u{1b}(Bb\u{1b}cc", "abc"),
            ("a\r\u{8}\u{7}\u{0}\u{7f}b", "ab"),
            ("a\u{1b}]never ended\nb", "a\nb"),
        ] {
            assert_eq!(Printable::default().push(text), want, "{text:?}");
            let mut filter = Printable::default();
            let pieces: String = text.chars().map(|c| filter.push(&c.to_string())).collect();
            assert_eq!(pieces, want, "{text:?} in pieces");
        }
    }

    #[test]
    fn an_endless_string_is_given_up() {
        let text = format!("\u{1b}]{}end", "x".repeat(MAX_SEQUENCE));
        assert_eq!(Printable::default().push(&text), "end");
    }
}

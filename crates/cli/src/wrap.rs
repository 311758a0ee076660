//! Lines broken at words, as text streams in.

use unicode_width::UnicodeWidthChar as _;

/// A text on its way to a terminal of so many columns. A word is held back until its end is known; what stands between
/// lines of three backquotes is left as it is, since code is copied.
#[derive(Clone, Debug)]
pub(crate) struct WordWrap {
    columns: usize,
    /// Where the next character goes.
    column: usize,
    word: String,
    word_columns: usize,
    /// What the line begins with.
    start: String,
    in_code: bool,
    /// The word is longer than a line and partly shown.
    long: bool,
}

const FENCE: &str = "```";

impl WordWrap {
    /// At the start of a line.
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns: columns.max(1),
            column: 0,
            word: String::new(),
            word_columns: 0,
            start: String::new(),
            in_code: false,
            long: false,
        }
    }

    /// What of the text so far can be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.next(c, &mut out);
        }
        out
    }

    /// The word that was held back.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn next(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            self.end_word(out);
            out.push(c);
            self.in_code ^= self.start.starts_with(FENCE);
            self.start.clear();
            (self.column, self.long) = (0, false);
            return;
        }
        if self.start.len() < FENCE.len() && !(self.start.is_empty() && c == ' ') {
            self.start.push(c);
        }
        let columns = c.width().unwrap_or(0);
        if self.in_code {
            out.push(c);
        } else if c.is_whitespace() {
            self.end_word(out);
            self.long = false;
            self.place(&c.to_string(), columns.max(1), out);
        } else if columns > 1 {
            // between wide characters there is always a place to break
            self.end_word(out);
            self.long = false;
            self.place(&c.to_string(), columns, out);
        } else {
            self.word.push(c);
            self.word_columns += columns;
            if self.long {
                out.push_str(&std::mem::take(&mut self.word));
                self.word_columns = 0;
                self.advance(columns);
            } else if self.word_columns > self.columns {
                // the terminal breaks what has no place to break
                self.end_word(out);
                self.long = true;
            }
        }
    }

    fn end_word(&mut self, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        let columns = std::mem::take(&mut self.word_columns);
        if !word.is_empty() {
            self.place(&word, columns, out);
        }
    }

    fn place(&mut self, text: &str, columns: usize, out: &mut String) {
        let blank = text.trim().is_empty();
        if self.column > 0 && self.column + columns > self.columns {
            out.push('\n');
            self.column = 0;
            if blank {
                return;
            }
        }
        out.push_str(text);
        self.advance(columns);
    }

    fn advance(&mut self, columns: usize) {
        let column = self.column + columns;
        self.column = if column == 0 { 0 } else { (column - 1) % self.columns + 1 };
    }
}

/// Parts joined by commas in lines of at most so many columns.
pub(crate) fn comma_lines(parts: &[String], columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            // one column for the comma that may follow
            Some(line) if line.chars().count() + part.chars().count() + 3 <= columns => {
                line.push_str(", ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines.join(",\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, columns: usize) -> String {
        let mut whole = WordWrap::new(columns);
        let mut pieces = whole.clone();
        let out = whole.push(text) + &whole.finish();
        let each: String = text.chars().map(|c| pieces.push(&c.to_string())).collect();
        assert_eq!(each + &pieces.finish(), out, "in pieces");
        out
    }

    #[test]
    fn lines_break_between_words() {
        for (text, columns, want) in [
            ("one two three four", 9, "one two \nthree \nfour"),
            ("one two", 7, "one two"),
            ("one two three", 7, "one two\nthree"),
            ("a\nbb cc", 3, "a\nbb \ncc"),
            ("abcdefghij k", 4, "abcdefghij k"),
            ("abcdefghij klm", 4, "abcdefghij \nklm"),
            ("\u{4f60}\u{597d}\u{4f60}\u{597d}", 5, "\u{4f60}\u{597d}\n\u{4f60}\u{597d}"),
            (
                "```\nlong line of code\n```\nand words",
                6,
                "```\nlong line of code\n```\nand \nwords",
            ),
        ] {
            assert_eq!(wrapped(text, columns), want, "{text:?}");
        }
        // nothing but blanks is lost, and none is added within words
        let text = "It is a long way to the end of this line, and the next one is no shorter.";
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for columns in 8..90 {
            let out = wrapped(text, columns);
            assert_eq!(plain(&out), plain(text), "{columns}");
            assert!(out.lines().all(|line| line.trim_end().chars().count() <= columns), "{out}");
        }
    }

    #[test]
    fn parts_stay_whole() {
        let parts = ["prompt 44 tok", "128 tok 9.8 t/s", "stop"].map(String::from);
        assert_eq!(comma_lines(&parts, 80), "prompt 44 tok, 128 tok 9.8 t/s, stop");
        assert_eq!(comma_lines(&parts, 24), "prompt 44 tok,\n128 tok 9.8 t/s, stop");
    }
}

//! Wraps text at words while it arrives.

use unicode_width::UnicodeWidthChar as _;

/// Word wrap for a terminal of `columns` columns. A word is held back until it is complete. Code blocks between lines of three
/// backquotes are left unchanged, so that code can be copied.
#[derive(Clone, Debug)]
pub struct WordWrap {
    columns: usize,
    /// Column of the next character.
    column: usize,
    word: String,
    word_columns: usize,
    /// First characters of the line, to detect fences.
    start: String,
    /// Whether fences mark code. If not, [`set_verbatim`](Self::set_verbatim) does.
    finds_fences: bool,
    in_code: bool,
    /// Whether the current word is longer than a line and partly printed.
    long: bool,
    /// Text to print at the start of each line after a break.
    indent: String,
    indent_columns: usize,
}

const FENCE: &str = "```";

impl WordWrap {
    /// Creates a word wrap for text that starts at the beginning of a line.
    pub fn new(columns: usize) -> Self {
        Self {
            columns: columns.max(1),
            column: 0,
            word: String::new(),
            word_columns: 0,
            start: String::new(),
            finds_fences: true,
            in_code: false,
            long: false,
            indent: String::new(),
            indent_columns: 0,
        }
    }

    /// Creates a word wrap that ignores fences. The caller marks code with [`set_verbatim`](Self::set_verbatim).
    pub fn without_fences(columns: usize) -> Self {
        Self { finds_fences: false, ..Self::new(columns) }
    }

    /// Sets whether the following lines are left unchanged. Call it at the start of a line.
    pub fn set_verbatim(&mut self, verbatim: bool) {
        self.in_code = verbatim;
    }

    /// Sets the text to print at the start of each line after a break.
    pub fn set_indent(&mut self, indent: &str) {
        self.indent_columns = columns_of(indent);
        indent.clone_into(&mut self.indent);
    }

    /// Adds an escape sequence, which has no width. Returns the text that can be printed now.
    pub fn escape(&mut self, sequence: &str) -> String {
        if self.word.is_empty() {
            return sequence.to_owned();
        }
        self.word.push_str(sequence);
        String::new()
    }

    /// Adds text. Returns the part that can be printed now.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.next(c, &mut out);
        }
        out
    }

    /// Returns the text that was held back. Call it at the end of the text.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn next(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            self.end_word(out);
            out.push(c);
            self.in_code ^= self.finds_fences && self.start.starts_with(FENCE);
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
            // a line may break between any two wide characters
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
                // the terminal breaks a word that is longer than a line
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
        if self.column > self.indent_columns && self.column + columns > self.columns {
            out.push('\n');
            out.push_str(&self.indent);
            self.column = self.indent_columns;
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

/// Returns the number of columns that a text takes on a terminal.
pub fn columns_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Wraps a complete text at words, for a terminal of `columns` columns.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut wrap = WordWrap::without_fences(columns);
    wrap.push(text) + &wrap.finish()
}

/// Wraps lines that are wider than `columns` columns, at blanks where possible. `indent` returns the number of columns by which
/// continuation lines of a line are indented.
pub fn hanging(text: &str, columns: usize, indent: impl Fn(&str) -> usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if columns_of(line) <= columns {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let blank = " ".repeat(indent(line).min(columns / 2));
        let begins = line.len() - line.trim_start().len();
        let mut row = line[..begins].to_owned();
        // blanks inside a line are kept, since they align columns
        for word in line[begins..].split_inclusive(' ') {
            let width = columns_of(&row) + columns_of(word.trim_end());
            if width > columns && !row.trim().is_empty() {
                out.push_str(row.trim_end());
                out.push('\n');
                row.clone_from(&blank);
            }
            if !(row == blank && word == " ") {
                row.push_str(word);
            }
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str, columns: usize) -> String {
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
            assert_eq!(broken(text, columns), want, "{text:?}");
        }
        // wrapping loses only blanks and adds no break inside words
        let text = "It is a long way to the end of this line, and the next one is no shorter.";
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for columns in 8..90 {
            let out = broken(text, columns);
            assert_eq!(plain(&out), plain(text), "{columns}");
            assert!(out.lines().all(|line| line.trim_end().chars().count() <= columns), "{out}");
        }
    }

    #[test]
    fn lines_after_a_break_are_indented_and_escapes_have_no_width() {
        let mut wrap = WordWrap::without_fences(9);
        wrap.set_indent("  ");
        let mut out = wrap.push("\u{2022} one ");
        out += &wrap.escape("\x1b[1m");
        out += &wrap.push("two th");
        out += &wrap.escape("\x1b[0m");
        out += &wrap.push("ree four\nend");
        out += &wrap.finish();
        let want = "\u{2022} one \x1b[1mtwo\n  th\x1b[0mree \n  four\nend";
        assert_eq!(out, want);
        let mut wrap = WordWrap::without_fences(6);
        assert_eq!(wrap.push("```\na b c d e\n"), "```\na b c \nd e\n");
        wrap.set_verbatim(true);
        assert_eq!(wrap.push("a b c d e\n"), "a b c d e\n");
    }

    #[test]
    fn long_lines_hang() {
        let text = "weights     4 GB: Q4_K 3 GB, Q6_K 1 GB\nshort\n\n  -> one two three four\n";
        let fit =
            |columns| hanging(text, columns, |line| if line.starts_with(' ') { 5 } else { 12 });
        assert_eq!(fit(80), text);
        assert_eq!(
            fit(24),
            "weights     4 GB: Q4_K 3\n            GB, Q6_K 1\n            GB\nshort\n\n  -> one two three four\n"
        );
        assert!(fit(20).contains("\n  -> one two three\n     four\n"), "{}", fit(20));
        // wide characters take two columns
        let wide = "\u{4f60}\u{597d} \u{4f60}\u{597d}";
        assert_eq!(hanging(wide, 9, |_| 0), format!("{wide}\n"));
        assert_eq!(hanging(wide, 8, |_| 0), "\u{4f60}\u{597d}\n\u{4f60}\u{597d}\n");
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for columns in 8..50 {
            assert_eq!(plain(&fit(columns)), plain(text), "{columns}");
        }
    }
}

//! Splits Rust source text into the tokens that module paths consist of.
//!
//! A scanner of our own, because a parser of the whole language (`syn`) would make xtask slower to build, and the gate
//! builds xtask first. Paths need no more than words and marks.

/// A token and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// Line number, counted from 1.
    pub(super) line: usize,
}

/// Kinds of tokens. Comments and lifetimes are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A name or keyword. Raw identifiers keep their `r#`.
    Word(&'a str),
    /// `::`
    PathSep,
    /// Any other single character.
    Mark(char),
    /// A string, character or number, whatever its value.
    Literal,
}

/// Splits `text` into tokens. Accepts anything: text that is not Rust gives tokens without meaning.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = read_token(rest, first);
        tokens.extend(kind.map(|kind| Token { kind, line }));
        let (read, unread) = rest.split_at(length);
        line += read.bytes().filter(|byte| *byte == b'\n').count();
        rest = unread;
    }
    tokens
}

/// Reads the beginning of `rest`: its length in bytes, and the token unless it is to be left out.
fn read_token(rest: &str, first: char) -> (usize, Option<Kind<'_>>) {
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if let Some(length) = comment_length(rest) {
        return (length, None);
    }
    if let Some(length) = string_length(rest).or_else(|| character_length(rest)) {
        return (length, Some(Kind::Literal));
    }
    if let Some(name) = rest.strip_prefix('\'') {
        return (1 + word_length(name), None);
    }
    if rest.starts_with("::") {
        return (2, Some(Kind::PathSep));
    }
    let prefix = if rest.starts_with("r#") { 2 } else { 0 };
    match prefix + word_length(&rest[prefix..]) {
        length if length == prefix => (first.len_utf8(), Some(Kind::Mark(first))),
        length if first.is_ascii_digit() => (length, Some(Kind::Literal)),
        length => (length, Some(Kind::Word(&rest[..length]))),
    }
}

/// Length of the word that `rest` begins with, or 0.
fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
}

/// Length of the comment that `rest` begins with. Block comments may be nested.
fn comment_length(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    let mut at = rest.strip_prefix("/*").map(|_| 2)?;
    let mut depth = 1;
    while depth > 0 {
        let Some(next) = rest[at..].find(['/', '*']) else { return Some(rest.len()) };
        at += next;
        // `get`, because the second byte may be within a character
        let (length, change) = match rest.get(at..at + 2) {
            Some("/*") => (2, 1),
            Some("*/") => (2, -1),
            _ => (1, 0),
        };
        at += length;
        depth += change;
    }
    Some(at)
}

/// Length of the string literal that `rest` begins with: `"…"`, `b"…"`, `c"…"`, and raw as `r#"…"#`.
fn string_length(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", &raw[..hashes]);
        let unread = body.find(&end).map_or("", |at| &body[at + end.len()..]);
        return Some(rest.len() - unread.len());
    }
    let mut body = body.strip_prefix('"')?.chars();
    while let Some(c) = body.next() {
        match c {
            '"' => break,
            '\\' => _ = body.next(),
            _ => {}
        }
    }
    Some(rest.len() - body.as_str().len())
}

/// Length of the character literal that `rest` begins with: `'a'`, `b'a'`, `'\u{41}'`. A lifetime has no closing quote.
fn character_length(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('\'')?;
    let mut chars = body.chars();
    let escaped = chars.next()? == '\\';
    if escaped {
        chars.next()?;
    }
    let unread = chars.as_str();
    let close = if escaped { unread.find('\'')? } else { 0 };
    let unread = unread[close..].strip_prefix('\'')?;
    Some(rest.len() - unread.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens of `text`, as words; literals are `#`.
    fn read(text: &str) -> String {
        let word = |token: &Token| match token.kind {
            Kind::Word(word) => word.to_owned(),
            Kind::PathSep => "::".to_owned(),
            Kind::Mark(mark) => mark.to_string(),
            Kind::Literal => "#".to_owned(),
        };
        tokens(text).iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_marks_and_literals() {
        for (text, expected) in [
            ("use a::b;", "use a :: b ;"),
            ("x.0.len() + 1.5e3_f32", "x . # . len ( ) + # . #"),
            ("0..crate::N", "# . . crate :: N"),
            ("r#type::x", "r#type :: x"),
            ("$crate::x", "$ crate :: x"),
            ("größe::π", "größe :: π"),
            ("", ""),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_are_left_out() {
        for (text, expected) in [
            ("a // crate::b \" '\nc", "a c"),
            ("/// crate::b\n//! crate::c\na", "a"),
            ("a /* b /* c */ \" d */ e", "a e"),
            ("a /* é/é*é **/ b", "a b"),
            ("a /* never closed", "a"),
            ("a / b", "a / b"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn strings_are_one_literal() {
        for (text, expected) in [
            (r#""crate::a" b"#, "# b"),
            (r#""a\"b" c"#, "# c"),
            (r#""a\\" c"#, "# c"),
            (r##"r"a\" c"##, "# c"),
            (r###"r#"a " b"# c"###, "# c"),
            (r####"r##"a "# b"## c"####, "# c"),
            (r##"b"a" br"b" br#"c"# c"d" cr"e" x"##, "# # # # # x"),
            (r#"var"a" x"#, "var # x"),
            ("\"// a\" b", "# b"),
            ("\"never closed", "#"),
            ("r#\"never closed\"", "#"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn characters_are_no_lifetimes() {
        for (text, expected) in [
            ("'a' b", "# b"),
            ("&'a b", "& b"),
            ("f::<'a>('b')", "f :: < > ( # )"),
            ("<'a, 'b: 'a>", "< , : >"),
            ("'\"' a \"b\"", "# a #"),
            (r"'\'' a '\\' b '\n'", "# a # b #"),
            (r"'\u{1F600}' '\x41' b'\'' b'a' c", "# # # # c"),
            ("'é' '語' a", "# # a"),
            ("'outer: loop { break 'outer; }", ": loop { break ; }"),
            ("impl<'_> X<'static>", "impl < > X < >"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_know_their_line() {
        let lines: Vec<usize> = tokens("a\n/* \n */ b \"\n\" c\n").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 3, 3, 4]);
    }
}

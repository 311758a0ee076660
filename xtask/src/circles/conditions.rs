//! Leaves out what is compiled only for tests.

use super::tokens::{Kind, Token};

/// Conditions that no build of the product meets.
const TEST_FLAGS: &[&str] = &["test", "fuzzing", "loom"];

/// Words that begin an item ending with a brace or a semicolon.
const BRACED: &[&str] = &[
    "async",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "union",
    "unsafe",
];

/// Words that begin an item or statement ending with a semicolon, whatever braces are in it.
const UNBRACED: &[&str] = &["const", "let", "static", "type", "use"];

/// Removes items, fields and statements whose `#[cfg(…)]` only tests can meet.
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let (is_inner, end) = match read_attribute(&tokens[at..]) {
            Some((is_inner, length)) if is_for_tests(&tokens[at..at + length]) => {
                (is_inner, at + length)
            }
            _ => {
                kept.push(*token);
                at += 1;
                continue;
            }
        };
        // an inner attribute is about all that encloses it
        at = end
            + if is_inner {
                length_until(&tokens[end..], &End::Enclosing)
            } else {
                item_length(&tokens[end..])
            };
    }
    kept
}

/// Reads `#[…]` or, inner, `#![…]`: whether it is inner, and its length.
fn read_attribute(tokens: &[Token]) -> Option<(bool, usize)> {
    let mark = |at: usize, mark| tokens.get(at).is_some_and(|token| token.kind == Kind::Mark(mark));
    let is_inner = mark(1, '!');
    let open = if is_inner { 2 } else { 1 };
    if !mark(0, '#') || !mark(open, '[') {
        return None;
    }
    Some((is_inner, open + group_length(&tokens[open..])))
}

/// Length of the bracketed group that `tokens` begin with.
fn group_length(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += depth_change(token.kind);
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// How a token changes the depth of brackets.
fn depth_change(kind: Kind) -> i32 {
    match kind {
        Kind::Mark('(' | '[' | '{') => 1,
        Kind::Mark(')' | ']' | '}') => -1,
        _ => 0,
    }
}

/// Whether an attribute is a `cfg` that only tests can meet.
fn is_for_tests(attribute: &[Token]) -> bool {
    let mut kinds =
        attribute.iter().map(|token| token.kind).skip_while(|k| !matches!(k, Kind::Word(_)));
    kinds.next() == Some(Kind::Word("cfg"))
        && kinds.next() == Some(Kind::Mark('('))
        && needs_tests(&mut kinds.peekable())
}

/// Reads one condition of a `cfg`; whether only tests can meet it.
fn needs_tests<'a>(kinds: &mut std::iter::Peekable<impl Iterator<Item = Kind<'a>>>) -> bool {
    let name = kinds.next();
    if kinds.next_if_eq(&Kind::Mark('=')).is_some() {
        kinds.next();
        return false;
    }
    if kinds.next_if_eq(&Kind::Mark('(')).is_none() {
        return matches!(name, Some(Kind::Word(name)) if TEST_FLAGS.contains(&name));
    }
    let mut parts = Vec::new();
    while kinds.peek().is_some() && kinds.next_if_eq(&Kind::Mark(')')).is_none() {
        parts.push(needs_tests(kinds));
        kinds.next_if_eq(&Kind::Mark(','));
    }
    match name {
        Some(Kind::Word("all")) => parts.contains(&true),
        Some(Kind::Word("any")) => !parts.is_empty() && !parts.contains(&false),
        _ => false,
    }
}

/// Where the tokens after an attribute end. All end before the bracket that encloses them.
#[derive(PartialEq)]
enum End {
    /// After a closing brace or a semicolon.
    Brace,
    /// After a semicolon.
    Semicolon,
    /// After a comma, closing brace or semicolon: fields, variants, match arms.
    Comma,
    /// Only before the bracket that encloses them.
    Enclosing,
}

/// Length of the item, field or statement that `tokens` begin with, its other attributes included.
fn item_length(tokens: &[Token]) -> usize {
    let mut start = 0;
    while let Some((_, length)) = read_attribute(&tokens[start..]) {
        start += length;
    }
    let word = |at: usize| match tokens.get(at).map(|token| token.kind) {
        Some(Kind::Word(word)) => word,
        _ => "",
    };
    let mut first = start;
    if word(first) == "pub" {
        first += 1;
        if tokens.get(first).is_some_and(|token| token.kind == Kind::Mark('(')) {
            first += group_length(&tokens[first..]);
        }
    }
    let is_function = word(first) == "const" && BRACED.contains(&word(first + 1));
    let end = match word(first) {
        name if BRACED.contains(&name) || is_function => End::Brace,
        name if UNBRACED.contains(&name) => End::Semicolon,
        _ => End::Comma,
    };
    first + length_until(&tokens[first..], &end)
}

/// Number of tokens up to and with this end.
fn length_until(tokens: &[Token], end: &End) -> usize {
    let mut depth = 0;
    // of `<` and `>`, which hide the commas of type arguments
    let mut angles = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += depth_change(token.kind);
        if depth < 0 {
            return at;
        }
        if depth > 0 {
            continue;
        }
        let is_arrow = || at > 0 && matches!(tokens[at - 1].kind, Kind::Mark('-' | '='));
        let is_end = match token.kind {
            Kind::Mark(';') => *end != End::Enclosing,
            Kind::Mark('}') => matches!(end, End::Brace | End::Comma),
            Kind::Mark(',') => *end == End::Comma && angles <= 0,
            Kind::Mark('<') => {
                angles += 1;
                false
            }
            Kind::Mark('>') if !is_arrow() => {
                angles -= 1;
                false
            }
            _ => false,
        };
        if is_end {
            return at + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    /// The words that are left of `text`.
    fn left(text: &str) -> String {
        let words = without_tests(&tokens(text)).into_iter().filter_map(|token| match token.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn items_of_tests_end_where_the_language_ends_them() {
        for item in [
            "mod tests { fn f() { g(); } }",
            "mod tests;",
            "pub(crate) mod tests;",
            "use x::{self, y::{z, w}};",
            "fn f<A, B>(x: [u8; 3]) -> B where A: C, B: D { { x } }",
            "pub const fn f() {}",
            "pub(in crate::x) async fn f() {}",
            "const X: [u8; 2] = [A { x: 1 }.x, 2];",
            "let x = if y { 1 } else { 2 };",
            "impl<A, B> C for D<A> {}",
            "struct X(u8, u16);",
            "#[derive(Debug)] #[x = \"]\"] struct X;",
            "f(x, y);",
            "{ f(); }",
            "macro_rules! x { ($a:tt) => { $a } }",
        ] {
            assert_eq!(left(&format!("a #[cfg(test)] {item} b")), "a b", "{item}");
        }
    }

    #[test]
    fn fields_of_tests_leave_the_others() {
        for (text, expected) in [
            ("struct A { #[cfg(test)] x: M<A, B>, y: C } b", "struct A y C b"),
            ("struct A { y: C, #[cfg(test)] pub(super) x: fn(u8, u8) -> u8 } b", "struct A y C b"),
            ("enum A { #[cfg(test)] X { y: u8 }, Y } b", "enum A Y b"),
            ("match x { #[cfg(test)] A => f(x, y), B => c }", "match x B c"),
        ] {
            assert_eq!(left(text), expected, "{text}");
        }
    }

    #[test]
    fn conditions_that_only_tests_meet() {
        for (condition, is_left) in [
            ("test", false),
            ("all(test, unix)", false),
            ("all(unix, test)", false),
            ("all(test, not(loom))", false),
            ("any(test, fuzzing)", false),
            ("all(unix, any(test, loom),)", false),
            ("any(test, unix)", true),
            ("any(unix, test)", true),
            ("not(test)", true),
            ("any()", true),
            ("feature = \"test\"", true),
            ("all(target_os = \"linux\", any(unix, windows))", true),
        ] {
            let text = format!("a #[cfg({condition})] fn x() {{}}");
            assert_eq!(left(&text) == "a", !is_left, "{condition}");
        }
        assert_eq!(left("#[cfg_attr(test, x)] a"), "cfg_attr test x a");
    }

    #[test]
    fn inner_attributes_are_about_all_around_them() {
        assert_eq!(left("#![cfg(test)] use a::b; fn f() {}"), "");
        assert_eq!(left("mod a { #![cfg(test)] use b; fn f() {} } c"), "mod a c");
    }

    #[test]
    fn broken_text_ends() {
        for text in ["#[cfg(test)]", "#[cfg(test", "#[cfg(all(", "#[cfg(test)] fn f(", "#["] {
            left(text);
        }
    }
}

//! Emphasis, code and links within a line.
//!
//! [`next`] examines the start of the text that is not printed yet and returns what can be printed, or that more text is
//! needed. A span is printed once its end has arrived; until then, its opening characters may turn out to be plain text.

use super::style::{Span, Style};

/// Maximum length of a text that waits for the end of a span, in bytes. Beyond it, the opening characters are plain text.
pub(super) const MAX_HELD: usize = 512;

/// Maximum nesting of emphasis.
const MAX_DEPTH: usize = 6;

/// Kind of the start of a text that is not printed yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Plain text of this many bytes.
    Text(usize),
    /// Spans that take this many bytes.
    Spans(usize, Vec<Span>),
    /// Undecided until more of the line arrives.
    Wait,
}

/// Returns whether a character may begin or end a span or an escape.
pub(super) fn is_special(c: char) -> bool {
    matches!(c, '\\' | '`' | '*' | '_' | '~' | '[' | ']' | '(' | ')')
}

/// Examines the start of `text`, which follows the character `before`; `whole` if the line ends with `text`.
pub(super) fn next(text: &str, before: Option<char>, whole: bool) -> Next {
    next_within(text, before, whole, 0)
}

/// Returns the spans of a complete text.
pub(super) fn spans(text: &str, style: Style) -> Vec<Span> {
    spans_within(text, style, 0)
}

fn spans_within(text: &str, style: Style, depth: usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut add = |style: Style, text: &str| match spans.last_mut() {
        Some((last, so_far)) if *last == style => so_far.push_str(text),
        _ => spans.push((style, text.to_owned())),
    };
    let (mut rest, mut before) = (text, None);
    while !rest.is_empty() {
        let n = match next_within(rest, before, true, depth) {
            Next::Spans(n, found) => {
                found.into_iter().for_each(|(inner, text)| add(style | inner, &text));
                n
            }
            Next::Text(n) => {
                add(style, &rest[..n]);
                n
            }
            Next::Wait => {
                add(style, rest);
                rest.len()
            }
        };
        before = rest[..n].chars().next_back();
        rest = &rest[n..];
    }
    spans
}

fn next_within(text: &str, before: Option<char>, whole: bool, depth: usize) -> Next {
    let Some(first) = text.chars().next() else { return Next::Wait };
    // text that was held back for too long is plain text
    let ended = whole || text.len() >= MAX_HELD;
    match first {
        '\\' => escaped(text, whole),
        '`' => code(text, ended),
        '*' | '_' | '~' => emphasis(text, first, (before, ended), depth),
        '[' => link(text, ended, depth),
        first => {
            let special = |c: char| matches!(c, '\\' | '`' | '*' | '_' | '~' | '[');
            let end = text.find(special).unwrap_or(text.len());
            Next::Text(end.max(first.len_utf8()))
        }
    }
}

fn escaped(text: &str, whole: bool) -> Next {
    match text[1..].chars().next() {
        None if !whole => Next::Wait,
        // backslashes before brackets are kept: they delimit formulas
        Some(c) if matches!(c, '*' | '_' | '`' | '#' | '|' | '~' | '>' | '$') => {
            Next::Spans(2, vec![(Style::PLAIN, c.to_string())])
        }
        _ => Next::Text(1),
    }
}

/// Returns how many times `text` begins with `c`, a character of one byte.
fn run(text: &str, c: char) -> usize {
    text.chars().take_while(|found| *found == c).count()
}

fn code(text: &str, ended: bool) -> Next {
    let n = run(text, '`');
    if n == text.len() {
        return if ended { Next::Text(n) } else { Next::Wait };
    }
    match code_end(text, n, ended) {
        Some((end, after)) => {
            let mut inner = &text[n..end];
            if inner.starts_with(' ') && inner.ends_with(' ') && !inner.trim().is_empty() {
                inner = &inner[1..inner.len() - 1];
            }
            Next::Spans(after, vec![(Style::CODE, inner.to_owned())])
        }
        None if ended => Next::Text(n),
        None => Next::Wait,
    }
}

/// Finds the end of code that begins with `n` backquotes: the start of the closing backquotes and the byte after them.
/// Unless `ended`, backquotes at the end of `text` do not count, since more may follow.
fn code_end(text: &str, n: usize, ended: bool) -> Option<(usize, usize)> {
    let mut at = n;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let found = run(&text[start..], '`');
        at = start + found;
        if found == n && (ended || at < text.len()) {
            return Some((start, at));
        }
    }
    None
}

fn emphasis(text: &str, c: char, (before, ended): (Option<char>, bool), depth: usize) -> Next {
    let n = run(text, c);
    if n == text.len() {
        return if ended { Next::Text(n) } else { Next::Wait };
    }
    let most = if c == '~' { 2 } else { 3 };
    let opens =
        n <= most && (c != '~' || n == 2) && may_open(before, text[n..].chars().next(), c, n);
    if !opens || depth >= MAX_DEPTH {
        return Next::Text(n);
    }
    match emphasis_end(&text[n..], c, n, ended) {
        Some((inner, after)) => {
            let style = match (c, n) {
                ('~', _) => Style::STRIKE,
                (_, 1) => Style::ITALIC,
                (_, 2) => Style::BOLD,
                _ => Style::BOLD | Style::ITALIC,
            };
            Next::Spans(n + after, spans_within(&text[n..n + inner], style, depth + 1))
        }
        None if ended => Next::Text(n),
        None => Next::Wait,
    }
}

/// Returns whether `n` times `c` may begin emphasis: no blank follows, and the marks are not within a word (`snake_case`,
/// `2*3`).
fn may_open(before: Option<char>, after: Option<char>, c: char, n: usize) -> bool {
    let in_word = before.is_some_and(char::is_alphanumeric);
    after.is_some_and(|after| !after.is_whitespace()) && !(in_word && (c == '_' || n == 1))
}

fn may_close(before: Option<char>, after: Option<char>, c: char, n: usize) -> bool {
    let in_word = after.is_some_and(char::is_alphanumeric);
    before.is_some_and(|before| !before.is_whitespace()) && !(in_word && (c == '_' || n == 1))
}

/// Finds the end of the emphasis that `n` times `c` opened just before `text`: the end of its inner text, and the byte
/// after its closing marks.
fn emphasis_end(text: &str, c: char, n: usize, ended: bool) -> Option<(usize, usize)> {
    // lengths of the opening marks: of this emphasis and of those begun within it
    let mut open = vec![n];
    let (mut at, mut before) = (0, None);
    while let Some(found) = text[at..].chars().next() {
        if found == '\\' {
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            before = Some('\\');
            continue;
        }
        if found == '`' {
            let n = run(&text[at..], '`');
            let after = code_end(&text[at..], n, true).map_or(n, |(_, after)| after);
            (at, before) = (at + after, Some('`'));
            continue;
        }
        if found != c {
            (at, before) = (at + found.len_utf8(), Some(found));
            continue;
        }
        let length = run(&text[at..], c);
        let after = text[at + length..].chars().next();
        if after.is_none() && !ended {
            return None;
        }
        let mut left = length;
        while let Some(last) =
            open.last().copied().filter(|last| *last <= left && may_close(before, after, c, *last))
        {
            open.pop();
            left -= last;
            if open.is_empty() {
                let end = at + length - left;
                return Some((end - last, end));
            }
        }
        if left > 0 && left <= 3 && may_open(before, after, c, left) {
            open.push(left);
        }
        (at, before) = (at + length, Some(c));
    }
    None
}

/// Parses `[text](address)`. The text is shown, then the address unless it equals the text or starts with `#`.
fn link(text: &str, ended: bool, depth: usize) -> Next {
    let unknown = if ended { Next::Text(1) } else { Next::Wait };
    let Some(close) = bracket_end(text, '[', ']') else { return unknown };
    let rest = &text[close..];
    if rest.is_empty() {
        return if ended { Next::Text(1) } else { Next::Wait };
    }
    if !rest.starts_with('(') || depth >= MAX_DEPTH {
        return Next::Text(1);
    }
    let Some(end) = bracket_end(rest, '(', ')') else { return unknown };
    let (label, target) = (&text[1..close - 1], rest[1..end - 1].trim());
    let address = target.split_whitespace().next().unwrap_or_default();
    let mut spans = spans_within(label, Style::UNDERLINE, depth + 1);
    if !address.is_empty() && !address.starts_with('#') && address != label {
        spans.push((Style::DIM, format!(" ({address})")));
    }
    Next::Spans(close + end, spans)
}

/// Returns the position after the bracket that closes the one at the start of the text.
fn bracket_end(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        is_escaped = c == '\\';
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + c.len_utf8());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats spans as `b[bold]`, and plain text unchanged.
    fn shown(text: &str) -> String {
        let letter = |style: Style| {
            let all = [
                (Style::BOLD, 'b'),
                (Style::ITALIC, 'i'),
                (Style::STRIKE, 's'),
                (Style::UNDERLINE, 'u'),
                (Style::CODE, 'c'),
                (Style::DIM, 'd'),
            ];
            let on = all.into_iter().filter(|(one, _)| style | *one == style);
            on.map(|(_, letter)| letter).collect::<String>()
        };
        let one = |(style, text): Span| match letter(style) {
            letters if letters.is_empty() => text,
            letters => format!("{letters}[{text}]"),
        };
        spans(text, Style::PLAIN).into_iter().map(one).collect()
    }

    #[test]
    fn lines_are_read_as_their_writers_mean_them() {
        for (text, want) in [
            ("a **b** c", "a b[b] c"),
            ("*i* _i_ __b__ ***bi***", "i[i] i[i] b[b] bi[bi]"),
            ("**bold *it* more**", "b[bold ]bi[it]b[ more]"),
            ("**bold *it***", "b[bold ]bi[it]"),
            ("`a*b*` and ``a`b``", "c[a*b*] and c[a`b]"),
            ("` a `", "c[a]"),
            ("~~gone~~ ~5 ~~", "s[gone] ~5 ~~"),
            ("2 * 3 * 4, 2*3*4, a**b", "2 * 3 * 4, 2*3*4, a**b"),
            ("snake_case_name and __init__.py", "snake_case_name and b[init].py"),
            ("**open, `a", "**open, `a"),
            ("****", "****"),
            (r"\*no\* \(x_1\)", r"*no* \(x_1\)"),
            ("[site](https://a.b/c_d) [1, 2] [x]", "u[site]d[ (https://a.b/c_d)] [1, 2] [x]"),
            ("[https://a.b](https://a.b) [top](#top)", "u[https://a.b] u[top]"),
            ("**\u{4f60}\u{597d}**\u{ff0c}", "b[\u{4f60}\u{597d}]\u{ff0c}"),
            ("**Note:**text", "b[Note:]text"),
        ] {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_may_still_become_a_span_is_not_shown() {
        for text in ["*", "**a", "**a*", "**a**", "`a", "`a`", "[a", "[a]", "[a](b", "\\", "~~a"] {
            assert_eq!(next(text, None, false), Next::Wait, "{text:?}");
        }
        assert!(matches!(next("**a** ", None, false), Next::Spans(5, _)));
        assert_eq!(next("* a", None, false), Next::Text(1));
        let long = format!("**{}", "a ".repeat(MAX_HELD));
        assert_eq!(next(&long, None, false), Next::Text(2), "not held for ever");
    }
}

//! Lark grammars from outside, cut into tokens as llguidance cuts them, so that measures see what the compiler sees: a name in a
//! string, an expression or a comment is no reference, and a bracket there opens nothing.
//!
//! Where a text is no Lark, the compiler refuses it before it follows any reference; what is measured then does not matter.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::gbnf::WHAT;
use crate::paths::References;
use crate::work::Work;
use crate::{GrammarError, Result, limits, regex, schema};

/// A token of Lark, as far as measures tell tokens apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    /// The name of a rule or a terminal.
    Name(&'t str),
    /// A text between double quotes.
    Text,
    /// A regular expression, between its slashes, and the letters behind them.
    Regex {
        /// The expression.
        pattern: &'t str,
        /// Any of `imslux`.
        flags: &'t str,
    },
    /// A number, without its sign and what is behind its point.
    Number(&'t str),
    /// A word that begins with `%`.
    Directive(&'t str),
    /// The JSON that follows `%json`, `%regex` or `%llguidance`.
    Json(Value),
    /// A token of the vocabulary: `<[7]>`, `<|name|>`.
    Special(&'t str),
    /// A line break.
    Newline,
    /// Any other character: an operator, a bracket, a colon.
    Sign(char),
}

/// Microseconds of a text, an expression or a name, and for each pair of alternatives.
const PART: f64 = 12.0;
const ALTERNATIVE_PAIR: f64 = 0.0012;

/// Directives that JSON follows.
const WITH_JSON: [&str; 3] = ["%json", "%regex", "%llguidance"];

/// Cuts a grammar into tokens. Blanks and comments are left out.
///
/// # Errors
/// [`GrammarError::Malformed`]: JSON that cannot be read.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, end) = match first {
            ' ' | '\t' | '\r' => (None, 1),
            '\n' => (Some(Token::Newline), 1),
            '#' => (None, line_end(rest)),
            '/' if rest.starts_with("//") => (None, line_end(rest)),
            '/' => {
                let end = quoted_end(rest);
                let pattern = rest.get(1..end.saturating_sub(1)).unwrap_or("");
                let n = span(&rest[end..], |c| "imslux".contains(c));
                (Some(Token::Regex { pattern, flags: &rest[end..end + n] }), end + n)
            }
            '"' => {
                let end = quoted_end(rest);
                (Some(Token::Text), end + usize::from(rest[end..].starts_with('i')))
            }
            '<' => match special_end(rest) {
                Some(end) => (Some(Token::Special(&rest[..end])), end),
                None => (Some(Token::Sign('<')), 1),
            },
            '%' => {
                let end = 1 + span(&rest[1..], |c| c.is_ascii_lowercase());
                (Some(Token::Directive(&rest[..end])), end)
            }
            '0'..='9' => {
                let end = span(rest, |c| c.is_ascii_digit());
                (Some(Token::Number(&rest[..end])), end)
            }
            _ => match name_end(rest) {
                Some(end) => (Some(Token::Name(&rest[..end])), end),
                None => (Some(Token::Sign(first)), first.len_utf8()),
            },
        };
        rest = &rest[end..];
        let has_json = matches!(&token, Some(Token::Directive(name)) if WITH_JSON.contains(name));
        all.extend(token);
        if has_json {
            let (value, end) = json(rest)?;
            all.push(Token::Json(value));
            rest = &rest[end..];
        }
    }
    Ok(all)
}

/// Bytes at the beginning of a text whose characters have a property.
fn span(text: &str, has: impl Fn(char) -> bool) -> usize {
    text.find(|c| !has(c)).unwrap_or(text.len())
}

fn line_end(text: &str) -> usize {
    span(text, |c| c != '\n')
}

/// The end of the string or the expression that a text begins with; the end of the text if it has none. Expressions may go over
/// several lines.
fn quoted_end(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if Some(c) == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The end of `<name>`, which has no blanks nor other angles within.
fn special_end(text: &str) -> Option<usize> {
    let end = 1 + span(&text[1..], |c| !c.is_whitespace() && !"<>".contains(c));
    (end > 1 && text[end..].starts_with('>')).then_some(end + 1)
}

/// The end of a name: small letters are those of a rule, capitals those of a terminal, so that `aB` is two names.
fn name_end(text: &str) -> Option<usize> {
    let lead = usize::from(text.starts_with('_'));
    let first = text[lead..].chars().next()?;
    let letter: fn(&char) -> bool = match first {
        'a'..='z' => char::is_ascii_lowercase,
        'A'..='Z' => char::is_ascii_uppercase,
        _ => return None,
    };
    let inner = |c: char| letter(&c) || c.is_ascii_digit() || c == '_' || c == '-';
    Some(lead + span(&text[lead..], inner))
}

/// The JSON that a text begins with, and its end.
fn json(text: &str) -> Result<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let problem = match values.next() {
        Some(Ok(value)) => return Ok((value, values.byte_offset())),
        Some(Err(error)) => error.to_string(),
        None => "nothing follows the directive".to_owned(),
    };
    Err(GrammarError::Malformed { what: WHAT, problem: format!("JSON within it: {problem}") })
}

/// Refuses a grammar that takes too much work: brackets, repetitions, references, expressions and schemas within it.
///
/// # Errors
/// [`GrammarError::TooLarge`], and what is wrong with JSON within it.
pub(crate) fn check(text: &str, work: &mut Work) -> Result<()> {
    let tokens = tokens(text)?;
    let (mut depth, mut combined, mut directive) = (0_u64, 0_u64, "");
    let (mut n, mut alternatives) = (0.0, 0.0);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            // `x~3` repeats, `~x` is the complement
            Token::Sign('~') if matches!(tokens.get(at + 1), Some(Token::Number(_))) => {}
            Token::Sign('&' | '~') => combined += 1,
            Token::Regex { pattern, flags } => {
                n += 1.0;
                regex::check(WHAT, pattern, flags, work)?;
            }
            Token::Special(name) => {
                let problem = format!("`{name}`: tokens cannot be named, only their texts");
                return Err(GrammarError::Malformed { what: WHAT, problem });
            }
            Token::Text | Token::Name(_) => n += 1.0,
            Token::Sign('|') => alternatives += 1.0,
            Token::Directive(name) => directive = name,
            Token::Json(value) if directive == "%json" => schema::check(value, work)?,
            _ => {}
        }
        limits::check(WHAT, "brackets within each other", depth, limits::DEPTH)?;
    }
    limits::check(WHAT, "`&` and `~`", combined, limits::INTERSECTIONS)?;
    if combined > 0 {
        work.combines();
    }
    work.add(WHAT, PART * n + ALTERNATIVE_PAIR * alternatives * alternatives)?;
    check_repeats(&tokens)?;
    references(&tokens).check(WHAT)?;
    let parts = expanded(&tokens, |token| matches!(token, Token::Text | Token::Regex { .. }));
    limits::check(WHAT, "parts of a terminal, written out", parts, limits::TERMINAL)?;
    let optional = expanded(&tokens, |token| matches!(token, Token::Sign('?' | '*'))) as f64;
    work.add(WHAT, regex::EMPTY_PAIR * optional * optional)
}

/// Refuses counted repetitions that go too far: `x{3}`, `x{3,5}`, `x~3..5`. Those within each other multiply.
fn check_repeats(tokens: &[Token<'_>]) -> Result<()> {
    let mut products = limits::Products::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Sign('(' | '[') => products.open(),
            Token::Sign(')' | ']') => products.close(),
            Token::Sign('{' | '~') => {
                let Some((most, n)) = counts(&tokens[at..]) else { continue };
                limits::check(WHAT, "repetitions", products.repeat(most), limits::REPEATS)?;
                at += n;
            }
            Token::Text | Token::Name(_) | Token::Regex { .. } | Token::Special(_) => {
                products.atom();
            }
            _ => {}
        }
    }
    Ok(())
}

/// The greatest number of a repetition behind its `{` or `~`, and how many tokens it takes.
fn counts(tokens: &[Token<'_>]) -> Option<(u64, usize)> {
    let is_part = |token: &&Token<'_>| matches!(token, Token::Number(_) | Token::Sign(',' | '.'));
    let all: Vec<_> = tokens.iter().take_while(is_part).collect();
    let most = all.iter().filter_map(|token| match token {
        // one that fits nowhere is the greatest there is
        Token::Number(digits) => Some(digits.parse().unwrap_or(u64::MAX)),
        _ => None,
    });
    Some((most.max()?, all.len()))
}

/// The greatest number of certain tokens in a terminal if the terminals that it names are written out in each place: the compiler joins
/// texts that way.
///
/// Terminals that name each other in a circle count once: the compiler refuses them.
fn expanded(tokens: &[Token<'_>], counts: impl Fn(&Token<'_>) -> bool) -> u64 {
    let mut parts: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut own: HashMap<&str, u64> = HashMap::new();
    let mut last = "";
    for (rule, token) in with_rules(tokens) {
        match token {
            Token::Name(name) if rule == *name && last != rule => {}
            Token::Name(name) => parts.entry(rule).or_default().push(name),
            token if counts(token) => *own.entry(rule).or_default() += 1,
            _ => {}
        }
        last = rule;
    }
    let mut sizes: HashMap<&str, u64> = HashMap::new();
    let names: HashSet<&str> = parts.keys().chain(own.keys()).copied().collect();
    let names = names.into_iter().filter(|name| is_terminal(name));
    for name in names {
        // a terminal and how many of its parts are added up
        let mut open = vec![(name, 0, 0_u64)];
        while let Some((name, next, sum)) = open.pop() {
            let within = parts.get(name).map_or(&[][..], Vec::as_slice);
            let Some(part) = within.get(next) else {
                sizes.insert(name, sum.saturating_add(own.get(name).copied().unwrap_or(0)));
                continue;
            };
            match sizes.get(part) {
                Some(size) => open.push((name, next + 1, sum.saturating_add(*size))),
                None if !is_terminal(part) => open.push((name, next + 1, sum)),
                None => {
                    // known as empty while it is open, so that a circle ends
                    sizes.insert(part, 0);
                    open.push((name, next, sum));
                    open.push((part, 0, 0));
                }
            }
        }
    }
    sizes.values().copied().max().unwrap_or(0)
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase())
}

/// Each token with the name of the rule that it belongs to; the name at the beginning of a rule belongs to that rule.
///
/// A name at the beginning of a line is that of a rule; a line that begins with anything else continues the rule before it.
fn with_rules<'a, 't>(tokens: &'a [Token<'t>]) -> impl Iterator<Item = (&'t str, &'a Token<'t>)> {
    let (mut rule, mut begins) = ("", true);
    tokens.iter().map(move |token| {
        match token {
            Token::Name(name) if begins => rule = name,
            Token::Directive("%ignore" | "%import" | "%declare" | "%override") if begins => {
                rule = ""
            }
            _ => {}
        }
        // `!` and `?` may precede the name of a rule
        let is_mark = matches!(token, Token::Sign('!' | '?'));
        begins = *token == Token::Newline || (begins && is_mark);
        (rule, token)
    })
}

/// The rules of a grammar and what they refer to.
///
/// The names of grammars within grammars count as if they were the same: that can only make paths longer.
pub(crate) fn references<'t>(tokens: &[Token<'t>]) -> References<'t> {
    let mut references = References::default();
    let (mut depth, mut around, mut last) = (0_u64, 0, "");
    for (rule, token) in with_rules(tokens) {
        if rule != last {
            (last, around) = (rule, depth);
            references.nested(rule, 0);
            if matches!(token, Token::Name(_)) {
                continue;
            }
        }
        match token {
            Token::Name(name) => references.refers(rule, name),
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        references.nested(rule, depth.saturating_sub(around));
    }
    references
}

//! Expressions of licences as SPDX defines them: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`,
//! `Apache-2.0 WITH LLVM-exception`, and cargo's older `MIT/Apache-2.0`.
//!
//! Source: SPDX specification 2.3, annex D.

use std::iter::Peekable;
use std::vec::IntoIter;

use anyhow::{Context, ensure};

/// Licences that a package is published under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A licence, with its exception if it has one.
    Licence(String),
    /// All of these apply.
    All(Vec<Expression>),
    /// One of these applies.
    Any(Vec<Expression>),
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// If an identifier, operator or parenthesis is missing or misplaced.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Expression> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
        let mut words = words.into_iter().peekable();
        let expression =
            any(&mut words).with_context(|| format!("`{text}` is no expression of licences"))?;
        let rest: Vec<String> = words.collect();
        ensure!(rest.is_empty(), "`{text}` has an unexpected `{}`", rest.join(" "));
        Ok(expression)
    }

    /// Licences that are named.
    pub(crate) fn licences(&self) -> Vec<&str> {
        match self {
            Expression::Licence(licence) => vec![licence],
            Expression::All(parts) | Expression::Any(parts) => {
                parts.iter().flat_map(Expression::licences).collect()
            }
        }
    }

    /// Licences that satisfy the expression and have the least ranks; `None` if every choice has one without a rank.
    pub(crate) fn choose(&self, rank: &impl Fn(&str) -> Option<usize>) -> Option<Vec<&str>> {
        self.ranked(rank).map(|(_, licences)| licences)
    }

    fn ranked(&self, rank: &impl Fn(&str) -> Option<usize>) -> Option<(usize, Vec<&str>)> {
        match self {
            Expression::Licence(licence) => Some((rank(licence)?, vec![licence])),
            Expression::All(parts) => {
                let mut chosen = (0, Vec::new());
                for part in parts {
                    let (rank, licences) = part.ranked(rank)?;
                    chosen.0 += rank;
                    for licence in licences {
                        if !chosen.1.contains(&licence) {
                            chosen.1.push(licence);
                        }
                    }
                }
                Some(chosen)
            }
            Expression::Any(parts) => {
                parts.iter().filter_map(|part| part.ranked(rank)).min_by_key(|(rank, _)| *rank)
            }
        }
    }
}

type Words = Peekable<IntoIter<String>>;

/// `OR` binds less than `AND`.
fn any(words: &mut Words) -> anyhow::Result<Expression> {
    Ok(one_or_several(separated(words, "OR", all)?, Expression::Any))
}

fn all(words: &mut Words) -> anyhow::Result<Expression> {
    Ok(one_or_several(separated(words, "AND", operand)?, Expression::All))
}

fn separated(
    words: &mut Words,
    operator: &str,
    part: fn(&mut Words) -> anyhow::Result<Expression>,
) -> anyhow::Result<Vec<Expression>> {
    let mut parts = vec![part(words)?];
    while words.next_if(|word| word.eq_ignore_ascii_case(operator)).is_some() {
        parts.push(part(words)?);
    }
    Ok(parts)
}

fn one_or_several(
    mut parts: Vec<Expression>,
    several: fn(Vec<Expression>) -> Expression,
) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { several(parts) }
}

/// A licence, with or without an exception, or an expression in parentheses.
fn operand(words: &mut Words) -> anyhow::Result<Expression> {
    if words.next_if_eq("(").is_some() {
        let inner = any(words)?;
        ensure!(words.next_if_eq(")").is_some(), "a `(` without its `)`");
        return Ok(inner);
    }
    let mut licence = identifier(words)?;
    if words.next_if(|word| word.eq_ignore_ascii_case("WITH")).is_some() {
        licence = format!("{licence} WITH {}", identifier(words)?);
    }
    Ok(Expression::Licence(licence))
}

fn identifier(words: &mut Words) -> anyhow::Result<String> {
    let word = words.next().context("it ends where a licence is expected")?;
    let is_operator = ["AND", "OR", "WITH"].iter().any(|known| word.eq_ignore_ascii_case(known));
    let is_name = word.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c));
    ensure!(is_name && !is_operator, "`{word}` where a licence is expected");
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefers what comes first here, and allows nothing else.
    const ORDER: [&str; 5] =
        ["Apache-2.0", "MIT", "ISC", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];

    fn chosen(text: &str) -> Option<Vec<String>> {
        let expression = Expression::parse(text).expect("an expression");
        let rank = |licence: &str| ORDER.iter().position(|known| *known == licence);
        expression.choose(&rank).map(|licences| licences.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn the_best_licences_that_suffice_are_chosen() {
        for (text, expected) in [
            ("MIT", Some(&["MIT"][..])),
            ("MIT OR Apache-2.0", Some(&["Apache-2.0"])),
            ("MIT/Apache-2.0", Some(&["Apache-2.0"])),
            ("Unlicense or MIT", Some(&["MIT"])),
            ("GPL-2.0+", None),
            ("Apache-2.0 AND ISC", Some(&["Apache-2.0", "ISC"])),
            ("MIT AND GPL-3.0-only", None),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(&["Apache-2.0", "Unicode-3.0"])),
            ("MIT OR Apache-2.0 AND GPL-3.0-only", Some(&["MIT"])),
            ("(MIT OR Apache-2.0) AND GPL-3.0-only", None),
            ("MIT AND (ISC AND MIT)", Some(&["MIT", "ISC"])),
            (
                "Apache-2.0 WITH LLVM-exception AND ISC",
                Some(&["Apache-2.0 WITH LLVM-exception", "ISC"]),
            ),
            ("Apache-2.0 WITH Classpath-exception-2.0", None),
        ] {
            let expected: Option<Vec<String>> =
                expected.map(|licences| licences.iter().map(|l| (*l).to_owned()).collect());
            assert_eq!(chosen(text), expected, "{text}");
        }
    }

    #[test]
    fn all_licences_are_named() {
        let expression = Expression::parse("(A OR B WITH x) AND C").expect("an expression");
        assert_eq!(expression.licences(), ["A", "B WITH x", "C"]);
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "A, B"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}

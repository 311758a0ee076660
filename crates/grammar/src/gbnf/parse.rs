//! Reading GBNF.

use super::{Expr, WHAT, malformed};
use crate::{GrammarError, Result, limits};

/// The rules of a text, in order.
///
/// # Errors
/// The first thing that cannot be read, with its line.
pub(super) fn rules(text: &str) -> Result<Vec<(String, Expr)>> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let mut rules = Vec::new();
    loop {
        reader.blanks(true);
        if reader.peek().is_none() {
            return Ok(rules);
        }
        let name = reader.name().ok_or_else(|| reader.wrong("a rule's name"))?.to_owned();
        reader.blanks(false);
        if !reader.skip("::=") {
            return Err(reader.wrong("`::=`"));
        }
        reader.blanks(true);
        let expr = reader.alternatives(false)?;
        if !matches!(reader.peek(), None | Some('\n' | '\r')) {
            return Err(reader.wrong("the end of the rule"));
        }
        rules.push((name, expr));
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// Brackets around what is being read.
    depth: u64,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip(&mut self, word: &str) -> bool {
        let there = self.rest().starts_with(word);
        self.at += if there { word.len() } else { 0 };
        there
    }

    fn wrong(&self, expected: &str) -> GrammarError {
        let line = self.text[..self.at].matches('\n').count() + 1;
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        malformed(format!("line {line}: expected {expected}, found {found}"))
    }

    /// Skip blanks and comments; line breaks only where a rule goes on over them.
    fn blanks(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                '#' => {
                    let end = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += end;
                }
                ' ' | '\t' => self.at += 1,
                '\n' | '\r' if lines => self.at += 1,
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Option<&'t str> {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let rest = self.rest();
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then_some(&rest[..end])
    }

    /// Enters a bracket.
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        limits::check(WHAT, "brackets within each other", self.depth, limits::DEPTH)
    }

    fn alternatives(&mut self, nested: bool) -> Result<Expr> {
        let mut all = vec![self.sequence(nested)?];
        while self.skip("|") {
            self.blanks(true);
            all.push(self.sequence(nested)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expr::Alt(all) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Expr> {
        let mut parts = Vec::new();
        while let Some(part) = self.part()? {
            parts.push(self.repeated(part)?);
            self.blanks(nested);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Seq(parts) })
    }

    fn part(&mut self) -> Result<Option<Expr>> {
        Ok(Some(match self.peek() {
            Some('"') => {
                self.next();
                self.literal()?
            }
            Some('[') => {
                self.next();
                self.class()?
            }
            Some('.') => {
                self.next();
                Expr::Class { negated: false, ranges: vec![('\0', char::MAX)] }
            }
            Some('(') => {
                self.next();
                self.blanks(true);
                self.deeper()?;
                let inner = self.alternatives(true)?;
                self.depth -= 1;
                if !self.skip(")") {
                    return Err(self.wrong("`)`"));
                }
                inner
            }
            Some('<' | '!') => {
                return Err(self.wrong(
                    "no tokens: texts can be named, and not the tokens they are written in",
                ));
            }
            _ => match self.name() {
                Some(name) => Expr::Rule(name.to_owned()),
                None => return Ok(None),
            },
        }))
    }

    fn repeated(&mut self, mut expr: Expr) -> Result<Expr> {
        for n in 1.. {
            limits::check(WHAT, "repetitions of repetitions", n, limits::DEPTH)?;
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let end = self.rest().find('}').ok_or_else(|| self.wrong("`}` after `{`"))?;
                    let bounds = bounds(&self.rest()[1..end]);
                    let bounds =
                        bounds.ok_or_else(|| self.wrong("how often, as {2}, {2,} or {2,3}"))?;
                    // the last byte is skipped below
                    self.at += end;
                    bounds
                }
                _ => return Ok(expr),
            };
            self.at += 1;
            expr = Expr::Repeat(Box::new(expr), least, most);
        }
        Ok(expr)
    }

    fn literal(&mut self) -> Result<Expr> {
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(Expr::Literal(text));
                }
                Some('\n') | None => return Err(self.wrong("`\"` at the end of a text")),
                Some(_) => text.push(self.character()?),
            }
        }
    }

    fn class(&mut self) -> Result<Expr> {
        let negated = self.skip("^");
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                Some(']') => {
                    self.next();
                    return Ok(Expr::Class { negated, ranges });
                }
                Some('\n') | None => return Err(self.wrong("`]`")),
                Some(_) => {
                    let first = self.character()?;
                    let range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
                    let last = if range {
                        self.next();
                        self.character()?
                    } else {
                        first
                    };
                    if last < first {
                        return Err(self.wrong("a range that goes up"));
                    }
                    ranges.push((first, last));
                }
            }
        }
    }

    /// A character, perhaps escaped.
    fn character(&mut self) -> Result<char> {
        let c = self.next().ok_or_else(|| self.wrong("a character"))?;
        if c != '\\' {
            return Ok(c);
        }
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(self.wrong("an escape such as \\n, \\\" or \\u00e9 before")),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let c = code.and_then(char::from_u32);
        let c = c.ok_or_else(|| self.wrong("the hexadecimal digits of a character"))?;
        self.at += digits;
        Ok(c)
    }
}

/// `2`, `2,`, `2,3`.
fn bounds(text: &str) -> Option<(u64, Option<u64>)> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match text.split_once(',') {
        None => number(text).map(|n| (n, Some(n))),
        Some((least, most)) if most.trim().is_empty() => Some((number(least)?, None)),
        Some((least, most)) => {
            let (least, most) = (number(least)?, number(most)?);
            (least <= most).then_some((least, Some(most)))
        }
    }
}

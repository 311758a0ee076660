//! How large a form may be. Whatever is larger is refused before anything is built of it.

use crate::{GrammarError, Result};

/// Bytes of a form.
pub(crate) const BYTES: u64 = 256 << 10;
/// Brackets, objects and lists within each other.
pub(crate) const DEPTH: u64 = 128;
/// Rules of a grammar, schemas within a schema.
pub(crate) const RULES: u64 = 20_000;
/// How often something may have to repeat.
pub(crate) const REPEATS: u64 = 10_000;

/// Refuse what is greater than its limit.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(crate) fn check(
    what: &'static str,
    measure: &'static str,
    found: u64,
    limit: u64,
) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(GrammarError::TooLarge { what, measure, limit, found: found.to_string() })
}

/// Measure a regular expression, or a grammar with such in it: bytes, nesting, `{n,m}` and rules.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub fn check_text(what: &'static str, text: &str) -> Result<()> {
    check(what, "bytes", text.len() as u64, BYTES)?;
    let mut brackets = Brackets::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or("");
                brackets.atom();
            }
            '(' | '[' => brackets.open(),
            ')' | ']' => brackets.close(),
            '{' => {
                if let Some(most) = repeats(rest) {
                    check(what, "repetitions", brackets.repeat(most), REPEATS)?;
                    rest = rest.split_once('}').map_or("", |(_, after)| after);
                }
            }
            _ => brackets.atom(),
        }
        check(what, "brackets within each other", brackets.open.len() as u64, DEPTH)?;
    }
    Ok(())
}

/// The greater number of `3}`, `3,}` or `3,4}` at the start of a text; one that fits nowhere is the greatest there is.
fn repeats(text: &str) -> Option<u64> {
    let (inside, _) = text.split_once('}')?;
    let numbers = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
    let digits = numbers.clone().all(|n| n.bytes().all(|b| b.is_ascii_digit()));
    digits.then(|| numbers.map(|n| n.parse().unwrap_or(u64::MAX)).max()).flatten()
}

/// How often things repeat within each other.
#[derive(Default)]
struct Brackets {
    /// For each open bracket the most repetitions within it.
    open: Vec<u64>,
    /// Of what came last.
    last: u64,
}

impl Brackets {
    fn atom(&mut self) {
        self.last = 1;
    }

    fn open(&mut self) {
        self.open.push(1);
    }

    fn close(&mut self) {
        self.last = self.open.pop().unwrap_or(1);
        self.within();
    }

    /// What came last comes up to `most` times.
    fn repeat(&mut self, most: u64) -> u64 {
        self.last = self.last.max(1).saturating_mul(most.max(1));
        self.within();
        self.last
    }

    fn within(&mut self) {
        if let Some(most) = self.open.last_mut() {
            *most = self.last.max(*most);
        }
    }
}

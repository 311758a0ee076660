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
/// Intersections and complements: an automaton has up to as many states as the product of theirs. Eight patterns take 2 ms, ten more
/// of them 4 s.
pub(crate) const INTERSECTIONS: u64 = 8;
/// Parts of a terminal once those that it names are written out: 130,000 take 0.2 s and 50 MB.
pub(crate) const TERMINAL: u64 = 100_000;

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

/// How often things repeat within each other: the product of counts from the outside in.
#[derive(Default)]
pub(crate) struct Products {
    /// For each open bracket the greatest product within it.
    open: Vec<u64>,
    /// Of the last part.
    last: u64,
}

impl Products {
    /// A part that repeats nothing.
    pub(crate) fn atom(&mut self) {
        self.last = 1;
        self.within();
    }

    pub(crate) fn open(&mut self) {
        self.open.push(1);
    }

    pub(crate) fn close(&mut self) {
        self.last = self.open.pop().unwrap_or(1);
        self.within();
    }

    /// Repeats the last part up to `most` times, and returns the product.
    pub(crate) fn repeat(&mut self, most: u64) -> u64 {
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

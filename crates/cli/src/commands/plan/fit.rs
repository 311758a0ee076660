//! Whether what is planned fits into memory, and what would.

use super::{CacheRow, WhatIf};
use crate::units::{decimal_bytes, thousands};

/// What is asked of memory.
pub(super) struct Wanted<'a> {
    /// Types of weights and cache.
    pub(super) weights: &'a str,
    pub(super) cache: &'a str,
    /// Bytes of weights, and of weights and cache.
    pub(super) weight_bytes: f64,
    pub(super) bytes: f64,
    /// Positions.
    pub(super) context: u64,
    /// Bytes of memory.
    pub(super) memory: f64,
}

/// `does not fit: 49.9 GB of weights, 48.0 GB of memory; --type Q4_K_M (16,266 tokens) does`; `None` if it does.
pub(super) fn problem(wanted: &Wanted<'_>, cache: &CacheRow, others: &[WhatIf]) -> Option<String> {
    let longest = cache.longest_context?;
    if longest >= wanted.context {
        return None;
    }
    let weights = decimal_bytes(wanted.weight_bytes);
    let memory = decimal_bytes(wanted.memory);
    let need = match longest {
        0 => format!("{weights} of weights"),
        _ => {
            let cache = decimal_bytes((wanted.bytes - wanted.weight_bytes).max(0.0));
            format!(
                "{weights} of weights and {cache} of cache for {} tokens",
                thousands(wanted.context)
            )
        }
    };
    let mut ways = Vec::new();
    if longest > 0 {
        ways.push(format!("-c {longest}"));
    }
    let same = |row: &&WhatIf| row.weights == wanted.weights && row.cache == wanted.cache;
    let fits = |row: &&WhatIf| row.longest_context.is_some_and(|n| n >= wanted.context);
    let other = others.iter().filter(|row| !same(row)).find(fits);
    if let Some(row) = other {
        let mut change = Vec::new();
        if row.weights != wanted.weights {
            change.push(format!("--type {}", row.weights));
        }
        if row.cache != wanted.cache {
            change.push(format!("-ctk {0} -ctv {0}", row.cache));
        }
        let tokens =
            row.longest_context.map_or_else(String::new, |n| format!(" ({} tokens)", thousands(n)));
        ways.push(format!("{}{tokens}", change.join(" ")));
    }
    let ways = match ways.is_empty() {
        true => "no type of weights does".to_owned(),
        false => format!("{} does", ways.join(" or ")),
    };
    Some(format!("does not fit: {need}, {memory} of memory; {ways}"))
}

//! Whether what is planned fits into memory, and what would.

use std::path::PathBuf;

use planner::{ModelVariant, WhatIf};
use program::{CacheStorage, MemoryNeeds};

use super::CacheRow;
use crate::fit;
use crate::storage::{self, WaysOut};
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

impl<'a> Wanted<'a> {
    /// By a model with a context of so many tokens.
    pub(super) fn of(model: &'a ModelVariant, context: u64, memory: f64) -> Wanted<'a> {
        Wanted {
            weights: &model.weights,
            cache: &model.cache,
            weight_bytes: model.estimate.resident_bytes(),
            bytes: model.estimate.memory(context),
            context,
            memory,
        }
    }
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

/// Whether what has no room in memory lies on disk.
pub(super) fn on_disk(bound: &Option<Bound>, needs: Option<MemoryNeeds>, memory: f64) -> bool {
    let resident = bound.as_ref().zip(needs).and_then(|(bound, needs)| bound.resident(&needs));
    resident.is_some_and(|bytes| bytes as f64 <= memory)
}

/// What the caches of all sessions may take, and what one takes.
pub struct Bound {
    /// Bytes that are allowed.
    pub most: u64,
    /// Where the rest goes, if it may go somewhere.
    pub disk: Option<PathBuf>,
    /// Bytes of one session at the context that is planned for: of these that must be in memory.
    pub cache: f64,
    /// The longest context that stays below, in steps of 256.
    pub longest: usize,
    /// Whether keys and values of fewer bits would take less.
    shrinks: bool,
    context: u64,
}

impl Bound {
    /// `bytes`: of the cache of so many tokens; `shrinks`: whether those of fewer bits would be less.
    pub(super) fn new(
        storage: &CacheStorage,
        context: u64,
        bytes: &dyn Fn(u64) -> f64,
        shrinks: bool,
    ) -> Option<Bound> {
        let (most, disk) = (storage.memory?, storage.disk.clone());
        let fits = |tokens: usize| bytes(tokens as u64) <= most as f64;
        let capacity = usize::try_from(context).unwrap_or(usize::MAX);
        let longest = fit::longest(capacity, fits);
        Some(Bound { most, disk, cache: bytes(context), longest, shrinks, context })
    }

    /// Bytes that are in memory at once, of all that is needed; `None` where nothing lies elsewhere.
    pub fn resident(&self, needs: &MemoryNeeds) -> Option<u64> {
        self.disk.as_ref()?;
        Some(needs.total() - needs.cache + needs.cache.min(self.most))
    }

    /// `does not fit: 12.9 GB of cache for 1,048,576 tokens, --kv-memory allows 2.00 GB; …`; `None` if it does.
    pub fn problem(&self) -> Option<String> {
        if self.cache <= self.most as f64 {
            return None;
        }
        let (cache, most) = (decimal_bytes(self.cache), decimal_bytes(self.most as f64));
        let tokens = thousands(self.context);
        let ways = WaysOut { longest: self.longest, shrinks: self.shrinks };
        let ways = storage::advice(self.cache.ceil() as u64, ways, None);
        Some(format!(
            "does not fit: {cache} of cache for {tokens} tokens, --kv-memory allows {most}; {ways}"
        ))
    }
}

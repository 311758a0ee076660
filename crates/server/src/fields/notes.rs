//! [`FieldNotes`]: what a client should know of the fields of its request, collected while the request is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes that are kept; of more only their number is.
const MOST: usize = 16;

/// Notes of one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNotes {
    /// Fields without effect are refused.
    pub(crate) strict: bool,
    collected: Arc<Mutex<Collected>>,
}

#[derive(Debug, Default)]
struct Collected {
    notes: Vec<String>,
    /// Number of further notes.
    more: usize,
}

impl FieldNotes {
    /// Of a request to a server that refuses fields without effect, or ignores them.
    pub(crate) fn new(strict: bool) -> FieldNotes {
        FieldNotes { strict, ..FieldNotes::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a note of one line, once. It is made only where it is kept.
    pub(crate) fn add(&self, note: impl FnOnce() -> String) {
        let mut collected = self.lock();
        if collected.notes.len() >= MOST {
            collected.more += 1;
            return;
        }
        let note = note();
        if !collected.notes.contains(&note) {
            collected.notes.push(note);
        }
    }

    /// All notes.
    pub(crate) fn all(&self) -> Vec<String> {
        let collected = self.lock();
        let more = match collected.more {
            0 => None,
            1 => Some("1 more warning".to_owned()),
            n => Some(format!("{n} more warnings")),
        };
        collected.notes.iter().cloned().chain(more).collect()
    }
}

//! [`FieldNotes`]: warnings about the fields of a request, collected while the request is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of notes; further notes are only counted.
const MOST: usize = 16;

/// Notes about one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNotes {
    /// Whether fields without effect are refused.
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
    /// Creates an empty collection. `strict`: whether the server refuses fields without effect or ignores them.
    pub(crate) fn new(strict: bool) -> FieldNotes {
        FieldNotes { strict, ..FieldNotes::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a note of one line, unless there is an equal one. `note` is not called once the maximum is reached.
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

    /// Returns all notes, and how many further ones there were.
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

//! [`FieldNotes`]: warnings about the fields of a request, collected while the request is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Notes;

/// Warnings about one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNotes {
    /// Whether fields without effect are refused.
    pub(crate) strict: bool,
    collected: Arc<Mutex<Notes>>,
}

impl FieldNotes {
    /// Creates an empty collection. `strict`: whether the server refuses fields without effect or ignores them.
    pub(crate) fn new(strict: bool) -> FieldNotes {
        FieldNotes { strict, ..FieldNotes::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a warning: see [`Notes::add`].
    pub(crate) fn add(&self, note: impl FnOnce() -> String) {
        self.lock().add(note);
    }

    /// Adds warnings from another component: see [`Notes::extend`].
    pub(crate) fn extend<'n>(&self, notes: impl IntoIterator<Item = &'n String>) {
        self.lock().extend(notes);
    }

    /// Adds all warnings of `others`, each after `prefix`.
    pub(crate) fn join(&self, prefix: &str, others: &Notes) {
        self.lock().join(prefix, others);
    }

    /// Returns all warnings so far.
    pub(crate) fn all(&self) -> Notes {
        self.lock().clone()
    }
}

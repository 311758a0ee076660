//! [`FieldNotes`]: warnings about the fields of a request, collected while the request is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of notes; further notes are only counted.
const MOST: usize = 16;
/// Maximum length of a note from another component, in characters.
const LONGEST: usize = 400;

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

    /// Adds notes from another component, such as those about a form, and shortens each.
    pub(crate) fn extend<'n>(&self, notes: impl IntoIterator<Item = &'n String>) {
        notes.into_iter().for_each(|note| self.add(|| shortened(note)));
    }

    /// Returns all notes, and how many further ones there were.
    pub(crate) fn all(&self) -> Vec<String> {
        let collected = self.lock();
        collected.notes.iter().cloned().chain(further(collected.more)).collect()
    }
}

/// Returns a line with the number of omitted notes.
fn further(n: usize) -> Option<String> {
    match n {
        0 => None,
        1 => Some("1 more warning".to_owned()),
        n => Some(format!("{n} more warnings")),
    }
}

/// Returns the beginning of a note that is too long.
fn shortened(note: &str) -> String {
    match note.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &note[..end]),
        None => note.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_in_number_and_length() {
        let notes = |n: usize| (0..n).map(|i| format!("note {i}")).collect::<Vec<_>>();
        let told = |all: &[&[String]]| {
            let told = FieldNotes::default();
            all.iter().for_each(|notes| told.extend(*notes));
            told.all()
        };
        let (fits, one, many) = (notes(MOST), notes(MOST + 1), notes(MOST + 7));
        assert_eq!(told(&[&fits]), fits);
        assert_eq!(told(&[&one]), [&fits[..], &["1 more warning".to_owned()]].concat());
        assert_eq!(told(&[&many]), [&fits[..], &["7 more warnings".to_owned()]].concat());
        // omitted notes of several sources are counted together
        let other = ["another".to_owned()];
        assert_eq!(told(&[&one, &other]), [&fits[..], &["2 more warnings".to_owned()]].concat());
        let long = ["ä".repeat(LONGEST), "ä".repeat(LONGEST + 1)];
        assert_eq!(told(&[&long]), ["ä".repeat(LONGEST), "ä".repeat(LONGEST) + "…"]);
    }
}

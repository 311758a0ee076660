//! [`Notes`]: warnings about a request, bounded in number and length.

/// Maximum length of a warning from another component, in characters.
const LONGEST: usize = 400;

/// Warnings of one line each. The first [`Notes::MOST`] different ones are kept, further ones are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    lines: Vec<String>,
    /// Number of further warnings.
    more: usize,
}

impl Notes {
    /// Maximum number of warnings that are kept.
    pub const MOST: usize = 16;

    /// Adds a warning of one line, unless there is an equal one. `note` is not called once the maximum is reached.
    pub fn add(&mut self, note: impl FnOnce() -> String) {
        match self.lines.len() < Notes::MOST {
            true => self.insert(note()),
            false => self.more += 1,
        }
    }

    /// Adds a warning of one line, unless there is an equal one.
    pub fn insert(&mut self, note: String) {
        if self.lines.contains(&note) {
            return;
        }
        match self.lines.len() < Notes::MOST {
            true => self.lines.push(note),
            false => self.more += 1,
        }
    }

    /// Adds warnings from another component, and shortens each.
    pub fn extend<'n>(&mut self, notes: impl IntoIterator<Item = &'n String>) {
        notes.into_iter().for_each(|note| self.add(|| shortened(note)));
    }

    /// Adds all warnings of `others`, each after `prefix`.
    pub fn join(&mut self, prefix: &str, others: &Notes) {
        for note in &others.lines {
            self.add(|| format!("{prefix}{note}"));
        }
        self.more += others.more;
    }

    /// Whether there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the warnings that are kept.
    pub fn kept(&self) -> &[String] {
        &self.lines
    }

    /// Returns the warnings that are kept, and a last line with the number of the others if there are any.
    pub fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().chain(further(self.more)).collect()
    }
}

/// Returns a line with the number of omitted warnings.
fn further(n: usize) -> Option<String> {
    match n {
        0 => None,
        1 => Some("1 more warning".to_owned()),
        n => Some(format!("{n} more warnings")),
    }
}

/// Returns the beginning of a warning that is too long.
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
            let mut told = Notes::default();
            all.iter().for_each(|notes| told.extend(*notes));
            told.lines()
        };
        let (fits, one, many) =
            (notes(Notes::MOST), notes(Notes::MOST + 1), notes(Notes::MOST + 7));
        assert_eq!(told(&[&fits]), fits);
        assert_eq!(told(&[&one]), [&fits[..], &["1 more warning".to_owned()]].concat());
        assert_eq!(told(&[&many]), [&fits[..], &["7 more warnings".to_owned()]].concat());
        // omitted notes of several sources are counted together
        let other = ["another".to_owned()];
        assert_eq!(told(&[&one, &other]), [&fits[..], &["2 more warnings".to_owned()]].concat());
        let long = ["ä".repeat(LONGEST), "ä".repeat(LONGEST + 1)];
        assert_eq!(told(&[&long]), ["ä".repeat(LONGEST), "ä".repeat(LONGEST) + "…"]);
    }

    /// Two full collections make one of the same size, and no warning is lost from the count.
    #[test]
    fn joined_notes_are_bounded_together() {
        let of = |name: &str, n: usize| {
            let mut notes = Notes::default();
            (0..n).for_each(|i| notes.insert(format!("{name} {i}")));
            notes
        };
        let mut all = of("a", 20);
        all.join("field: ", &of("b", 19));
        assert_eq!((all.kept().len(), &*all.lines()[16]), (16, "23 more warnings"));
        let mut few = of("a", 1);
        few.join("field: ", &of("b", 1));
        few.join("field: ", &of("b", 1));
        assert_eq!(few.lines(), ["a 0", "field: b 0"]);
    }
}

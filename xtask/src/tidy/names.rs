//! One word, one meaning: no two types of the house have the same name.
//!
//! Types count that a whole crate or more can see (`pub`, `pub(crate)`); what a module keeps to itself and its parent
//! may be called what it is there. Tests, examples and re-exports do not count.

use std::collections::BTreeMap;

/// Names that are meant to be the same in several crates, and why.
const SAME: &[(&str, &str)] = &[
    ("Error", "each library has its own: STYLE and `thiserror` say so"),
    ("Result", "with that error"),
];

/// Where types are declared, by name.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    /// Collects the types of one file; `file` is its path in the repository.
    pub(super) fn add(&mut self, file: &str, text: &str) {
        let in_crate = file.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
        if !in_crate.is_some_and(|(_, path)| path.starts_with("src/")) {
            return;
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = declared(line) {
                self.0.entry(name.to_owned()).or_default().push(format!("{file}:{}", number + 1));
            }
        }
    }

    /// A finding for each name with several meanings, and for each exception that none needs.
    pub(super) fn check(&self, findings: &mut Vec<String>) {
        let several = self.0.iter().filter(|(_, places)| places.len() > 1);
        for (name, places) in several {
            if !SAME.iter().any(|(same, _)| same == name) {
                findings
                    .push(format!("type name `{name}` has two meanings: {}", places.join(", ")));
            }
        }
        for (same, _) in SAME {
            if self.0.get(*same).is_none_or(|places| places.len() < 2) {
                findings.push(format!(
                    "`{same}` may have several meanings in xtask/src/tidy/names.rs and has not"
                ));
            }
        }
    }
}

/// The name of the type that a line declares for its crate or others.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "))?;
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let keywords = ["struct ", "enum ", "union ", "trait ", "type "];
    let rest = keywords.iter().find_map(|keyword| line.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let mut names = Names::default();
        names.add("crates/a/src/error.rs", "pub enum Error {\npub type Result<T> = ..;");
        names.add("crates/b/src/error.rs", "pub enum Error {\npub type Result<T> = ..;");
        files.iter().for_each(|(file, text)| names.add(file, text));
        let mut findings = Vec::new();
        names.check(&mut findings);
        findings
    }

    #[test]
    fn a_name_with_two_meanings_is_found() {
        let plan = ("crates/a/src/x.rs", "/// Docs.\npub struct Plan<'a> {");
        let found = findings(&[plan, ("crates/b/src/y.rs", "pub(crate) trait Plan: Sync {")]);
        assert_eq!(
            found,
            ["type name `Plan` has two meanings: crates/a/src/x.rs:2, crates/b/src/y.rs:1"]
        );
        assert_eq!(findings(&[plan, ("crates/a/src/z.rs", "    pub type Plan = u8;")]).len(), 1);
        for (file, other) in [
            ("crates/b/src/y.rs", "pub(super) struct Plan;"),
            ("crates/b/src/y.rs", "struct Plan;"),
            ("crates/b/src/y.rs", "pub use a::Plan;"),
            ("crates/b/src/y.rs", "pub struct Planner;"),
            ("crates/b/tests/y.rs", "pub struct Plan;"),
            ("xtask/src/y.rs", "pub(crate) struct Plan;"),
        ] {
            assert!(findings(&[plan, (file, other)]).is_empty(), "{file}: {other}");
        }
    }

    #[test]
    fn an_exception_that_none_needs_is_found() {
        let mut found = Vec::new();
        Names::default().check(&mut found);
        assert_eq!(found.len(), SAME.len());
    }
}

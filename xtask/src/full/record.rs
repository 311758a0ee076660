//! The committed table of the last result of each part.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use super::parts::PARTS;

/// The table's place in the repository.
pub(super) const FILE: &str = "docs/full.md";

const HEAD: &str = "\
# Proofs outside the gate

`cargo xtask full` runs what takes too long for every change and writes this table; `cargo xtask full --list` says what each
part proves, `--only PART` runs one, `--touched` runs those whose crates have changed since. The gate prints how old each row
is. A `+` behind a commit means that files differed from it. *Owed* means that the part could not run on that machine.

| part | date | commit | result | duration |
|---|---|---|---|---|
";

/// The result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The first error.
    Failed(String),
    /// The tool that is missing here.
    Owed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(why) => write!(f, "failed: {why}"),
            Outcome::Owed(why) => write!(f, "owed: {why}"),
        }
    }
}

impl Outcome {
    fn parse(text: &str) -> Self {
        match text.split_once(": ") {
            Some(("owed", why)) => Outcome::Owed(why.to_owned()),
            Some(("failed", why)) => Outcome::Failed(why.to_owned()),
            _ if text == "passed" => Outcome::Passed,
            _ => Outcome::Failed(format!("unknown result `{text}`")),
        }
    }
}

/// The last result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) part: String,
    /// Day it ran, in UTC: `2026-11-26`.
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) outcome: Outcome,
    pub(super) duration: String,
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    rows: Vec<Row>,
}

impl Record {
    /// Reads the table; a missing file is an empty table.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Reads the rows of parts that exist.
    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [part, date, commit, outcome, duration] = cells[..] else { return None };
            PARTS.iter().find(|known| known.name == part)?;
            Some(Row {
                part: part.to_owned(),
                date: date.to_owned(),
                commit: commit.to_owned(),
                outcome: Outcome::parse(outcome),
                duration: duration.to_owned(),
            })
        };
        Self { rows: text.lines().filter_map(row).collect() }
    }

    pub(super) fn row(&self, part: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.part == part)
    }

    /// Replaces the part's row.
    pub(super) fn set(&mut self, row: Row) {
        self.rows.retain(|old| old.part != row.part);
        self.rows.push(row);
    }

    /// Writes the table, rows in the order of the parts.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, self.to_string())
            .with_context(|| format!("writing {}", path.display()))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for row in PARTS.iter().filter_map(|part| self.row(part.name)) {
            let Row { part, date, commit, outcome, duration } = row;
            writeln!(f, "| {part} | {date} | {commit} | {outcome} | {duration} |")?;
        }
        Ok(())
    }
}

/// Days since 1970-01-01 of `2026-11-26`.
pub(super) fn days(date: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(&format!("{date}T00:00:00Z")).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs() / 86_400).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(part: &str, outcome: Outcome) -> Row {
        Row {
            part: part.to_owned(),
            date: "2026-11-26".to_owned(),
            commit: "48d117b00+".to_owned(),
            outcome,
            duration: "3 min 09 s".to_owned(),
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut record = Record::default();
        record
            .set(row("miri-caches", Outcome::Owed("no nightly toolchain: see rustup".to_owned())));
        record.set(row("orders", Outcome::Failed("`cargo test` failed".to_owned())));
        record.set(row("orders", Outcome::Passed));
        let text = record.to_string();
        let again = Record::parse(&text);
        assert_eq!(again.to_string(), text);
        assert_eq!(again.row("orders"), Some(&row("orders", Outcome::Passed)));
        assert_eq!(again.row("miri-caches"), record.row("miri-caches"));
        assert_eq!(again.rows.len(), 2);
        // rows stand in the order of the parts, whichever ran first
        assert!(text.find("| orders |") < text.find("| miri-caches |"), "{text}");
    }

    #[test]
    fn what_is_no_result_has_not_passed() {
        assert_eq!(Outcome::parse("passed"), Outcome::Passed);
        for text in ["", "pass", "passed: but", "ok"] {
            assert!(matches!(Outcome::parse(text), Outcome::Failed(_)), "{text}");
        }
    }

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(days("1970-01-02"), Some(1));
        assert_eq!(days("2026-11-26"), Some(20_783));
        assert_eq!(days("yesterday"), None);
    }
}

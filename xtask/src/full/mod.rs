//! `cargo xtask full`: the proofs that are too long for the gate, in parts that can run one at a time.
//!
//! Each part writes its row into `docs/full.md`, which is committed: date, commit, result, duration. `parts.rs` lists the
//! parts, `record.rs` reads and writes the table. The gate prints the table's age with `--status`.

mod parts;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::MetadataCommand;

use parts::{PARTS, Part};
use record::{Outcome, Record, Row};

const HELP: &str = "\
cargo xtask full [OPTIONS]

Runs every proof that the gate leaves out and writes one row for each part into docs/full.md.

  --only PART[,PART]  these parts only
  --touched           parts that failed, are owed, or whose crates changed since their row was written
  --status            the age of each row and the crates that changed since; runs nothing
  --list              the parts and what they prove
";

/// Parses the arguments and runs the parts they select.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let mut selection = Selection::All;
    let mut args = args.iter().map(String::as_str);
    while let Some(option) = args.next() {
        let chosen = match option {
            "--only" => Selection::named(args.next().context("--only needs the name of a part")?)?,
            "--touched" => Selection::Touched,
            "--status" => return status(root),
            "--list" => {
                PARTS.iter().for_each(|part| eprintln!("{:12} {}", part.name, part.proves));
                return Ok(());
            }
            "help" | "-h" | "--help" => {
                eprint!("{HELP}");
                return Ok(());
            }
            other => bail!("{other}: no such option\n{HELP}"),
        };
        ensure!(selection == Selection::All, "one of --only and --touched, once\n{HELP}");
        selection = chosen;
    }
    let path = root.join(record::FILE);
    let dependencies = Dependencies::read(root)?;
    let mut failed = Vec::new();
    for part in PARTS {
        let holds = |row: &Row| holds(row, || dependencies.changed(root, &row.commit, part));
        if !selection.includes(part, Record::read(&path)?.row(part.name), holds) {
            continue;
        }
        let row = prove(root, part)?;
        eprintln!("== {}: {}, {}", part.name, row.outcome, row.duration);
        if matches!(row.outcome, Outcome::Failed(_)) {
            failed.push(part.name);
        }
        // read again: another part may have run in another terminal
        let mut record = Record::read(&path)?;
        if matches!(row.outcome, Outcome::Owed(_)) && record.row(part.name).is_some_and(holds) {
            eprintln!("== {}: the earlier result holds", part.name);
            continue;
        }
        record.set(row);
        record.write(&path)?;
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Whether a result still stands: the part passed, and none of its crates `changed` since.
fn holds(row: &Row, changed: impl FnOnce() -> Option<BTreeSet<String>>) -> bool {
    row.outcome == Outcome::Passed && changed().is_some_and(|crates| crates.is_empty())
}

/// Parts to run.
#[derive(PartialEq)]
enum Selection {
    All,
    Named(Vec<String>),
    Touched,
}

impl Selection {
    fn named(list: &str) -> anyhow::Result<Self> {
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        for name in &names {
            ensure!(
                PARTS.iter().any(|part| part.name == name),
                "no part `{name}`; there are: {}",
                PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(" ")
            );
        }
        Ok(Selection::Named(names))
    }

    /// Whether to run a part. `row` is its last result, which `holds` or not.
    fn includes(&self, part: &Part, row: Option<&Row>, holds: impl Fn(&Row) -> bool) -> bool {
        match self {
            Selection::All => true,
            Selection::Named(names) => names.iter().any(|name| name == part.name),
            Selection::Touched => !row.is_some_and(holds),
        }
    }
}

/// Runs one part and describes the result.
fn prove(root: &Path, part: &Part) -> anyhow::Result<Row> {
    let (date, commit) = (today(), commit(root)?);
    let start = Instant::now();
    let outcome = match (part.missing)(root) {
        Some(reason) => Outcome::Owed(reason),
        None => {
            eprintln!("== {}: {}", part.name, part.proves);
            match part.run(root) {
                Ok(()) => Outcome::Passed,
                Err(error) => Outcome::Failed(format!("{error:#}").replace(['\n', '|'], " ")),
            }
        }
    };
    let duration = match outcome {
        Outcome::Owed(_) => "-".to_owned(),
        _ => minutes(start.elapsed().as_secs()),
    };
    Ok(Row { part: part.name.to_owned(), date, commit, outcome, duration })
}

/// Prints the age of each row, and which crates of the part changed since.
fn status(root: &Path) -> anyhow::Result<()> {
    let record = Record::read(&root.join(record::FILE))?;
    let dependencies = Dependencies::read(root)?;
    eprintln!("proofs outside the gate (cargo xtask full --list; {}):", record::FILE);
    for part in PARTS {
        let Some(row) = record.row(part.name) else {
            eprintln!("  {:12} never ran", part.name);
            continue;
        };
        let age = record::days(&today())
            .zip(record::days(&row.date))
            .map_or(String::new(), |(now, then)| format!(" ({} days ago)", now - then));
        let changed = match dependencies.changed(root, &row.commit, part) {
            None => "commit unknown here".to_owned(),
            Some(crates) if crates.is_empty() => "no crate changed since".to_owned(),
            Some(crates) => {
                format!("changed since: {}", crates.into_iter().collect::<Vec<_>>().join(" "))
            }
        };
        eprintln!("  {:12} {} on {}{age}; {changed}", part.name, row.outcome, row.date);
    }
    Ok(())
}

/// The crates of the workspace, by folder name, and the crates that each depends on, those of its tests included.
struct Dependencies(BTreeMap<String, Vec<String>>);

impl Dependencies {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let metadata = MetadataCommand::new().current_dir(root).no_deps().exec();
        let metadata = metadata.context("running cargo metadata")?;
        let folder = |path: &cargo_metadata::camino::Utf8Path| {
            path.file_name().unwrap_or_default().to_owned()
        };
        let mut all = BTreeMap::new();
        for package in metadata.packages {
            let name = package.manifest_path.parent().map_or(String::new(), folder);
            let paths = package.dependencies.iter().filter_map(|needs| needs.path.as_deref());
            all.insert(name, paths.map(folder).collect());
        }
        Ok(Self(all))
    }

    /// `crates` and all that they depend on.
    fn closure(&self, crates: &[&str]) -> BTreeSet<String> {
        let mut rest: Vec<String> = crates.iter().map(|name| (*name).to_owned()).collect();
        let mut found = BTreeSet::new();
        while let Some(name) = rest.pop() {
            if found.insert(name.clone()) {
                rest.extend(self.0.get(&name).into_iter().flatten().cloned());
            }
        }
        found
    }

    /// Crates of the part with a difference between `commit` and the working tree; `None` if git does not know the commit.
    fn changed(&self, root: &Path, commit: &str, part: &Part) -> Option<BTreeSet<String>> {
        let commit = commit.trim_end_matches('+');
        let diff =
            ["diff", "--name-only", commit, "--", "crates", "fuzz", "Cargo.lock", "Cargo.toml"];
        let paths = git(root, &diff).ok()?;
        Some(crates_of(&paths, &self.closure(part.crates)))
    }
}

/// The crates among `wanted` that own one of these paths, one path a line.
fn crates_of(paths: &str, wanted: &BTreeSet<String>) -> BTreeSet<String> {
    let owner = |path: &str| {
        let mut folders = path.split('/');
        match (folders.next()?, folders.next()) {
            ("crates", Some(name)) => Some(name.to_owned()),
            (first, _) => Some(first.to_owned()),
        }
    };
    paths.lines().filter_map(owner).filter(|name| wanted.contains(name)).collect()
}

/// The checked-out commit; a `+` behind it says that files differ from it.
fn commit(root: &Path) -> anyhow::Result<String> {
    let head = git(root, &["rev-parse", "--short=9", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--", "crates", "fuzz"];
    Ok(if git(root, &status)?.is_empty() { head } else { head + "+" })
}

/// Output of a command of git.
fn git(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.context("running git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {error}", args[0]);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Today in UTC as `2026-11-26`.
fn today() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()[..10].to_owned()
}

fn minutes(seconds: u64) -> String {
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_crates() {
        let paths = "crates/cpu/src/lib.rs\ncrates/kv/tests/it/a.rs\nfuzz/Cargo.toml\nCargo.lock\n";
        let found = |wanted: &[&str]| -> Vec<String> {
            let wanted = wanted.iter().map(|name| (*name).to_owned()).collect();
            crates_of(paths, &wanted).into_iter().collect()
        };
        assert_eq!(found(&["cpu", "kernels"]), ["cpu"]);
        assert_eq!(found(&["fuzz", "kv", "Cargo.lock"]), ["Cargo.lock", "fuzz", "kv"]);
        assert!(found(&["kernels"]).is_empty());
    }

    #[test]
    fn parts_have_names_of_their_own_and_crates_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent");
        let names: BTreeSet<_> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), PARTS.len());
        for part in PARTS {
            for name in part.crates {
                let is_apart = ["fuzz", "Cargo.lock", "Cargo.toml"].contains(name);
                let place = if is_apart { root.join(name) } else { root.join("crates").join(name) };
                assert!(place.exists(), "{}: no crate `{name}`", part.name);
            }
        }
    }

    #[test]
    fn a_part_is_touched_by_what_its_crates_depend_on() {
        let needs = |name: &str, of: &[&str]| {
            (name.to_owned(), of.iter().map(|name| (*name).to_owned()).collect())
        };
        let all =
            [needs("cli", &["cpu", "hub"]), needs("cpu", &["kernels"]), needs("lab", &["cli"])];
        let dependencies = Dependencies(all.into_iter().collect());
        let closure: Vec<_> = dependencies.closure(&["cli", "fuzz"]).into_iter().collect();
        assert_eq!(closure, ["cli", "cpu", "fuzz", "hub", "kernels"]);
    }

    #[test]
    fn a_part_is_run_again_unless_its_result_holds() {
        let row = |outcome| Row {
            part: PARTS[0].name.to_owned(),
            date: "2026-11-26".to_owned(),
            commit: "48d117b00".to_owned(),
            outcome,
            duration: "-".to_owned(),
        };
        let none = || Some(BTreeSet::new());
        let one = || Some(BTreeSet::from(["cpu".to_owned()]));
        let runs = |outcome, changed: &dyn Fn() -> Option<BTreeSet<String>>| {
            Selection::Touched.includes(&PARTS[0], Some(&row(outcome)), |row| holds(row, changed))
        };
        assert!(!runs(Outcome::Passed, &none) && runs(Outcome::Passed, &one));
        assert!(runs(Outcome::Passed, &|| None), "the commit is unknown");
        assert!(runs(Outcome::Failed("x".to_owned()), &none));
        assert!(runs(Outcome::Owed("x".to_owned()), &none));
        assert!(Selection::Touched.includes(&PARTS[0], None, |_| true));
        assert!(Selection::All.includes(&PARTS[0], Some(&row(Outcome::Passed)), |_| true));
    }

    #[test]
    fn only_parts_that_exist_are_selected() {
        assert!(Selection::named("orders,miri-caches").is_ok());
        let error = Selection::named("orders,nonsense").err().expect("an unknown part");
        assert!(error.to_string().contains("no part `nonsense`; there are: "), "{error}");
    }

    #[test]
    fn durations_are_minutes_and_seconds() {
        assert_eq!(minutes(0), "0 min 00 s");
        assert_eq!(minutes(605), "10 min 05 s");
    }
}

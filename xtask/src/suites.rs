//! `cargo xtask test`: runs all test suites, two at a time.
//!
//! Cargo runs one suite after another. Many suites wait for servers and processes, and others end with one long test, so that much of a
//! machine is idle meanwhile. Here the suites that wait run beside those that compute.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Suites that start servers or processes and wait for them. They run one after another: some measure times.
const WAITING: &[&str] = &[
    "rooflight-cli it",
    "rooflight-cli served",
    "rooflight-lab it",
    "rooflight-server it",
    "rooflight-hub it",
    "rooflight-tools it",
];

/// Suites that compute for long, the longest first. All others follow.
const LONG: &[&str] = &[
    "rooflight-wgpu gpu",
    "rooflight-cpu it",
    "rooflight-cpu conformance",
    "rooflight-wgpu unit",
    "rooflight-wgpu cuda",
    "rooflight-conformance it",
    "rooflight-cpu recurrent",
    "rooflight-cpu unit",
    "rooflight-cpu kept",
    "rooflight-tokenizer it",
];

/// An executable with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    /// Package and target: `rooflight-cpu it`, `rooflight-cpu unit`.
    pub(crate) name: String,
    /// The executable.
    pub(crate) path: PathBuf,
    /// The folder of the package, in which its tests run.
    folder: PathBuf,
    /// The file with its main function, relative to the package's folder.
    source: String,
}

impl Suite {
    /// Reads a message of cargo (`--message-format json`); `None` if it is about something else.
    pub(crate) fn of_message(message: &str) -> Option<Suite> {
        let message: Value = serde_json::from_str(message).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        if message["profile"]["test"] == false {
            return None;
        }
        // `path+file:///work/crates/cpu#rooflight-cpu@0.1.0`, or `...crates/xtask#0.1.0` where folder and package share a name
        let (folder, package) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = match package.split_once('@') {
            Some((package, _)) => package,
            None => folder.rsplit('/').next()?,
        };
        let target = message["target"]["name"].as_str()?;
        let is_test = message["target"]["kind"][0].as_str()? == "test";
        let folder = message["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
        let folder = folder.unwrap_or(Path::new("")).to_owned();
        let source = message["target"]["src_path"].as_str().unwrap_or_default();
        let source = Path::new(source).strip_prefix(&folder).unwrap_or(Path::new(source));
        Some(Suite {
            name: format!("{package} {}", if is_test { target } else { "unit" }),
            path,
            source: source.display().to_string(),
            folder,
        })
    }

    /// The name of the executable's file.
    pub(crate) fn file(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The arguments of `cargo test` that run it alone.
    fn arguments(&self) -> String {
        match self.name.split_once(' ') {
            Some((package, "unit")) => format!("-p {package} --lib --bins"),
            Some((package, target)) => format!("-p {package} --test {target}"),
            None => self.name.clone(),
        }
    }
}

/// Builds all tests and runs them. `--no-fail-fast`: go on after a suite that failed.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let fail_fast = match args {
        [] => true,
        [flag] if flag == "--no-fail-fast" => false,
        _ => bail!("test: expected --no-fail-fast or nothing; cargo test takes more"),
    };
    let began = Instant::now();
    let suites = build(root)?;
    let total = suites.len();
    let failed = run_all(suites, fail_fast);
    eprintln!("{total} test suites in {:.0} s", began.elapsed().as_secs_f64());
    if failed.is_empty() {
        return Ok(());
    }
    for suite in &failed {
        eprintln!("error: test failed, to rerun: cargo test {}", suite.arguments());
    }
    bail!("{} of {total} test suites failed", failed.len())
}

/// Builds all tests.
fn build(root: &Path) -> anyhow::Result<Vec<Suite>> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let args = ["test", "--workspace", "--locked", "--tests", "--no-run"];
    let built = Command::new(cargo)
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    if !built.status.success() {
        bail!("the tests cannot be built");
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    Ok(messages.lines().filter_map(Suite::of_message).collect())
}

/// The suites that wait, and those that compute, each in the order in which they start.
fn lanes(suites: Vec<Suite>) -> [VecDeque<Suite>; 2] {
    let place = |list: &[&str], suite: &Suite| {
        list.iter().position(|name| *name == suite.name).unwrap_or(list.len())
    };
    let (mut waiting, mut computing): (Vec<_>, Vec<_>) =
        suites.into_iter().partition(|suite| WAITING.contains(&suite.name.as_str()));
    waiting.sort_by_key(|suite| place(WAITING, suite));
    computing.sort_by_key(|suite| place(LONG, suite));
    [waiting.into(), computing.into()]
}

/// Runs the suites and returns those that failed.
fn run_all(suites: Vec<Suite>, fail_fast: bool) -> Vec<Suite> {
    let [waiting, computing] = lanes(suites);
    let lanes = Mutex::new([waiting, computing]);
    let failed = Mutex::new(Vec::new());
    let printing = Mutex::new(());
    // a suite that computes gets half of the machine
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (lanes, failed, printing) = (&lanes, &failed, &printing);
    let next = |own: usize| {
        let mut lanes = lock(lanes);
        // suites that wait stay in their lane; those that compute run in both
        lanes[own].pop_front().or_else(|| lanes[1].pop_front())
    };
    let work = |own: usize| {
        while let Some(suite) = next(own) {
            let is_waiting = WAITING.contains(&suite.name.as_str());
            let threads = if is_waiting { cores } else { cores.div_ceil(2) };
            if !passes(&suite, threads, printing) {
                lock(failed).push(suite);
                if fail_fast {
                    *lock(lanes) = Default::default();
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        work(1);
    });
    std::mem::take(&mut lock(failed))
}

/// Runs a suite and prints what it printed, as cargo does, when it has ended.
fn passes(suite: &Suite, threads: usize, printing: &Mutex<()>) -> bool {
    eprintln!("       Begin {}", suite.name);
    let output = Command::new(&suite.path)
        .current_dir(&suite.folder)
        .env("CARGO_MANIFEST_DIR", &suite.folder)
        .env("RUST_TEST_THREADS", threads.to_string())
        .stdin(Stdio::null())
        .output();
    let _one_at_a_time = lock(printing);
    let mut out = std::io::stdout().lock();
    // nobody can be told that nobody reads
    let mut print = |bytes: &[u8]| drop(out.write_all(bytes));
    let what = if suite.name.ends_with(" unit") { "unittests " } else { "" };
    let head = format!("     Running {what}{} ({})\n", suite.source, suite.path.display());
    print(head.as_bytes());
    match output {
        Ok(output) => {
            print(&output.stdout);
            print(&output.stderr);
            output.status.success()
        }
        Err(error) => {
            print(format!("error: {error}\n").as_bytes());
            false
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str, path: &str) -> Suite {
        let (name, path) = (name.to_owned(), path.into());
        Suite { name, path, folder: std::env::temp_dir(), source: "tests/it.rs".into() }
    }

    #[test]
    fn messages_about_executables_are_suites() {
        let message = |package: &str, kind: &str, name: &str, is_test: bool| {
            let message = serde_json::json!({
                "package_id": package, "target": { "kind": [kind], "name": name, "src_path": "/w/crates/cli/src/lib.rs" },
                "executable": "/t/some-0a", "manifest_path": "/w/crates/cli/Cargo.toml", "profile": { "test": is_test },
            });
            Suite::of_message(&message.to_string())
        };
        let cli = "path+file:///w/crates/cli#rooflight-cli@0.1.0";
        let unit = message(cli, "lib", "rooflight_cli", true).unwrap();
        assert_eq!(
            (unit.name.as_str(), unit.file().as_str(), unit.source.as_str()),
            ("rooflight-cli unit", "some-0a", "src/lib.rs")
        );
        assert_eq!(unit.folder, Path::new("/w/crates/cli"));
        assert_eq!(unit.arguments(), "-p rooflight-cli --lib --bins");
        let it = message(cli, "test", "it", true).unwrap();
        assert_eq!(it.arguments(), "-p rooflight-cli --test it");
        assert_eq!(
            message("path+file:///w/xtask#0.1.0", "bin", "xtask", true).unwrap().name,
            "xtask unit"
        );
        assert_eq!(message(cli, "bin", "rooflight", false), None, "a program that tests start");
        assert_eq!(Suite::of_message("{\"reason\":\"build-finished\"}"), None);
    }

    /// Suites that wait are in one lane, in their order; the longest of the others starts first.
    #[test]
    fn lanes_begin_with_what_takes_longest() {
        let all =
            ["rooflight-kv it", "rooflight-cli served", "rooflight-cpu it", "rooflight-cli it"];
        let lanes = lanes(all.map(|name| suite(name, "")).into());
        let names = lanes.map(|lane| lane.into_iter().map(|suite| suite.name).collect::<Vec<_>>());
        assert_eq!(names[0], ["rooflight-cli it", "rooflight-cli served"]);
        assert_eq!(names[1], ["rooflight-cpu it", "rooflight-kv it"]);
    }

    /// Every suite runs once; one that fails is told, and with fail-fast nothing starts after it.
    #[cfg(unix)]
    #[test]
    fn suites_that_fail_are_told() {
        let all = || {
            let mut all = vec![suite("rooflight-cpu it", "/bin/false")];
            all.extend((0..5).map(|i| suite(&format!("x{i} it"), "/bin/true")));
            all.push(suite("rooflight-cli it", "/nowhere"));
            all
        };
        let mut failed: Vec<_> =
            run_all(all(), false).into_iter().map(|suite| suite.name).collect();
        failed.sort();
        assert_eq!(failed, ["rooflight-cli it", "rooflight-cpu it"]);
        assert!(!run_all(all(), true).is_empty());
        assert!(run_all(vec![suite("x it", "/bin/true")], true).is_empty());
    }
}

//! `cargo xtask times`: the gate's table of seconds, by step and by test suite, beside the budgets that it keeps.
//!
//! Clocks differ between machines and runs, so an exceeded budget is a warning and never a failure.

use std::collections::HashMap;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Seconds that a group of steps or suites may add to the gate.
struct Budget {
    name: &'static str,
    seconds: u32,
    /// Beginnings of the names of the steps and suites in it.
    of: &'static [&'static str],
}

/// Work to come has its budget already. With 15 minutes for all the rest they are about 20 minutes.
const BUDGETS: &[Budget] = &[
    Budget { name: "documents", seconds: 30, of: &["doc-tests"] },
    Budget { name: "published files", seconds: 60, of: &["published", "rooflight-published"] },
    Budget { name: "page", seconds: 90, of: &["page", "rooflight-page"] },
    Budget { name: "Python", seconds: 60, of: &["python", "rooflight-python"] },
    Budget { name: "GPU back ends", seconds: 90, of: &["rooflight-wgpu", "rooflight-cuda"] },
];

/// Seconds that the whole gate may take.
const WHOLE: u32 = 20 * 60;

/// Prints the table: of the steps in one file, and of the tests in a log of `cargo test`, whose executables are named by cargo's
/// messages (`--message-format json`) in another file.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let [steps, messages, log] = args else { bail!("times: expected STEPS MESSAGES LOG") };
    let read =
        |path: &str| std::fs::read_to_string(path).with_context(|| format!("reading {path}"));
    let steps = parse_steps(&read(steps)?);
    let executables = read(messages)?.lines().filter_map(executable).collect();
    let suites = parse_suites(&read(log)?, &executables);
    eprint!("{}", table(&steps, &suites));
    Ok(())
}

/// A name and the seconds it took.
type Time = (String, f64);

/// Lines of `SECONDS NAME`.
fn parse_steps(text: &str) -> Vec<Time> {
    let time = |line: &str| {
        let (seconds, name) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(time).collect()
}

/// Suites in the order of a log of `cargo test`. `names` has the suite of each test executable.
fn parse_suites(log: &str, names: &HashMap<String, String>) -> Vec<Time> {
    let mut suites: Vec<Time> = Vec::new();
    let mut current = None;
    for line in log.lines().map(str::trim) {
        if let Some(running) = line.strip_prefix("Running ") {
            let file =
                running.rsplit_once('(').map_or(running, |(_, path)| path.trim_end_matches(')'));
            let file = file.rsplit('/').next().unwrap_or(file);
            current = Some(names.get(file).cloned().unwrap_or_else(|| file.to_owned()));
        } else if let Some(name) = line.strip_prefix("Doc-tests ") {
            current = Some(format!("doc-tests {name}"));
        } else if let Some(times) = line.strip_prefix("all doctests ran in ") {
            // more than the sum of their results: it includes compiling them
            let seconds = times.split('s').next().and_then(|seconds| seconds.parse().ok());
            if let (Some(last), Some(seconds)) = (suites.last_mut(), seconds) {
                last.1 = seconds;
            }
        } else if line.starts_with("test result: ")
            && let Some((_, seconds)) = line.rsplit_once("finished in ")
            && let Ok(seconds) = seconds.trim_end_matches('s').parse()
            && let Some(name) = current.take()
        {
            suites.push((name, seconds));
        }
    }
    suites
}

/// File name and suite of a message of cargo about a test executable.
fn executable(message: &str) -> Option<(String, String)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    // `path+file:///work/crates/cpu#rooflight-cpu@0.1.0`, or `...crates/xtask#0.1.0` where folder and package share a name
    let (folder, package) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = match package.split_once('@') {
        Some((package, _)) => package,
        None => folder.rsplit('/').next()?,
    };
    let file = path.rsplit(['/', '\\']).next()?;
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let target = if kind == "test" { target } else { "unit" };
    Some((file.to_owned(), format!("{package} {target}")))
}

/// The table as text, the longest suites first.
fn table(steps: &[Time], suites: &[Time]) -> String {
    let mut text = String::from("seconds of the gate, by step\n");
    for (name, seconds) in steps {
        text += &format!("{seconds:7.0}  {name}\n");
    }
    let mut longest: Vec<&Time> = suites.iter().filter(|(_, seconds)| *seconds >= 1.0).collect();
    longest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let tests: f64 = suites.iter().map(|(_, seconds)| seconds).sum();
    text += &format!("seconds of {} test suites, {tests:.0} in all; those above 1\n", suites.len());
    for (name, seconds) in longest {
        text += &format!("{seconds:7.1}  {name}\n");
    }
    text += "seconds beside budgets\n";
    let sum = |of: &[&str]| -> f64 {
        let all = steps.iter().chain(suites);
        all.filter(|(name, _)| of.iter().any(|start| name.starts_with(start)))
            .fold(0.0, |sum, (_, seconds)| sum + seconds)
    };
    let whole: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
    let mut line = |name: &str, seconds: f64, budget: u32| {
        let warning = if seconds > f64::from(budget) { "  warning: over its budget" } else { "" };
        text += &format!("{seconds:7.0}  of {budget:5}  {name}{warning}\n");
    };
    for budget in BUDGETS {
        line(budget.name, sum(budget.of), budget.seconds);
    }
    line("the whole gate", whole, WHOLE);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running unittests src/lib.rs (target/debug/deps/rooflight-0a)
test result: ok. 135 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s
     Running tests/it/main.rs (target/debug/deps/it-1b)
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 91.00s
   Doc-tests gguf
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
all doctests ran in 31.00s; merged doctests compilation took 30.50s
";

    #[test]
    fn suites_are_named_by_their_package() {
        let message = |id: &str, kind: &str, name: &str, file: &str| {
            let message = serde_json::json!({
                "package_id": id, "target": { "kind": [kind], "name": name }, "executable": file,
            });
            executable(&message.to_string())
        };
        let names: HashMap<_, _> = [
            message(
                "path+file:///w/crates/cli#rooflight@0.1.0",
                "lib",
                "rooflight",
                "/t/rooflight-0a",
            ),
            message("path+file:///w/crates/wgpu#rooflight-wgpu@0.1.0", "test", "it", "/t/it-1b"),
            message("path+file:///w/xtask#0.1.0", "bin", "xtask", "/t/xtask-2c"),
        ]
        .into_iter()
        .flatten()
        .collect();
        assert_eq!(names["xtask-2c"], "xtask unit");
        let suites = parse_suites(LOG, &names);
        let want = [("rooflight unit", 1.5), ("rooflight-wgpu it", 91.0), ("doc-tests gguf", 31.0)];
        assert_eq!(suites, want.map(|(name, seconds)| (name.to_owned(), seconds)));

        let steps = parse_steps("20 cargo clippy\n1300 ./x test\nnonsense\n");
        let text = table(&steps, &suites);
        assert!(
            text.contains("     91  of    90  GPU back ends  warning: over its budget\n"),
            "{text}"
        );
        assert!(
            text.contains("     31  of    30  documents  warning: over its budget\n"),
            "{text}"
        );
        assert!(text.contains("      0  of    90  page\n"), "{text}");
        assert!(text.contains("   1320  of  1200  the whole gate  warning"), "{text}");
        assert!(text.find("rooflight-wgpu it") < text.find("rooflight unit"), "{text}");
    }
}

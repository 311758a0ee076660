//! `cargo xtask bench`: end-to-end speed over models, beside peers, in alternating rounds.
//!
//! Absolute figures differ from machine to machine and from minute to minute, so engines take turns and medians are
//! compared. A peer is any command that takes llama-bench's flags and prints its JSON: `llama-bench` is used where it
//! is on the path, others are named with `--peer NAME=COMMAND`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::make_model;

const HELP: &str = "\
cargo xtask bench MODEL.gguf... [-t THREADS] [-r ROUNDS] [-p TOKENS] [-n TOKENS] [-d DEPTH]
                  [--beside N] [--peer NAME=COMMAND]... [-o FOLDER]
cargo xtask bench --profiles [MODEL.gguf...] [OPTIONS]

Tokens per second of prompt (pp) and generation (tg) of this engine and of peers that print llama-bench's JSON, in
alternating rounds. With --beside, each is also measured while N other processes keep a core busy each, and what it
keeps of its quiet speed is told. Writes bench.md and bench.json into FOLDER (target/bench). Kernels alone:
cargo bench -p rooflight-kernels

With --profiles, the build from source (release) is compared with the one that is shipped (dist), and the command fails
if release has less than 0.95 of the speed of dist. Without models, it makes three of the shape of Qwen2.5 0.5B.
";

/// Minimum speed of a release build, as a share of a dist build's: speeds differ by 2 to 4 % from round to round.
const LEAST_SHARE: f64 = 0.95;
/// Weight types of the models that `--profiles` creates.
const PROFILE_TYPES: [&str; 3] = ["Q4_0", "Q4_K_M", "Q8_0"];

/// What to measure.
struct Options {
    models: Vec<PathBuf>,
    /// Compares builds of two profiles instead of engines.
    profiles: bool,
    threads: usize,
    rounds: usize,
    prompt: usize,
    generate: usize,
    depth: usize,
    /// Busy processes beside which to measure again.
    beside: usize,
    peers: Vec<(String, Vec<String>)>,
    folder: PathBuf,
}

fn parse(args: &[String], root: &Path) -> anyhow::Result<Options> {
    let mut options = Options {
        models: Vec::new(),
        profiles: false,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        rounds: 3,
        prompt: 512,
        generate: 64,
        depth: 0,
        beside: 0,
        peers: Vec::new(),
        folder: root.join("target/bench"),
    };
    if Command::new("llama-bench").arg("--help").output().is_ok() {
        options.peers.push(("llama.cpp".into(), vec!["llama-bench".into()]));
    }
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        let number = |text: &String| {
            text.parse().with_context(|| format!("{arg} wants a number, found `{text}`"))
        };
        match arg.as_str() {
            "-t" => options.threads = number(value()?)?,
            "-r" => options.rounds = number(value()?)?,
            "-p" => options.prompt = number(value()?)?,
            "-n" => options.generate = number(value()?)?,
            "-d" => options.depth = number(value()?)?,
            "--profiles" => options.profiles = true,
            "--beside" => options.beside = number(value()?)?,
            "-o" => options.folder = value()?.into(),
            "--peer" => {
                let (name, command) =
                    value()?.split_once('=').context("--peer wants NAME=COMMAND")?;
                let words: Vec<String> = command.split_whitespace().map(String::from).collect();
                ensure!(!words.is_empty(), "--peer {name} has no command");
                options.peers.push((name.into(), words));
            }
            flag if flag.starts_with('-') => bail!("unknown flag {flag}\n\n{HELP}"),
            model => options.models.push(model.into()),
        }
    }
    ensure!((options.profiles || !options.models.is_empty()) && options.rounds > 0, "{HELP}");
    Ok(options)
}

/// What is measured in turns.
struct Contender {
    name: String,
    command: Vec<String>,
    /// Busy processes beside it.
    beside: usize,
}

/// Processes that keep a core busy each, until this is dropped.
struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    fn start(n: usize) -> anyhow::Result<BusyProcesses> {
        let mut busy = BusyProcesses(Vec::new());
        for _ in 0..n {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            busy.0.push(child.context("starting a busy process")?);
        }
        Ok(busy)
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // one that is gone already keeps nothing busy
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Build, measure, write the tables, and print the markdown one.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        eprint!("{HELP}");
        return Ok(());
    }
    let mut options = parse(args, root)?;
    let ours = |profile: &str| {
        build(root, profile)?;
        let binary = root.join("target").join(profile).join("rooflight");
        anyhow::Ok(vec![binary.to_string_lossy().into_owned(), "bench".into()])
    };
    let mut engines = Vec::new();
    if options.profiles {
        for profile in ["release", "dist"] {
            engines.push((profile.to_owned(), ours(profile)?));
        }
        if options.models.is_empty() {
            options.models = make_models(&options.folder)?;
        }
    } else {
        engines.push(("rooflight".to_owned(), ours("release")?));
        engines.append(&mut options.peers);
    }
    let contenders = engines.into_iter().flat_map(|(name, command)| {
        let beside = (options.beside > 0).then(|| Contender {
            name: format!("{name} beside {}", options.beside),
            command: command.clone(),
            beside: options.beside,
        });
        std::iter::once(Contender { name, command, beside: 0 }).chain(beside)
    });
    let contenders: Vec<Contender> = contenders.collect();

    let mut rows = Vec::new();
    for model in &options.models {
        for (test, prompt, generate) in [("pp", options.prompt, 0), ("tg", 0, options.generate)] {
            if prompt + generate == 0 {
                continue;
            }
            let mut rates: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
            for round in 1..=options.rounds {
                for (Contender { name, command, beside }, rates) in
                    contenders.iter().zip(&mut rates)
                {
                    let _busy = BusyProcesses::start(*beside)?;
                    eprintln!(
                        "{} {test} round {round} of {}: {name}",
                        model.display(),
                        options.rounds
                    );
                    rates.push(measure(command, model, prompt, generate, &options)?);
                }
            }
            let medians: Vec<f64> = rates.into_iter().map(median).collect();
            rows.push((model, format!("{test}{}", prompt + generate), medians));
        }
    }
    std::fs::create_dir_all(&options.folder)?;
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name.as_str()).collect();
    let mut markdown = markdown(&names, &rows, options.depth);
    if options.beside > 0 {
        for (model, test, medians) in &rows {
            for (names, rates) in names.chunks_exact(2).zip(medians.chunks_exact(2)) {
                let (model, kept) = (model.display(), rates[1] / rates[0]);
                let _ =
                    writeln!(markdown, "{model} {test}: {} keeps {kept:.2} of its speed", names[1]);
            }
        }
    }
    std::fs::write(options.folder.join("bench.md"), &markdown)?;
    let json = rows.iter().map(|(model, test, medians)| {
        let rates: serde_json::Map<String, Value> = names
            .iter()
            .zip(medians)
            .map(|(name, rate)| ((*name).to_owned(), json!(rate)))
            .collect();
        json!({ "model": model, "test": test, "depth": options.depth, "threads": options.threads,
                "rounds": options.rounds, "tokens_per_second": rates })
    });
    let json = serde_json::to_string_pretty(&json.collect::<Vec<_>>())?;
    std::fs::write(options.folder.join("bench.json"), json)?;
    eprintln!("\n{markdown}\nwritten to {}", options.folder.display());
    if options.profiles {
        let slow = |(model, test, medians): &(&PathBuf, String, Vec<f64>)| {
            let share = medians[0] / medians[names.len() / 2];
            (share < LEAST_SHARE).then(|| format!("{} {test}: {share:.2}", model.display()))
        };
        let slow: Vec<String> = rows.iter().filter_map(slow).collect();
        ensure!(slow.is_empty(), "release is slower than dist: {}", slow.join(", "));
    }
    Ok(())
}

/// Creates models with random weights in the shape of Qwen2.5 0.5B, one for each of [`PROFILE_TYPES`]. Models of an
/// earlier run are reused.
fn make_models(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let mut models = Vec::new();
    for kind in PROFILE_TYPES {
        let path = folder.join(format!("qwen2.5-0.5b-{kind}.gguf"));
        if !path.exists() {
            let unfinished = path.with_extension("part");
            let to = unfinished.to_string_lossy();
            make_model(&["qwen2.5-0.5b", "--type", kind, "-o", &to].map(str::to_owned))?;
            std::fs::rename(&unfinished, &path)?;
        }
        models.push(path);
    }
    Ok(models)
}

/// Tokens per second of one run of one engine.
fn measure(
    command: &[String],
    model: &Path,
    prompt: usize,
    generate: usize,
    options: &Options,
) -> anyhow::Result<f64> {
    let (program, first) = command.split_first().context("an engine has a command")?;
    let flags = [
        ("-p", prompt),
        ("-n", generate),
        ("-d", options.depth),
        ("-t", options.threads),
        ("-r", 1),
    ];
    let output = Command::new(program)
        .args(first)
        .arg("-m")
        .arg(model)
        .args(flags.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.to_string()]))
        .args(["-o", "json"])
        .output()
        .with_context(|| format!("running {program}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", told.lines().last().unwrap_or(""));
    let rows: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("output of {program}"))?;
    rows[0]["avg_ts"].as_f64().with_context(|| format!("{program} printed no avg_ts"))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    if rates.len().is_multiple_of(2) {
        (rates[middle - 1] + rates[middle]) / 2.0
    } else {
        rates[middle]
    }
}

fn markdown(names: &[&str], rows: &[(&PathBuf, String, Vec<f64>)], depth: usize) -> String {
    let mut table = String::from("| model | test |");
    for name in names {
        let _ = write!(table, " {name} t/s |");
    }
    for name in &names[1..] {
        let _ = write!(table, " x {name} |");
    }
    let columns = 2 + names.len() + names.len() - 1;
    let _ = writeln!(table, "\n|{}", "---|".repeat(columns));
    for (model, test, medians) in rows {
        let name =
            model.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let at = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
        let _ = write!(table, "| {name} | {test}{at} |");
        for rate in medians {
            let _ = write!(table, " {rate:.1} |");
        }
        for rate in &medians[1..] {
            let _ = write!(table, " {:.2} |", medians[0] / rate);
        }
        table.push('\n');
    }
    table
}

/// Builds the binary with this profile.
fn build(root: &Path, profile: &str) -> anyhow::Result<()> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--profile", profile, "--locked", "-p", "rooflight-cli"])
        .current_dir(root)
        .status()?;
    ensure!(built.success(), "cargo build failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let model = PathBuf::from("a/b.gguf");
        let table =
            markdown(&["rooflight", "peer"], &[(&model, "pp512".into(), vec![30.0, 20.0])], 64);
        assert!(table.contains("| b.gguf | pp512 @ d64 | 30.0 | 20.0 | 1.50 |"), "{table}");
    }

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let options =
            parse(&words("m.gguf -t 3 -r 5 -p 7 -n 0 -d 9 --peer x=run-x --fast"), Path::new("/"));
        assert!(options.is_err_and(|e| e.to_string().contains("unknown flag --fast")));
        let options =
            parse(&words("m.gguf -t 3 -r 5 -p 7 -n 0 -d 9 --peer x=run-x"), Path::new("/"))
                .expect("good");
        assert_eq!(
            (options.threads, options.rounds, options.prompt, options.generate),
            (3, 5, 7, 0)
        );
        assert_eq!(options.peers.last().expect("named").1, ["run-x"]);
        assert!(parse(&words("-t 3"), Path::new("/")).is_err());
        let profiles = parse(&words("--profiles -t 3"), Path::new("/")).expect("models are made");
        assert!(profiles.profiles && profiles.models.is_empty());
    }
}

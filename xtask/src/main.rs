//! Project tasks: `cargo xtask tidy`, `cargo xtask ci`, `make-model`, proofs, and `bench`, which measures beside peers.

#![forbid(unsafe_code)]

mod bench;
mod circles;
mod full;
mod licenses;
mod load;
mod proofs;
mod same_bits;
mod tidy;
mod times;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use proofs::PROOFS;

const HELP: &str = "\
cargo xtask TASK

  tidy        the rules of the house: crate dependencies, file lengths, where unsafe may stand, words, circles of imports
  circles     files that import each other in a circle, by crate, and what to cut; `cargo xtask circles --help`
  bench       speed over models, beside peers; `cargo xtask bench --help`
  load        a server under load for ten minutes, and what it adds; `cargo xtask load --help`
  make-model  writes a model with a published shape and random weights; `cargo xtask make-model --help`
  golden      a table of golden cases beside another program's logits: `golden [FOLDER] [MODEL...]`
  verify      the same bits from 1,080 ways to run three models, minutes; `cargo xtask verify --quick`: 72, seconds
  gpu-report  what the steps of a 0.5B model are on the GPU at hand, against what is promised, and what each dispatch moves beside
              what it must: `gpu-report [MODEL] [ADAPTER]`; the latter alone, without a GPU: `gpu-report --bytes [SHAPE TYPE [DEPTH]]`
  licenses    what `rooflight licenses` prints, written anew: the licences of all packages that are linked
  full        the proofs that the gate leaves out, in parts; `cargo xtask full --help`
  orders      the thread team under every order its threads can run in, by loom
  races       the CPU executor's tests under ThreadSanitizer (nightly with rust-src)
  miri-caches, miri-kernels
              tests of caches, files and the team, and of kernels, under Miri (nightly with miri)
  times       the gate's table of seconds: `times STEPS MESSAGES LOG`
  ci          what .ci/run does on a machine that is set up: fmt, tidy, clippy, tests
";

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(&root()),
        Some("ci") => ci(),
        Some("full") => full::run(&root(), &arguments()),
        Some("times") => times::run(&arguments()),
        Some("circles") => circles::run(&root(), &arguments()),
        Some("bench") => bench::run(&root(), &arguments()),
        Some("licenses") => licenses::run(&root()),
        Some("load") => load::run(&root(), &arguments()),
        Some("golden") => golden(&arguments()),
        Some("gpu-report") => gpu_report(&arguments()),
        Some("make-model") => make_model(&arguments()),
        Some("verify") => same_bits::run(&root(), &arguments()),
        Some("help" | "-h" | "--help") => {
            eprint!("{HELP}");
            Ok(())
        }
        other => match PROOFS.iter().find(|proof| Some(proof.name) == other) {
            Some(proof) => proof.run(&root(), &arguments()),
            None => {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What comes after the task's name.
fn arguments() -> Vec<String> {
    std::env::args().skip(2).collect()
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask stands in the repository's root").to_path_buf()
}

/// A folder among the arguments is the caller's, seen from where the caller is.
fn golden(args: &[String]) -> anyhow::Result<()> {
    let seen = |arg: &String| {
        let folder = Path::new(arg).canonicalize().ok().filter(|folder| folder.is_dir());
        folder.map_or_else(|| arg.clone(), |folder| folder.display().to_string())
    };
    let args: Vec<String> = args.iter().map(seen).collect();
    let run = ["run", "-q", "-p", "rooflight-cpu", "--example", "golden", "--"];
    let args: Vec<&str> = run.into_iter().chain(args.iter().map(String::as_str)).collect();
    cargo(&args)
}

/// Of a model that is made if none is named.
fn gpu_report(args: &[String]) -> anyhow::Result<()> {
    let bytes = ["run", "--release", "-q", "-p", "rooflight-wgpu", "--example", "bytes", "--"];
    if let [first, rest @ ..] = args
        && first == "--bytes"
    {
        return cargo(
            &bytes.into_iter().chain(rest.iter().map(String::as_str)).collect::<Vec<_>>(),
        );
    }
    let mut args = args.to_vec();
    if args.is_empty() {
        let model = root().join("target").join("qwen2.5-0.5b-Q4_0.gguf").display().to_string();
        if !Path::new(&model).is_file() {
            let made = ["qwen2.5-0.5b", "--type", "Q4_0", "-o", &model];
            make_model(&made.map(str::to_owned))?;
        }
        args.push(model);
    }
    let run = ["run", "--release", "-q", "-p", "rooflight-wgpu", "--example", "report", "--"];
    let args: Vec<&str> = run.into_iter().chain(args.iter().map(String::as_str)).collect();
    // what is measured may be beyond its bounds: the table does not depend on it
    let measured = cargo(&args);
    cargo(&bytes)?;
    measured
}

/// Runs `rooflight-make-model`, a crate of its own so that `cargo xtask tidy` builds without the engine.
///
/// The caller's folder is kept: `-o` is relative to it.
fn make_model(args: &[String]) -> anyhow::Result<()> {
    let mut command = without_package(env!("CARGO"));
    command.args(["run", "--quiet", "--locked", "--package", "rooflight-make-model"]);
    command.arg("--manifest-path").arg(root().join("Cargo.toml"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let status = command.arg("--").args(args).status().context("running cargo")?;
    anyhow::ensure!(status.success(), "make-model failed");
    Ok(())
}

fn ci() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run(&root())?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    cargo(&["test", "--workspace", "--locked", "--tests"])?;
    cargo(&["test", "--workspace", "--locked", "--doc"])
}

/// A command without the variables by which cargo describes this package to it. Build scripts that watch them would run again,
/// and all that depends on them be built again.
fn without_package(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

fn cargo(args: &[&str]) -> anyhow::Result<()> {
    eprintln!("== cargo {}", args.join(" "));
    let status = without_package(env!("CARGO")).args(args).current_dir(root()).status()?;
    anyhow::ensure!(status.success(), "cargo {} failed", args[0]);
    Ok(())
}

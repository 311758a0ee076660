//! Project tasks: `cargo xtask tidy`, `cargo xtask ci`, `cargo xtask bench`.

#![forbid(unsafe_code)]

mod bench;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask TASK

  tidy   the rules of the house: crate dependencies, file lengths, where unsafe may stand, words
  bench  speed over models, beside peers; `cargo xtask bench --help`
  ci     what .ci/run does on a machine that is set up: fmt, tidy, clippy, tests
";

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(&root()),
        Some("ci") => ci(),
        Some("bench") => bench::run(&root(), &std::env::args().skip(2).collect::<Vec<_>>()),
        Some("help" | "-h" | "--help") => {
            eprint!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask stands in the repository's root").to_path_buf()
}

fn ci() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run(&root())?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    cargo(&["test", "--workspace", "--locked"])
}

fn cargo(args: &[&str]) -> anyhow::Result<()> {
    eprintln!("== cargo {}", args.join(" "));
    let status = Command::new(env!("CARGO")).args(args).current_dir(root()).status()?;
    anyhow::ensure!(status.success(), "cargo {} failed", args[0]);
    Ok(())
}

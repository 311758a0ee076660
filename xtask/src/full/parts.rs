//! The parts of `cargo xtask full`. Each should take at most 40 minutes on two cores.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::proofs::PROOFS;
use crate::{bench, load, same_bits, without_package};

/// A proof that runs on its own.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// What it proves, as a line of `--list`.
    pub(super) proves: &'static str,
    /// Crates whose change makes an old result worthless, and with them the crates that they depend on.
    pub(super) crates: &'static [&'static str],
    /// Why the part cannot run on this machine.
    pub(super) missing: fn(&Path) -> Option<String>,
    steps: &'static [Step],
}

/// A command of a part.
enum Step {
    /// `cargo test` with these arguments and variables, everything that this machine can test required.
    Test(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Every fuzz target for this many seconds.
    Fuzz(u32),
    /// A task of `proofs.rs`.
    Proof(&'static str),
    /// `cargo xtask load` with these arguments.
    Load(&'static [&'static str]),
    /// `cargo xtask verify`.
    Verify,
    /// `cargo xtask bench` with these arguments.
    Bench(&'static [&'static str]),
    /// Any other command.
    Run(&'static [&'static str]),
}

const FULL: (&str, &str) = ("ROOFLIGHT_FULL", "1");
const HARNESS: (&str, &str) = ("ROOFLIGHT_REQUIRE_HARNESS", "1");

/// All parts.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "cpu",
        proves: "the CPU executor on every instruction set: all suites, all golden cases",
        crates: &["cpu"],
        missing: always_there,
        steps: &[
            Step::Test(&["-p", "rooflight-cpu", "--test", "conformance"], &[FULL]),
            Step::Test(&["-p", "rooflight-cpu", "--test", "it"], &[FULL]),
        ],
    },
    Part {
        name: "oracle",
        proves: "the interpreter and the placements: all suites, all golden cases",
        crates: &["conformance"],
        missing: always_there,
        steps: &[Step::Test(&["-p", "rooflight-conformance"], &[FULL])],
    },
    Part {
        name: "gpu",
        proves: "the GPU executor: all suites, golden cases, placements, shaders in every language",
        crates: &["wgpu", "cli"],
        missing: without_gpu,
        steps: &[
            Step::Test(&["-p", "rooflight-wgpu"], &[FULL, ("ROOFLIGHT_REQUIRE_DEVICE", "any")]),
            Step::Test(
                &["-p", "rooflight-cli", "--test", "it", "gpu::"],
                &[FULL, ("ROOFLIGHT_REQUIRE_DEVICE", "any")],
            ),
        ],
    },
    Part {
        name: "cuda",
        proves: "the GPU executor by CUDA on the software device: all suites, golden cases, placements",
        crates: &["wgpu", "cuda", "ptx", "cuda-software"],
        missing: always_there,
        steps: &[
            Step::Test(&["-p", "rooflight-wgpu", "--test", "cuda"], &[FULL]),
            Step::Test(&["-p", "rooflight-cuda-software", "-p", "rooflight-ptx"], &[FULL]),
        ],
    },
    Part {
        name: "commands",
        proves: "commands with all prompts of drafts, downloads over a long outage",
        crates: &["cli", "hub", "lab"],
        missing: always_there,
        steps: &[
            Step::Test(&["-p", "rooflight-cli", "--test", "it"], &[FULL]),
            Step::Test(&["-p", "rooflight-hub", "-p", "rooflight-lab"], &[FULL]),
        ],
    },
    Part {
        name: "long",
        proves: "tests that take a number, with a great one: histories, heads, splits, schemas, panics",
        crates: &["cpu", "server", "cli"],
        missing: always_there,
        steps: &[
            Step::Test(
                &["-p", "rooflight-cpu", "--test", "conformance", "suite_context"],
                &[("ROOFLIGHT_HISTORIES", "100"), ("ROOFLIGHT_HEADS", "100000")],
            ),
            Step::Test(
                &[
                    "-p",
                    "rooflight-cpu",
                    "--test",
                    "recurrent",
                    "over_a_long_text",
                    "--",
                    "--ignored",
                ],
                &[],
            ),
            Step::Test(
                &["-p", "rooflight-tokenizer", "--test", "it", "published"],
                &[("ROOFLIGHT_SPLITS", "100")],
            ),
            Step::Test(
                &["-p", "rooflight-cli", "--test", "it", "schemas"],
                &[("ROOFLIGHT_SCHEMAS", "1000")],
            ),
            Step::Test(
                &["-p", "rooflight-server", "--test", "it", "x1_"],
                &[("ROOFLIGHT_PANICS", "2000")],
            ),
            Step::Test(
                &["-p", "rooflight-server", "--test", "it", "c3_"],
                &[("ROOFLIGHT_CYCLES", "10000")],
            ),
        ],
    },
    Part {
        name: "verify",
        proves: "the same bits from 1,080 ways to run three models, by the program that is shipped",
        crates: &["cli"],
        missing: always_there,
        steps: &[Step::Verify],
    },
    Part {
        name: "orders",
        proves: "the thread team under every order its threads can run in (loom)",
        crates: &["cpu"],
        missing: always_there,
        steps: &[Step::Proof("orders")],
    },
    Part {
        name: "races",
        proves: "no data race in the CPU executor (ThreadSanitizer)",
        crates: &["cpu"],
        missing: without_sources,
        steps: &[Step::Proof("races")],
    },
    Part {
        name: "miri-caches",
        proves: "no undefined behaviour in caches, files and the team (Miri)",
        crates: &["cpu", "gguf", "kv"],
        missing: without_miri,
        steps: &[Step::Proof("miri-caches")],
    },
    Part {
        name: "miri-kernels",
        proves: "no undefined behaviour in kernels (Miri)",
        crates: &["kernels"],
        missing: without_miri,
        steps: &[Step::Proof("miri-kernels")],
    },
    Part {
        name: "fuzz",
        proves: "five minutes of each fuzz target",
        crates: &["cli", "fuzz"],
        missing: without_cargo_fuzz,
        steps: &[Step::Fuzz(300)],
    },
    Part {
        name: "mutations",
        proves: "a thousand mutations or more of each file that a stranger may send, 1,000,000 bodies",
        crates: &["cli", "cpu", "server", "tokenizer"],
        missing: always_there,
        steps: &[
            Step::Test(
                &["-p", "rooflight-tokenizer", "corpus"],
                &[("ROOFLIGHT_MUTATIONS", "10000")],
            ),
            Step::Test(
                &["-p", "rooflight-cpu", "--test", "first_token"],
                &[("ROOFLIGHT_MUTATIONS", "1000")],
            ),
            Step::Test(&["-p", "rooflight-cli", "strangers"], &[("ROOFLIGHT_MUTATIONS", "1000")]),
            Step::Load(&["--bodies", "1000000"]),
        ],
    },
    Part {
        name: "sessions",
        proves: "kept sessions of 130,000 tokens within their memory, 200 crashes while they are written",
        crates: &["cli"],
        missing: always_there,
        steps: &[
            Step::Test(
                &["-p", "rooflight-cli", "--test", "served", "kept::bounded"],
                &[("ROOFLIGHT_TOKENS", "130000")],
            ),
            Step::Test(
                &["-p", "rooflight-cli", "--test", "served", "kept::crashes"],
                &[("ROOFLIGHT_MUTATIONS", "200")],
            ),
            Step::Test(
                &["-p", "rooflight-cpu", "--test", "it", "disks"],
                &[("ROOFLIGHT_MUTATIONS", "20")],
            ),
        ],
    },
    Part {
        name: "load",
        proves: "32 clients for ten minutes, 10,000 that come and leave, slow readers, hostile requests, overhead",
        crates: &["cli"],
        missing: always_there,
        steps: &[
            Step::Load(&["--seconds", "600"]),
            Step::Load(&["--overhead"]),
            Step::Load(&["--slow"]),
            Step::Load(&["--hostile"]),
            Step::Load(&["--cycles", "10000"]),
        ],
    },
    Part {
        name: "profiles",
        proves: "what is built from source computes as fast as what is shipped (nothing else may run)",
        crates: &["cli", "Cargo.toml"],
        missing: always_there,
        steps: &[Step::Bench(&["--profiles", "-r", "5"])],
    },
    Part {
        name: "harness",
        proves: "lm-evaluation-harness scores a local task with a local tokenizer, as replies have it",
        crates: &["server", "cli"],
        missing: without_harness,
        steps: &[Step::Test(
            &["-p", "rooflight-cli", "--test", "it", "clients::the_harness_scores_a_task"],
            &[HARNESS],
        )],
    },
    Part {
        name: "advisories",
        proves: "no dependency with a known vulnerability",
        crates: &["Cargo.lock"],
        missing: without_advisories,
        steps: &[Step::Run(&["cargo", "deny", "check", "--disable-fetch", "advisories"])],
    },
];

impl Part {
    /// Runs the commands in order; the first that fails ends the part.
    pub(super) fn run(&self, root: &Path) -> anyhow::Result<()> {
        self.steps.iter().try_for_each(|step| step.run(root))
    }
}

impl Step {
    fn run(&self, root: &Path) -> anyhow::Result<()> {
        match self {
            Step::Test(args, variables) => {
                let cargo = ["cargo", "test", "--locked", "--no-fail-fast"];
                command(root, &[&cargo, *args].concat(), variables)
            }
            Step::Proof(name) => {
                let proof = PROOFS.iter().find(|proof| proof.name == *name);
                proof.with_context(|| format!("no proof `{name}`"))?.run(root, &[])
            }
            Step::Load(args) => {
                load::run(root, &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
            }
            Step::Bench(args) => {
                bench::run(root, &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
            }
            Step::Verify => same_bits::run(root, &["--profile", "dist"].map(str::to_owned)),
            Step::Run(args) => command(root, args, &[]),
            Step::Fuzz(seconds) => fuzz(root, *seconds),
        }
    }
}

/// Runs a command with the environment that `.ci/prepare` sets up: what this machine can test must be tested.
fn command(root: &Path, args: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let line = args.join(" ");
    eprintln!("== {line}");
    let status = without_package("bash")
        .args(["-c", ". .ci/prepare && exec \"$@\"", "prepared"])
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(root)
        .status()
        .context("running bash")?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}

/// Runs every target of the fuzz crate. Optimized code with `RUSTC_BOOTSTRAP` needs no nightly toolchain.
fn fuzz(root: &Path, seconds: u32) -> anyhow::Result<()> {
    let time = format!("-max_total_time={seconds}");
    for target in fuzz_targets(root)? {
        let args =
            ["cargo", "fuzz", "run", &target, "--", &time, "-close_fd_mask=2", "-entropic=0"];
        command(root, &args, &[("RUSTC_BOOTSTRAP", "1")])?;
    }
    Ok(())
}

/// Names of the targets, from the files in `fuzz/fuzz_targets`.
fn fuzz_targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{}: no targets", folder.display());
    Ok(names)
}

fn always_there(_: &Path) -> Option<String> {
    None
}

fn without_gpu(root: &Path) -> Option<String> {
    (!is_prepared(root, "ROOFLIGHT_REQUIRE_DEVICE", &[]))
        .then(|| "no GPU in software (lavapipe) can be had here".to_owned())
}

fn without_harness(root: &Path) -> Option<String> {
    (!is_prepared(root, "ROOFLIGHT_HARNESS_PYTHON", &[HARNESS]))
        .then(|| "lm-evaluation-harness cannot be installed here".to_owned())
}

/// Runs `.ci/prepare` with these environment variables, which installs what it can, and returns whether it sets `variable`.
fn is_prepared(root: &Path, variable: &str, environment: &[(&str, &str)]) -> bool {
    let script = format!(". .ci/prepare && test -n \"${{{variable}:-}}\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).envs(environment.iter().copied()).current_dir(root);
    command.status().is_ok_and(|status| status.success())
}

fn without_sources(root: &Path) -> Option<String> {
    without_component(root, "rust-src")
}

fn without_miri(root: &Path) -> Option<String> {
    without_component(root, "miri").or_else(|| without_component(root, "rust-src"))
}

fn without_component(root: &Path, component: &str) -> Option<String> {
    let list = ["component", "list", "--installed", "--toolchain", "nightly"];
    (!says(root, "rustup", &list, component))
        .then(|| format!("no nightly toolchain with {component}"))
}

fn without_cargo_fuzz(root: &Path) -> Option<String> {
    (!says(root, "cargo", &["fuzz", "--version"], "fuzz")).then(|| "no cargo-fuzz".to_owned())
}

fn without_advisories(root: &Path) -> Option<String> {
    if !says(root, "cargo", &["deny", "--version"], "deny") {
        return Some("no cargo-deny".to_owned());
    }
    let home = std::env::var_os("CARGO_HOME")
        .map(std::path::PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let databases = home.map(|home| home.join("advisory-dbs"));
    let is_there = databases.and_then(|folder| std::fs::read_dir(folder).ok()?.next()).is_some();
    (!is_there).then(|| "no advisory database".to_owned())
}

/// Whether the command succeeds and a line of its output begins with `word` or `cargo-` and `word`.
fn says(root: &Path, program: &str, args: &[&str], word: &str) -> bool {
    let output = Command::new(program).args(args).current_dir(root).output();
    output.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let begins = |line: &str| line.trim_start_matches("cargo-").starts_with(word);
        output.status.success() && text.lines().any(begins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent");
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("a manifest");
        let targets = fuzz_targets(root).expect("targets");
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
        }
    }

    #[test]
    fn proofs_that_parts_name_exist() {
        for step in PARTS.iter().flat_map(|part| part.steps) {
            if let Step::Proof(name) = step {
                assert!(PROOFS.iter().any(|proof| proof.name == *name), "{name}");
            }
        }
    }

    #[test]
    fn a_missing_program_says_nothing() {
        let root = Path::new(".");
        assert!(says(root, "cargo", &["--version"], "cargo"));
        assert!(!says(root, "cargo", &["--version"], "rustc"));
        assert!(!says(root, "no-such-program", &[], ""));
    }
}

//! Proofs of what tests on their own only suggest: thread orders by loom, data races by ThreadSanitizer, undefined
//! behaviour by Miri. The last two want a nightly toolchain with `rust-src`, and Miri.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The toolchain that has the sanitizer and Miri.
const NIGHTLY: &str = "+nightly";

/// A task.
pub(crate) struct Proof {
    pub(crate) name: &'static str,
    /// One command after another.
    commands: &'static [Checked],
}

/// A command of cargo in surroundings of its own.
struct Checked {
    args: &'static [&'static str],
    flags: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// Component of the nightly toolchain that it cannot do without.
    needs: Option<&'static str>,
}

const LOOM: Checked = Checked {
    args: &["test", "-p", "rooflight-cpu", "--lib", "pool::"],
    // what debug builds record would only add orders
    flags: "--cfg loom -C debug-assertions=off",
    variables: &[],
    needs: None,
};

/// The thread team and what runs on it, several threads to a model and models to a team. One test at a time: mappings are
/// made and undone where the sanitizer does not see it, and another test's may follow at the same place.
const fn races(args: &'static [&'static str]) -> Checked {
    // what debug builds record would order what is looked at here
    const FLAGS: &str = "-Zsanitizer=thread -C debug-assertions=off";
    const VARIABLES: &[(&str, &str)] =
        &[("TSAN_OPTIONS", "halt_on_error=1"), ("PROPTEST_CASES", "4")];
    Checked { args, flags: FLAGS, variables: VARIABLES, needs: Some("rust-src") }
}

const fn miri(args: &'static [&'static str]) -> Checked {
    // files are read in tests of gguf, which isolation forbids
    const VARIABLES: &[(&str, &str)] =
        &[("MIRIFLAGS", "-Zmiri-disable-isolation"), ("PROPTEST_CASES", "4")];
    Checked { args, flags: "", variables: VARIABLES, needs: Some("miri") }
}

/// All proofs.
pub(crate) const PROOFS: [Proof; 3] = [
    Proof { name: "orders", commands: &[LOOM] },
    Proof {
        name: "races",
        commands: &[
            races(&[
                NIGHTLY,
                "test",
                "-Zbuild-std",
                "-p",
                "rooflight-cpu",
                "--lib",
                "--",
                "--test-threads=1",
            ]),
            races(&[
                NIGHTLY,
                "test",
                "-Zbuild-std",
                "-p",
                "rooflight-cpu",
                "--test",
                "it",
                "--test",
                "kept",
                "--test",
                "recurrent",
                "--",
                "--test-threads=1",
            ]),
            // of the suite what sessions do
            races(&[
                NIGHTLY,
                "test",
                "-Zbuild-std",
                "-p",
                "rooflight-cpu",
                "--test",
                "conformance",
                "suite_of_same_bits",
                "--",
                "--test-threads=1",
            ]),
        ],
    },
    Proof {
        name: "miri",
        commands: &[
            miri(&[NIGHTLY, "miri", "test", "-p", "rooflight-kv"]),
            miri(&[NIGHTLY, "miri", "test", "-p", "rooflight-gguf"]),
            miri(&[
                NIGHTLY,
                "miri",
                "test",
                "-p",
                "rooflight-cpu",
                "--lib",
                "--",
                "pool::",
                "memory::",
            ]),
            miri(&[NIGHTLY, "miri", "test", "-p", "rooflight-kernels", "--lib", "--tests"]),
        ],
    },
];

impl Proof {
    /// Run its commands; `more` goes to each, behind its own arguments.
    pub(crate) fn run(&self, root: &Path, more: &[String]) -> anyhow::Result<()> {
        for command in self.commands {
            command.run(root, self.name, more)?;
        }
        Ok(())
    }
}

impl Checked {
    fn run(&self, root: &Path, name: &str, more: &[String]) -> anyhow::Result<()> {
        if let Some(component) = self.needs {
            installed(component)?;
        }
        eprintln!("== cargo {} (RUSTFLAGS=\"{}\")", self.args.join(" "), self.flags);
        let mut cargo = Command::new("cargo");
        // cargo tells those it runs which toolchain it is of; another is asked for by name
        cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        let own = self.args.iter().position(|arg| *arg == "--").unwrap_or(self.args.len());
        let (own, of_tests) = self.args.split_at(own);
        cargo.args(own);
        if own.contains(&"-Zbuild-std") {
            // only where a target is named are build scripts and macros built as ever
            cargo.args(["--target", &host()?]);
        }
        cargo.args(of_tests);
        cargo.args(more).current_dir(root);
        cargo.env("RUSTFLAGS", self.flags).env("CARGO_TARGET_DIR", root.join("target").join(name));
        cargo.envs(self.variables.iter().copied());
        let status = cargo.status().context("running cargo")?;
        ensure!(status.success(), "{name}: `cargo {}` failed", self.args.join(" "));
        Ok(())
    }
}

fn installed(component: &str) -> anyhow::Result<()> {
    let output = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .output()
        .context("running rustup, which manages the nightly toolchain this needs")?;
    let list = String::from_utf8_lossy(&output.stdout);
    ensure!(
        list.lines().any(|line| line.starts_with(component)),
        "this needs {component} of a nightly toolchain: rustup toolchain install nightly --component {component}"
    );
    Ok(())
}

/// The triple of this machine.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("running rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

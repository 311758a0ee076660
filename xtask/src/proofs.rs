//! Proofs of what tests on their own only suggest: thread orders by loom, data races by ThreadSanitizer, undefined
//! behaviour by Miri. The last two want a nightly toolchain with `rust-src`, and Miri.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::without_package;

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
    /// Of which tests: behind the arguments.
    targets: &'static [&'static str],
    /// Arguments of the tests themselves.
    of_tests: &'static [&'static str],
    flags: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// Component of the nightly toolchain that it cannot do without.
    needs: Option<&'static str>,
}

const LOOM: Checked = Checked {
    args: &["test", "-p", "rooflight-cpu"],
    targets: &["--lib", "pool::"],
    of_tests: &[],
    // what debug builds record would only add orders
    flags: "--cfg loom -C debug-assertions=off",
    variables: &[],
    needs: None,
};

/// The thread team and what runs on it, several threads to a model and models to a team. One test at a time: mappings are
/// made and undone where the sanitizer does not see it, and another test's may follow at the same place.
const fn races(targets: &'static [&'static str]) -> Checked {
    Checked {
        args: &[NIGHTLY, "test", "-Zbuild-std", "-p", "rooflight-cpu"],
        targets,
        // these have every form, type and instruction set, which use threads alike
        of_tests: &["--test-threads=1", "--skip=latent::suite", "--skip=quantized_archs"],
        // what debug builds record would order what is looked at here
        flags: "-Zsanitizer=thread -C debug-assertions=off --cfg rustix_use_libc",
        variables: &[("TSAN_OPTIONS", "halt_on_error=1"), ("PROPTEST_CASES", "4")],
        needs: Some("rust-src"),
    }
}

const fn miri(targets: &'static [&'static str], of_tests: &'static [&'static str]) -> Checked {
    Checked {
        args: &[NIGHTLY, "miri", "test"],
        targets,
        of_tests,
        flags: "",
        // files are read in tests of gguf, which isolation forbids
        variables: &[("MIRIFLAGS", "-Zmiri-disable-isolation"), ("PROPTEST_CASES", "4")],
        needs: Some("miri"),
    }
}

/// All proofs.
pub(crate) const PROOFS: [Proof; 4] = [
    Proof { name: "orders", commands: &[LOOM] },
    Proof {
        name: "races",
        commands: &[
            races(&["--lib"]),
            races(&["--test", "it", "--test", "kept", "--test", "recurrent"]),
            // of the suites what sessions do
            races(&["--test", "conformance", "suite_of_same_bits"]),
        ],
    },
    Proof {
        name: "miri-caches",
        commands: &[
            miri(&["-p", "rooflight-kv", "--tests"], &[]),
            miri(&["-p", "rooflight-gguf"], &[]),
            miri(&["-p", "rooflight-cpu", "--lib"], &["pool::", "memory::"]),
        ],
    },
    Proof { name: "miri-kernels", commands: &[miri(&["-p", "rooflight-kernels", "--tests"], &[])] },
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
        let mut args = [self.args, self.targets].concat();
        let host = host()?;
        if self.args.contains(&"-Zbuild-std") {
            // only where a target is named are build scripts and macros built as ever
            args.extend(["--target", &host]);
        }
        if !self.of_tests.is_empty() {
            args.push("--");
            args.extend(self.of_tests);
        }
        args.extend(more.iter().map(String::as_str));
        let told = args.join(" ");
        eprintln!("== cargo {told} (RUSTFLAGS=\"{}\")", self.flags);
        let mut cargo = without_package("cargo");
        // cargo tells those it runs which toolchain it is of; another is asked for by name
        cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        cargo.args(args).current_dir(root);
        // both parts of Miri share a folder, and so its standard library
        let folder = name.split('-').next().unwrap_or(name);
        cargo
            .env("RUSTFLAGS", self.flags)
            .env("CARGO_TARGET_DIR", root.join("target").join(folder));
        cargo.envs(self.variables.iter().copied());
        let status = cargo.status().context("running cargo")?;
        ensure!(status.success(), "{name}: `cargo {told}` failed");
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

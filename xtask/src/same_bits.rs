//! `cargo xtask verify`: `rooflight verify` on three models whose layers differ, every one of its runs on each.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{cargo, make_model};

/// A model, and what it is verified with.
struct Subject {
    /// A shape of `make-model`; `None`: the bundled model.
    shape: Option<(&'static str, &'static str)>,
    options: &'static [&'static str],
}

/// Grouped heads; experts; latents, in the one form that does not depend on how much of a prompt is cached.
const SUBJECTS: [Subject; 3] = [
    Subject { shape: None, options: &[] },
    Subject { shape: Some(("tiny-qwen3moe", "Q4_K_M")), options: &[] },
    Subject { shape: Some(("tiny-deepseek2", "Q6_K")), options: &["--mla", "elided"] },
];

/// Runs them with the program of the release profile, or of `--profile NAME`; other arguments go to each `rooflight verify`.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let (profile, more) = match args {
        [option, profile, more @ ..] if option == "--profile" => (profile.as_str(), more),
        _ => ("release", args),
    };
    cargo(&["build", "--profile", profile, "--locked", "-p", "rooflight-cli"])?;
    let binary = root.join("target").join(profile).join("rooflight");
    let folder = root.join("target/verify");
    std::fs::create_dir_all(&folder)?;
    let mut out = std::io::stdout().lock();
    let (mut runs, mut same) = (0, 0);
    for subject in &SUBJECTS {
        let path = subject.path(root, &folder)?;
        eprintln!("== rooflight verify {} {}", path.display(), subject.options.join(" "));
        let output = Command::new(&binary)
            .arg("verify")
            .arg(&path)
            .args(subject.options)
            .args(more)
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("running rooflight")?;
        let text = String::from_utf8_lossy(&output.stdout);
        write!(out, "{text}")?;
        let (equal, all) = counts(&text).context("rooflight verify told no result")?;
        (same, runs) = (same + equal, runs + all);
    }
    writeln!(out, "{same} of {runs} runs of {} models have the same bits", SUBJECTS.len())?;
    ensure!(same == runs, "{} runs have others", runs - same);
    Ok(())
}

impl Subject {
    fn path(&self, root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
        let Some((shape, ty)) = self.shape else {
            return Ok(root.join("crates/demo-model/assets/rooflight-demo-5m-q8_0.gguf"));
        };
        let path = folder.join(format!("{shape}-{ty}.gguf"));
        let out = path.to_string_lossy().into_owned();
        let args = [shape, "--type", ty, "-o", &out, "--force"].map(str::to_owned);
        make_model(&args)?;
        Ok(path)
    }
}

/// Equal runs and all of them, of `360 of 360 runs have the same bits: 9f86d081884c7d65`.
fn counts(text: &str) -> Option<(usize, usize)> {
    let line = text.lines().find(|line| line.contains("runs have the same bits"))?;
    let mut words = line.split(' ');
    let same = words.next()?.parse().ok()?;
    let all = words.nth(1)?.parse().ok()?;
    Some((same, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_read_from_the_last_line() {
        let text = "| threads |\n358 of 360 runs have the same bits: 9f86d081884c7d65\n";
        assert_eq!(counts(text), Some((358, 360)));
        assert_eq!(counts("nothing\n"), None);
    }
}

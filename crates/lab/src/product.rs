//! The product as a command: asked for JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use console::args::ThreadArgs;
use console::output::shown;
use serde_json::Value;

/// Where the product keeps how far expected times were off.
const ERRORS: &str = "predictions.json";

/// Which binary, and how many threads it gets.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ProductArgs {
    /// The binary to measure, by default the `rooflight` beside this one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
}

/// The binary, with a cache folder of its own so that nothing measured on another day is used; gone when dropped.
pub(super) struct Product {
    binary: PathBuf,
    cache: PathBuf,
    threads: Option<usize>,
}

impl ProductArgs {
    /// Threads that were asked for; `None` for the default.
    pub(super) fn threads(&self) -> Option<usize> {
        self.threads.count()
    }

    /// Find the binary.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn start(&self) -> anyhow::Result<Product> {
        let beside = || {
            let name = format!("rooflight{}", std::env::consts::EXE_SUFFIX);
            Some(std::env::current_exe().ok()?.with_file_name(name))
        };
        let binary = self.binary.clone().or_else(beside).context("looking for rooflight")?;
        ensure!(
            binary.is_file(),
            "no rooflight at {}: build it by `cargo build --release`, or name it by --binary",
            shown(&binary)
        );
        let cache = std::env::temp_dir().join(format!("rooflight-lab-{}", std::process::id()));
        Ok(Product { binary, cache, threads: self.threads.count() })
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Product {
    /// The machine is measured again from here on.
    pub(super) fn forget(&self) {
        // a folder that is not there is forgotten already
        let _ = std::fs::remove_dir_all(&self.cache);
    }

    /// The machine is measured again from here on; how far expected times were off stays known.
    pub(super) fn forget_rates(&self) {
        let _ = std::fs::remove_file(self.file("machine.json"));
    }

    /// How far expected times were off so far, as the product keeps it.
    pub(super) fn known_errors(&self) -> Option<Vec<u8>> {
        std::fs::read(self.file(ERRORS)).ok()
    }

    /// Nothing is known of errors but this.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn know_errors(&self, known: Option<&[u8]>) -> anyhow::Result<()> {
        let file = self.file(ERRORS);
        let Some(known) = known else {
            let _ = std::fs::remove_file(file);
            return Ok(());
        };
        std::fs::write(&file, known).with_context(|| format!("writing {}", shown(&file)))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cache.join("rooflight").join(name)
    }

    /// Run a command that prints JSON.
    fn json(&self, command: &[&str], model: &Path, args: &[&str]) -> anyhow::Result<Value> {
        let mut process = Command::new(&self.binary);
        process.args(command).arg(model).args(args).env("XDG_CACHE_HOME", &self.cache);
        if let Some(threads) = self.threads {
            process.args(["-t", &threads.to_string()]);
        }
        let output =
            process.output().with_context(|| format!("running {}", shown(&self.binary)))?;
        let told = String::from_utf8_lossy(&output.stderr);
        let last = told.lines().last().unwrap_or_default();
        ensure!(output.status.success(), "rooflight {}: {last}", command.join(" "));
        serde_json::from_slice(&output.stdout).context("what rooflight printed")
    }

    /// Rows of `rooflight bench` over a model.
    pub(super) fn bench(&self, model: &Path, args: &[&str]) -> anyhow::Result<Vec<Value>> {
        let args = [&["-o", "json"], args].concat();
        let rows = self.json(&["bench", "-m"], model, &args)?;
        Ok(rows.as_array().cloned().unwrap_or_default())
    }

    /// What `rooflight plan` says of a model.
    pub(super) fn plan(&self, model: &Path) -> anyhow::Result<Value> {
        self.json(&["plan"], model, &["--json"])
    }
}

/// A number of a row.
pub(super) fn number(row: &Value, key: &str) -> anyhow::Result<f64> {
    row[key].as_f64().with_context(|| format!("rooflight bench printed no {key}"))
}

/// A file's name without its ending.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| shown(Path::new(name)))
}

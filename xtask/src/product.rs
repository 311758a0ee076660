//! The product as a command: built once, asked for JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The release binary, with a cache folder of its own so that nothing measured on another day is used.
pub(crate) struct Product {
    binary: PathBuf,
    cache: PathBuf,
    threads: Option<String>,
}

impl Product {
    /// Build it, or take `binary`. What it keeps about this machine goes into `folder`, which is emptied of it now.
    pub(crate) fn new(
        root: &Path,
        binary: Option<PathBuf>,
        folder: &Path,
        threads: Option<String>,
    ) -> anyhow::Result<Product> {
        let binary = match binary {
            Some(binary) => binary,
            None => {
                build(root)?;
                root.join("target/release/rooflight")
            }
        };
        let product = Product { binary, cache: folder.join("cache"), threads };
        product.forget();
        Ok(product)
    }

    /// The machine is measured again from here on.
    pub(crate) fn forget(&self) {
        // a folder that is not there is forgotten already
        let _ = std::fs::remove_dir_all(&self.cache);
    }

    /// Run a command that prints JSON.
    pub(crate) fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        eprintln!("  rooflight {}", args.join(" "));
        let mut command = Command::new(&self.binary);
        command.args(args).env("XDG_CACHE_HOME", &self.cache);
        if let Some(threads) = &self.threads {
            command.args(["-t", threads]);
        }
        let output =
            command.output().with_context(|| format!("running {}", self.binary.display()))?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "rooflight failed: {}", told.lines().last().unwrap_or(""));
        serde_json::from_slice(&output.stdout).context("what rooflight printed")
    }

    /// Rows of `rooflight bench` over a model.
    pub(crate) fn bench(&self, model: &Path, args: &[&str]) -> anyhow::Result<Vec<Value>> {
        let rows = self.json(&[&["bench", "-m", utf8(model)?, "-o", "json"], args].concat())?;
        Ok(rows.as_array().cloned().unwrap_or_default())
    }

    /// What `rooflight plan` says of a model.
    pub(crate) fn plan(&self, model: &Path) -> anyhow::Result<Value> {
        self.json(&["plan", utf8(model)?, "--json"])
    }
}

fn utf8(model: &Path) -> anyhow::Result<&str> {
    model.to_str().context("a model's path is UTF-8")
}

/// Build the release binary.
pub(crate) fn build(root: &Path) -> anyhow::Result<()> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "-p", "rooflight"])
        .current_dir(root)
        .status()?;
    ensure!(built.success(), "cargo build failed");
    Ok(())
}

/// A number of a row.
pub(crate) fn number(row: &Value, key: &str) -> anyhow::Result<f64> {
    row[key].as_f64().with_context(|| format!("rooflight bench printed no {key}"))
}

/// A file's name without its ending.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

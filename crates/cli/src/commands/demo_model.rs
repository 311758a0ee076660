//! `demo-model`: the model of `demo.rs` as a file, for tests and trials.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;

/// Write the tiny random model that `run` uses without a model
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  rooflight demo-model demo.gguf")]
pub(crate) struct DemoModel {
    /// File to write
    file: PathBuf,
}

impl DemoModel {
    pub(crate) fn run(self, _out: &mut dyn Write) -> anyhow::Result<()> {
        let bytes = crate::demo::gguf_bytes()?;
        std::fs::write(&self.file, bytes)
            .with_context(|| format!("writing {}", self.file.display()))
    }
}

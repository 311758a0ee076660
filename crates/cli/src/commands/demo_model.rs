//! `demo-model`: the bundled model as a file, for the commands that want one.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;

/// Write the bundled demo model to a file
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  rooflight demo-model demo.gguf && rooflight show demo.gguf")]
pub(super) struct DemoModel {
    /// File to write
    file: PathBuf,
}

impl DemoModel {
    pub(crate) fn run(self, _out: &mut dyn Write) -> anyhow::Result<()> {
        std::fs::write(&self.file, crate::bundled::bytes())
            .with_context(|| format!("writing {}", self.file.display()))
    }
}

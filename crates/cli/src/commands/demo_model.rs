//! `demo-model`: the bundled model as a file, for the commands that want one.

use std::io::Write;
use std::path::PathBuf;

use crate::output::{OutputArgs, shown};
use crate::{ui, units};

/// Write the bundled demo model to a file
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  rooflight demo-model demo.gguf && rooflight show demo.gguf")]
pub(super) struct DemoModel {
    /// File to write
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

impl DemoModel {
    pub(crate) fn run(self, _out: &mut dyn Write) -> anyhow::Result<()> {
        let model = demo_model::BYTES;
        self.output.write(&self.file, model)?;
        ui::note(format_args!("{}: {}", shown(&self.file), units::bytes(model.len() as u64)));
        Ok(())
    }
}

//! `completions`: scripts for shells.

use std::io::Write;

/// Print a shell's completion script
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  rooflight completions bash > ~/.local/share/bash-completion/completions/rooflight"
)]
pub(super) struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        // The generator panics when its writer fails, so it writes to memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "rooflight", &mut script);
        out.write_all(&script)?;
        Ok(())
    }
}

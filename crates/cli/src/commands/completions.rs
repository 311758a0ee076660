//! `completions`: scripts for shells.

use std::io::Write;

/// Print a shell's completion script
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  mkdir -p ~/.local/share/bash-completion/completions\n  \
                  rooflight completions bash > \\\n    ~/.local/share/bash-completion/completions/rooflight\n  \
                  rooflight completions fish > ~/.config/fish/completions/rooflight.fish")]
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

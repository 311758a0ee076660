//! `man`: manual pages from the same definition as the help.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::exit::Failure;
use crate::output::OutputArgs;

/// Print a manual page, or write all of them
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight man run | man -l -\n  rooflight man -o ~/.local/share/man/man1"
)]
pub(super) struct Man {
    /// Command to describe; without one, the program
    command: Option<String>,
    /// Write every page into this folder
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    output: Option<PathBuf>,
    #[command(flatten)]
    replace: OutputArgs,
}

impl Man {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut root = super::command();
        root.build();
        let Some(dir) = self.output else {
            out.write_all(&page(find(&root, self.command.as_deref())?)?)?;
            return Ok(());
        };
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let commands = root.get_subcommands().filter(|c| !c.is_hide_set());
        for command in std::iter::once(&root).chain(commands) {
            let path = dir.join(format!("{}.1", file_stem(command)));
            self.replace.write(&path, &page(command)?)?;
        }
        Ok(())
    }
}

fn find<'a>(root: &'a clap::Command, name: Option<&str>) -> Result<&'a clap::Command, Failure> {
    let Some(name) = name else { return Ok(root) };
    root.find_subcommand(name)
        .ok_or_else(|| Failure::Usage(format!("there is no command `{name}`")))
}

/// `rooflight-run`.
fn file_stem(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(file_stem(command))
        .source(concat!("rooflight ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)?;
    Ok(page)
}

//! `licenses`: the terms of Rooflight and of everything that is linked into it.

use std::io::Write;

/// Written by `cargo xtask licenses`; `cargo xtask tidy` compares its list of packages with what is linked.
const TEXT: &str = include_str!("../../assets/licenses.txt");

/// Print the licences of Rooflight and of its dependencies
///
/// First a list: name, version and licences of each package. Then the text of each licence, with the copyright lines of the packages that are used under it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight licenses | less\n  rooflight licenses > licenses.txt"
)]
pub(super) struct Licenses {}

impl Licenses {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        out.write_all(TEXT.as_bytes())?;
        Ok(())
    }
}

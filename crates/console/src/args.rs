//! Options that command lines share. Spellings are llama.cpp's where it has one.

use clap::ArgAction;
use clap::builder::FalseyValueParser;
use program::CacheType;

use crate::counts::{self, ThreadCount};
use crate::ui;

/// Which kernels may run.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct IsaArgs {
    /// Instruction set to use at most: scalar, avx2, avx512
    #[arg(long, value_name = "NAME", value_parser = isa, hide = true)]
    pub isa: Option<kernels::Isa>,
}

/// How many threads compute.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ThreadArgs {
    /// Threads, -1 for the default: one for each physical core this process may use
    #[arg(short, long, value_name = "N", value_parser = counts::threads)]
    threads: Option<ThreadCount>,
}

impl ThreadArgs {
    /// As given; `None` for the default.
    pub fn count(&self) -> Option<usize> {
        self.threads.and_then(|threads| threads.0)
    }
}

/// An instruction set by its name.
pub fn isa(name: &str) -> Result<kernels::Isa, String> {
    let names = || kernels::Isa::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    kernels::Isa::parse(name).ok_or_else(|| format!("expected one of {}", names()))
}

/// A cache type by its name.
pub fn cache_type(name: &str) -> Result<CacheType, String> {
    CacheType::ALL.into_iter().find(|t| t.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<_> = CacheType::ALL.iter().map(|t| t.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Say so where more threads are asked for than can run at once: they wait for each other.
pub fn warn_about_threads(asked: Option<usize>) {
    let cores = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    if let Some(asked) = asked.filter(|asked| *asked > cores) {
        ui::warn(&format!(
            "-t {asked}: this process may use {cores} cores at once; more threads wait for each other and are slower"
        ));
    }
}

/// An argument that can also be set in the environment: `--ctx-size` by `ROOFLIGHT_CTX_SIZE`.
pub fn with_variable(arg: clap::Arg) -> clap::Arg {
    let Some(long) = arg.get_long() else { return arg };
    let variable = format!("ROOFLIGHT_{}", long.to_uppercase().replace('-', "_"));
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(FalseyValueParser::new()),
        // what is no number from 0 on says so itself
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    };
    arg.env(variable).hide_env(true)
}

//! Options that several commands share. They are spelled as in llama.cpp where it has them.

use std::ffi::OsStr;

use clap::ArgAction;
use clap::builder::{FalseyValueParser, PossibleValue, TypedValueParser};
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
    /// Threads [default: one per physical core, -1]
    #[arg(short, long, value_name = "N", value_parser = counts::threads)]
    threads: Option<ThreadCount>,
}

impl ThreadArgs {
    /// Returns the number of threads, or `None` for the default.
    pub fn count(&self) -> Option<usize> {
        self.threads.and_then(|threads| threads.0)
    }
}

/// Parses the name of an instruction set.
///
/// # Errors
/// A message with the known names.
pub fn isa(name: &str) -> Result<kernels::Isa, String> {
    let names = || kernels::Isa::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    kernels::Isa::parse(name).ok_or_else(|| format!("expected one of {}", names()))
}

/// Returns a parser for [`cache_type`] that suggests the names of cache types.
pub fn cache_types() -> SuggestedValues<CacheType> {
    SuggestedValues::new(CacheType::ALL.iter().map(|ty| ty.name()), cache_type)
}

/// Parses the name of a cache type.
///
/// # Errors
/// A message with the known names.
pub fn cache_type(name: &str) -> Result<CacheType, String> {
    CacheType::ALL.into_iter().find(|t| t.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<_> = CacheType::ALL.iter().map(|t| t.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Returns the number of threads to start for a requested number. Warns if it exceeds the number of cores. Limits it to 4
/// threads per core, since more would block the whole machine.
pub fn threads_to_start(asked: Option<usize>) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let (threads, warning) = threads_on(asked?, cores);
    warning.iter().for_each(|warning| ui::warn(warning));
    Some(threads)
}

/// Maximum number of threads per core.
const THREADS_PER_CORE: usize = 4;

fn threads_on(asked: usize, cores: usize) -> (usize, Option<String>) {
    let threads = asked.min(cores.saturating_mul(THREADS_PER_CORE));
    let problem = format!("-t {asked}: this process may use {cores} cores at once");
    let warning = match threads {
        _ if threads <= cores => None,
        _ if threads == asked => {
            Some(format!("{problem}; more threads wait for each other and are slower"))
        }
        _ => Some(format!("{problem}; {threads} threads are started, and wait for each other")),
    };
    (threads, warning)
}

/// Parser with suggested values for shell completion, for an option that also accepts other values. Help does not list them.
#[derive(Clone)]
pub struct SuggestedValues<T> {
    names: Vec<String>,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> SuggestedValues<T> {
    /// Creates a parser that suggests `names` and accepts what `parse` accepts.
    pub fn new(
        names: impl IntoIterator<Item = impl Into<String>>,
        parse: fn(&str) -> Result<T, String>,
    ) -> SuggestedValues<T> {
        SuggestedValues { names: names.into_iter().map(Into::into).collect(), parse }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for SuggestedValues<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> clap::error::Result<T> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// Lets an argument also be set by an environment variable: `--ctx-size` by `ROOFLIGHT_CTX_SIZE`.
pub fn with_variable(arg: clap::Arg) -> clap::Arg {
    let Some(long) = arg.get_long() else { return arg };
    let variable = format!("ROOFLIGHT_{}", long.to_uppercase().replace('-', "_"));
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(FalseyValueParser::new()),
        // the parser of the value reports negative numbers itself
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    };
    arg.env(variable).hide_env(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_key_starts_no_thousand_threads() {
        assert_eq!(threads_on(2, 2), (2, None));
        let (threads, told) = threads_on(8, 2);
        assert!(threads == 8 && told.is_some_and(|told| told.contains("are slower")));
        let (threads, told) = threads_on(1000, 2);
        assert!(threads == 8 && told.is_some_and(|told| told.contains("8 threads are started")));
    }
}

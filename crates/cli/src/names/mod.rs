//! From what a command is given to a file: a path that is there, or a model by name.
//!
//! What exists as a file comes first; then a model that is in Hugging Face's cache, by its whole name (`org/repo:Q4_K_M`), a
//! short one of the table (`qwen2.5:7b`), or that of its file. `run` and `serve` bring what is not here.

#[cfg(not(feature = "hub"))]
mod without_hub;
#[cfg(not(feature = "hub"))]
use without_hub as place;

#[cfg(feature = "hub")]
mod with_hub;
#[cfg(feature = "hub")]
use with_hub as place;

use std::path::{Path, PathBuf};

use crate::interrupt::Interrupt;

pub(crate) use place::{HeaderOnly, code_of, hint_of, models_here, pull_for, spelled_out};
#[cfg(feature = "hub")]
pub(crate) use with_hub::{ask, can_ask, hub, pull};

/// Where a model is that a name may mean.
pub(crate) enum Named {
    /// Here.
    Here(PathBuf),
    /// On a hub.
    Elsewhere(String),
}

/// The file of a model that is here.
///
/// # Errors
/// [`rooflight::Error::NotFound`]; [`rooflight::Error::NotHere`] if the name is that of a model that can be downloaded.
pub(crate) fn here(given: &Path) -> anyhow::Result<PathBuf> {
    match named(given)? {
        Named::Here(path) => Ok(path),
        Named::Elsewhere(name) => Err(rooflight::Error::NotHere { name }.into()),
    }
}

/// Returns the file of a model, and downloads it if it is not here. Ctrl-C stops the download if `interrupt` is installed.
///
/// # Errors
/// As [`here`]; that it could not be had, or does not fit and nobody wants it all the same.
pub(crate) fn here_or_pulled(given: &Path, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    match named(given)? {
        Named::Here(path) => Ok(path),
        Named::Elsewhere(name) => place::bring(&name, interrupt),
    }
}

/// What a hub has of a model that is not here, as far as its first bytes say; `None` if that is no name of one.
///
/// # Errors
/// If a request to the hub fails, or if `given` is `-`.
pub(crate) fn outline(given: &Path) -> anyhow::Result<Option<HeaderOnly>> {
    check_not_stdin(given)?;
    match named(given) {
        Ok(Named::Elsewhere(name)) => place::outline(&name).map(Some),
        _ => Ok(None),
    }
}

/// Refuses `-`, which means stdin wherever a text is expected.
fn check_not_stdin(given: &Path) -> Result<(), rooflight::Error> {
    let problem = "a model cannot be read from stdin (-): give its file or its name; only texts can be read from stdin";
    if given.as_os_str() == "-" { Err(rooflight::Error::Options(problem.into())) } else { Ok(()) }
}

fn named(given: &Path) -> anyhow::Result<Named> {
    check_not_stdin(given)?;
    if given.exists() || given.as_os_str().is_empty() {
        return Ok(Named::Here(given.to_owned()));
    }
    let missing = || rooflight::Error::NotFound { path: given.to_owned() };
    let is_file = given.extension().is_some_and(|ending| {
        ["gguf", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known))
    });
    let found = given.to_str().map(place::find).transpose()?.flatten();
    match found {
        // a file of the cache may be called as `list` has it; what ends as a file is on no hub
        Some(Named::Elsewhere(_)) | None if is_file => Err(missing().into()),
        found => found.ok_or_else(|| missing().into()),
    }
}

//! A build that asks nobody: only paths are models.

use std::path::{Path, PathBuf};

use server::{PullFailure, PullState};

use super::Named;
use crate::interrupt::Interrupt;

/// A model of which only headers are here: there is none.
pub(crate) enum NoHeader {}

pub(crate) use NoHeader as HeaderOnly;

impl NoHeader {
    /// Its first file.
    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    /// The name it was asked for by.
    pub(crate) fn name(&self) -> &str {
        match *self {}
    }
}

/// Returns `None`: this build has no short names.
pub(crate) fn spelled_out(_: &str) -> Option<String> {
    None
}

pub(super) fn find(_: &str) -> anyhow::Result<Option<Named>> {
    Ok(None)
}

pub(super) fn bring(name: &str, _: &Interrupt) -> anyhow::Result<PathBuf> {
    Err(rooflight::Error::NotHere { name: name.to_owned() }.into())
}

pub(super) fn outline(name: &str) -> anyhow::Result<HeaderOnly> {
    Err(rooflight::Error::NotHere { name: name.to_owned() }.into())
}

/// Bring a model here that a program asks a server for: nobody brings any.
pub(crate) fn pull_for(
    _: &str,
    _: u64,
    _: &mut dyn FnMut(PullState<'_>) -> bool,
) -> Result<PathBuf, PullFailure> {
    Err(PullFailure::Refused("this program was built to ask nobody for models".to_owned()))
}

/// What to do about a failure of this place: there is none.
pub(crate) fn hint_of(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

/// The exit code of a failure of this place: there is none.
pub(crate) fn code_of(_: &(dyn std::error::Error + 'static)) -> Option<u8> {
    None
}

/// Returns `None`: this build has no models by name.
pub(crate) fn models_here() -> Option<(usize, String)> {
    None
}

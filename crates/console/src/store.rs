//! The folders of this program, and files of its cache folder: what was measured, and is measured again where it is lost.

use std::path::PathBuf;
use std::sync::Once;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::output::shown;
use crate::ui;

/// Returns `$XDG_CACHE_HOME/rooflight`, by default `~/.cache/rooflight`.
fn cache_folder() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache", &variable)
}

/// Returns `$XDG_STATE_HOME/rooflight`, by default `~/.local/state/rooflight`.
pub fn state_folder() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state", &variable)
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Returns the folder of this program below the one that a variable names, by default below one of `HOME`. A path that is not
/// absolute counts as none.
/// Source: XDG Base Directory Specification, "Basics".
fn folder(
    name: &str,
    below_home: &str,
    variable: &dyn Fn(&str) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let base = absolute(name).or_else(|| Some(absolute("HOME")?.join(below_home)))?;
    Some(base.join("rooflight"))
}

/// Reads a file of the cache folder; `None` if there is none, or it is malformed.
pub fn read<T: DeserializeOwned>(name: &str) -> Option<T> {
    let text = std::fs::read_to_string(cache_folder()?.join(name)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a file of the cache folder, in place of an older one. The first failure of a process is a warning.
pub fn write(name: &str, content: &impl Serialize) {
    static WARNED: Once = Once::new();
    if let Err(problem) = replace(name, content) {
        WARNED.call_once(|| ui::warn(&problem));
    }
}

fn replace(name: &str, content: &impl Serialize) -> Result<(), String> {
    let what = "what was measured is not saved and will be measured again";
    let folder = cache_folder();
    let folder =
        folder.ok_or_else(|| format!("{what}: neither XDG_CACHE_HOME nor HOME is a folder"))?;
    let file = folder.join(name);
    // a reader at this moment sees the old file or the new one
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| Ok(serde_json::to_string_pretty(content)?))
        .and_then(|text| std::fs::write(&new, text))
        .and_then(|()| std::fs::rename(&new, &file));
    written.map_err(|why| {
        // there may be no such file
        let _ = std::fs::remove_file(&new);
        format!("{what}: could not write {}: {why}", shown(&file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_variables() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| if name == "HOME" { home } else { xdg }.map(PathBuf::from);
            let path = folder("XDG_STATE_HOME", ".local/state", &variable);
            path.map(|path| path.display().to_string())
        };
        assert_eq!(with(Some("/s"), Some("/h")).as_deref(), Some("/s/rooflight"));
        for none in [None, Some(""), Some("relative")] {
            let found = with(none, Some("/h"));
            assert_eq!(found.as_deref(), Some("/h/.local/state/rooflight"), "{none:?}");
            assert_eq!(with(none, None), None);
            assert_eq!(with(None, none), None);
        }
    }
}

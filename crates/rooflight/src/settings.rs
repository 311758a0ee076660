//! [`Settings`]: what a [`Runtime`](crate::Runtime) knows of its surroundings.

use std::path::PathBuf;

/// Folders of the library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Folder of what is measured on this machine, and can be measured again. Without it, nothing is stored.
    pub cache_folder: Option<PathBuf>,
    /// Folder of conversations and typed lines.
    pub state_folder: Option<PathBuf>,
}

impl Settings {
    /// Reads the environment: `XDG_CACHE_HOME`, `XDG_STATE_HOME` and `HOME`.
    /// Source: XDG Base Directory Specification, "Basics".
    pub fn from_env() -> Settings {
        Settings::from_variables(&|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// As [`from_env`](Self::from_env), from these variables.
    fn from_variables(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Settings {
        Settings {
            cache_folder: folder("XDG_CACHE_HOME", ".cache", variable),
            state_folder: folder("XDG_STATE_HOME", ".local/state", variable),
        }
    }
}

/// Returns the folder `rooflight` below the one that a variable names, by default below one of `HOME`. Relative paths are ignored, as the
/// specification wants it.
fn folder(
    name: &str,
    below_home: &str,
    variable: &dyn Fn(&str) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let base = absolute(name).or_else(|| Some(absolute("HOME")?.join(below_home)))?;
    Some(base.join("rooflight"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_variables() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| match name {
                "HOME" => home.map(PathBuf::from),
                "XDG_STATE_HOME" => xdg.map(PathBuf::from),
                _ => None,
            };
            let Settings { cache_folder, state_folder } = Settings::from_variables(&variable);
            assert_eq!(
                cache_folder,
                home.filter(|home| home.starts_with('/'))
                    .map(|home| { PathBuf::from(home).join(".cache/rooflight") })
            );
            state_folder.map(|path| path.display().to_string())
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

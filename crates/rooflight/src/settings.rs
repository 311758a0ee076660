//! [`Settings`]: folders that a [`Runtime`](crate::Runtime) uses.

use std::path::PathBuf;

/// Folders that the library uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Folder for measurements of this machine, which can be repeated at any time. If it is `None`, nothing is stored.
    pub cache_folder: Option<PathBuf>,
    /// Folder for conversations and the history of typed lines.
    pub state_folder: Option<PathBuf>,
}

impl Settings {
    /// Reads the folders from the environment variables `XDG_CACHE_HOME`, `XDG_STATE_HOME` and `HOME`.
    ///
    /// Source: XDG Base Directory Specification, "Basics".
    pub fn from_env() -> Settings {
        Settings::from_variables(&|name| std::env::var_os(name).map(PathBuf::from))
    }

    /// Reads the folders as [`from_env`](Self::from_env) does, with `variable` in place of the environment.
    fn from_variables(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Settings {
        Settings {
            cache_folder: folder("XDG_CACHE_HOME", ".cache", variable),
            state_folder: folder("XDG_STATE_HOME", ".local/state", variable),
        }
    }
}

/// Returns the folder `rooflight` in the folder that the variable names, or in `below_home` of `HOME` by default. Relative
/// paths are ignored, as the specification requires.
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

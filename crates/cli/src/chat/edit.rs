//! Edits a message in the user's editor.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::input::TextSource;
use crate::output::shown;

/// Returns the editor command from the environment: `VISUAL`, otherwise `EDITOR`.
pub(super) fn editor() -> Option<String> {
    ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|command| !command.trim().is_empty())
}

/// Opens a text in an editor and returns the edited text. The text is in a temporary file that only the user can read; the
/// file is removed afterwards, unless the editor changed it and failed.
///
/// # Errors
/// If the editor cannot be started or fails, or if the file cannot be written or read.
pub(super) fn edited(editor: &str, text: &str) -> anyhow::Result<String> {
    // editors add a line break at the end of a file, so the file has one from the start
    let content = format!("{text}\n");
    let path = write_private(&content).context("writing the message for the editor")?;
    let edited = run(editor, &path).and_then(|()| TextSource::File(path.clone()).read());
    let is_changed = || std::fs::read(&path).is_ok_and(|now| now != content.as_bytes());
    if edited.is_err() && is_changed() {
        return edited.with_context(|| format!("what you typed is in {}", shown(&path)));
    }
    // a file that cannot be removed is left to the system's clean-up of temporary files
    let _ = std::fs::remove_file(&path);
    let edited = edited?;
    Ok(edited.strip_suffix('\n').unwrap_or(&edited).to_owned())
}

fn write_private(text: &str) -> std::io::Result<PathBuf> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let folder = std::env::temp_dir();
    for n in 0..100 {
        let path = folder.join(format!("rooflight-message-{}-{n}.md", std::process::id()));
        match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            opened => {
                opened?.write_all(text.as_bytes())?;
                return Ok(path);
            }
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// Runs the editor on a file. The command may contain arguments: `code --wait`.
fn run(editor: &str, path: &Path) -> anyhow::Result<()> {
    let mut command = if cfg!(unix) {
        let mut shell = Command::new("sh");
        // Ctrl-C is for the editor: with a trap, the shell keeps waiting for the editor
        shell.arg("-c").arg(format!("trap : INT; {editor} \"$1\"")).arg("sh");
        shell
    } else {
        Command::new(editor)
    };
    let name = gguf::escape(editor, 80);
    let status =
        command.arg(path).status().with_context(|| format!("starting the editor {name}"))?;
    ensure!(status.success(), "the editor {name} failed ({status}): the message stays as it was");
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::edited;

    #[test]
    fn the_editor_changes_the_text_or_nothing_happens() {
        let changed = edited("sed -i -e s/one/two/", "one\nthree").unwrap();
        assert_eq!(changed, "two\nthree");
        let error = edited("false", "one").unwrap_err();
        assert!(error.to_string().contains("false failed"), "{error:#}");
        assert!(!format!("{error:#}").contains("what you typed"), "nothing was: {error:#}");
    }

    #[test]
    fn a_message_that_is_not_changed_is_the_same() {
        for text in ["one", "ends in \\", "one\ntwo", "ended\n", "\n\nspaced \n\n", ""] {
            assert_eq!(edited("true", text).unwrap(), text);
        }
    }

    #[test]
    fn what_was_typed_into_an_editor_that_fails_is_kept() {
        let fails = r#"sh -c 'echo typed > "$0"; exit 1'"#;
        let error = format!("{:#}", edited(fails, "one").unwrap_err());
        let path = error.strip_prefix("what you typed is in ").unwrap_or_else(|| panic!("{error}"));
        let (path, why) = path.split_once(": ").unwrap();
        assert!(why.starts_with("the editor sh -c"), "{error}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "typed\n");
        std::fs::remove_file(path).unwrap();
    }
}

//! Edits a message in the user's editor.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::input::TextSource;

/// Returns the editor command from the environment: `VISUAL`, otherwise `EDITOR`.
pub(super) fn editor() -> Option<String> {
    ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|command| !command.trim().is_empty())
}

/// Opens a text in an editor and returns the edited text. The text is in a temporary file that only the user can read;
/// the file is removed afterwards.
///
/// # Errors
/// If the editor cannot be started or fails, or if the file cannot be written or read.
pub(super) fn edited(editor: &str, text: &str) -> anyhow::Result<String> {
    let path = write_private(text).context("writing the message for the editor")?;
    let edited = run(editor, &path).and_then(|()| TextSource::File(path.clone()).read());
    // a file that cannot be removed is left to the system's clean-up of temporary files
    let _ = std::fs::remove_file(&path);
    Ok(edited?.trim_end_matches('\n').to_owned())
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
        shell.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh");
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
    }
}

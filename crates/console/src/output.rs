//! Writes output files: under a temporary name in the same folder, renamed when they are complete.
//!
//! Existing files are replaced only with `--force`, and only by complete files. Devices and pipes are written directly, because
//! files cannot be renamed onto them.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use rooflight::shown;

/// A path that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file exists and would be replaced.
    #[error("{}: there is such a file already", shown(path))]
    Exists {
        /// Path as given.
        path: PathBuf,
    },
    /// The file is an input of the same command.
    #[error("{} is read by this command: give another file", shown(path))]
    Input {
        /// Path as given.
        path: PathBuf,
    },
    /// The path is a folder.
    #[error("{} is a folder: give a file in it", shown(path))]
    Folder {
        /// Path as given.
        path: PathBuf,
    },
}

/// Whether files that exist may be replaced.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct OutputArgs {
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

impl OutputArgs {
    /// Checks whether `path` may be written. Call this before long work.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if the file exists and may not be replaced; [`OutputError::Folder`] if the path is a folder.
    pub fn check(self, path: &Path) -> Result<(), OutputError> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => Err(OutputError::Folder { path: path.to_owned() }),
            Ok(found) if found.is_file() && !self.force => {
                Err(OutputError::Exists { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Creates a file. It appears at `path` when it is [finished](OutputFile::finish).
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and I/O errors.
    pub fn create(self, path: &Path) -> anyhow::Result<OutputFile> {
        self.check(path)?;
        OutputFile::begin(self, path).with_context(|| writing(path))
    }

    /// Writes a complete file.
    ///
    /// # Errors
    /// Those of [`OutputArgs::create`] and [`OutputFile::finish`].
    pub fn write(self, path: &Path, content: &[u8]) -> anyhow::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(content).with_context(|| writing(path))?;
        file.finish()
    }
}

/// Checks that `path` is not the same file as one of `inputs`, which would be lost. [`force`](OutputArgs::force) does not
/// override this.
///
/// # Errors
/// [`OutputError::Input`] if it is one of them.
pub fn check_input(path: &Path, inputs: &[&Path]) -> Result<(), OutputError> {
    let Ok(place) = path.canonicalize() else { return Ok(()) };
    let is_file = place.is_file();
    let same = |input: &&Path| input.canonicalize().is_ok_and(|input| input == place);
    match is_file && inputs.iter().any(same) {
        true => Err(OutputError::Input { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// An output file that is not at its final path yet. Dropping it removes it.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    options: OutputArgs,
    /// Path as given, for messages.
    path: PathBuf,
    /// Temporary path and final path; `None` for a device.
    places: Option<(PathBuf, PathBuf)>,
}

impl OutputFile {
    fn begin(options: OutputArgs, path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path).ok();
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(Self { file, options, path: path.to_owned(), places: None });
        }
        // replace the target of a link, not the link
        let target = match found {
            Some(_) => path.canonicalize()?,
            None => path.to_owned(),
        };
        let (file, beside) = beside(&target)?;
        let places = Some((beside, target));
        let output = Self { file, options, path: path.to_owned(), places };
        if let Some(permissions) = found.as_ref().map(Metadata::permissions) {
            output.file.set_permissions(permissions)?;
        }
        Ok(output)
    }

    /// Renames the file to its final path.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if the file was created meanwhile, and I/O errors. The temporary file is then removed.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let path = self.path.clone();
        self.file.flush().with_context(|| writing(&path))?;
        let Some((beside, target)) = &self.places else { return Ok(()) };
        self.options.check(&path)?;
        // some file systems report a full disk only now
        self.file
            .sync_all()
            .and_then(|()| std::fs::rename(beside, target))
            .with_context(|| writing(&path))?;
        self.places = None;
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.places {
            // ignore the error: nothing else can be done
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Creates a new file with an unused hidden name in the folder of `target`.
fn beside(target: &Path) -> io::Result<(File, PathBuf)> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for n in 0_u32..100 {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{n}.part", std::process::id()));
        let path = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, path)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn writing(path: &Path) -> String {
    format!("writing {}", shown(path))
}
/// Stdout whose errors name it in their message. Their kind is unchanged.
#[derive(Debug)]
pub struct Stdout(io::Stdout);

impl Stdout {
    /// Returns the stdout of the process.
    #[expect(clippy::new_without_default, reason = "there is one stdout, and it is no default")]
    pub fn new() -> Self {
        Self(io::stdout())
    }

    fn told(error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("writing stdout: {error}"))
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| Stdout::told(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| Stdout::told(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: OutputArgs = OutputArgs { force: true };
    const UNASKED: OutputArgs = OutputArgs { force: false };

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_whole_and_replaces_none_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let mut file = UNASKED.create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(folder.path()), [] as [&str; 0], "half a file leaves nothing");
        UNASKED.write(&path, b"first").unwrap();
        let error = UNASKED.write(&path, b"second").unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(OutputError::Exists { .. })), "{error:#}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        drop(ASKED.create(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"first", "until the new one is whole");
        ASKED.write(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn what_was_put_there_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let file = UNASKED.create(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        assert!(file.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_modes_stay_and_devices_are_written_directly() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        std::fs::write(&real, "old").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        ASKED.write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        UNASKED.write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(UNASKED.write(Path::new("/dev/full"), b"no room").is_err());
        assert!(Path::new("/dev/full").exists());
        assert!(UNASKED.create(folder.path()).is_err());
    }
}

//! [`TemporaryFolder`]: a folder that goes with whoever made it, also where that was killed: the next one takes it away.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// How all of them are called.
const NAME: &str = "rooflight-headers-";
/// Held for as long as its folder is wanted; the system lets go of it wherever a process ends.
const LOCK: &str = ".lock";

/// A folder that nobody else has.
pub struct TemporaryFolder {
    path: PathBuf,
    _lock: File,
}

impl TemporaryFolder {
    /// A new one below `base`, from where those that nobody has any more are taken away.
    ///
    /// # Errors
    /// If none can be made there.
    pub fn new(base: &Path) -> anyhow::Result<TemporaryFolder> {
        sweep(base);
        for i in 0..1000 {
            let path = base.join(format!("{NAME}{}-{i}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => match locked(&path) {
                    Ok(lock) => return Ok(TemporaryFolder { path, _lock: lock }),
                    // another one swept right then
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).with_context(|| crate::shown(&path)),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| crate::shown(&path)),
            }
        }
        anyhow::bail!("{}: no folder can be made there", crate::shown(base))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // it lies among files that the system clears
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn locked(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    held(File::create_new(&path)?, &path)
}

/// Hold a lock that was made just now: it may be gone again, and its folder with it.
fn held(lock: File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        // where there are no locks, nobody takes the folder away either
        Err(fs::TryLockError::Error(_)) => Ok(lock),
        // who takes it away holds it until that is done
        Ok(()) if path.is_file() => Ok(lock),
        Ok(()) | Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Take away folders whose lock nobody holds. One without a lock is about to get it.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str());
        let lock = path.join(LOCK);
        if !name.is_some_and(|name| name.starts_with(NAME)) || !is_ours(&path, &lock) {
            continue;
        }
        let Ok(lock) = File::open(lock) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a folder and the lock in it are this user's, and what they should be: what others put there under such a name may
/// be anything, as a pipe that lets whoever opens it wait.
fn is_ours(folder: &Path, lock: &Path) -> bool {
    let (Ok(folder), Ok(lock)) = (fs::symlink_metadata(folder), fs::symlink_metadata(lock)) else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let user = rustix::process::geteuid().as_raw();
        if folder.uid() != user || lock.uid() != user {
            return false;
        }
    }
    folder.is_dir() && lock.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_used_stays() {
        let base = tempfile::tempdir().unwrap();
        let used = TemporaryFolder::new(base.path()).unwrap();
        let left = base.path().join(format!("{NAME}1-0"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("m.gguf"), "x").unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let other = base.path().join("rooflight-notes");
        fs::create_dir(&other).unwrap();
        let next = TemporaryFolder::new(base.path()).unwrap();
        assert!(used.path().is_dir() && next.path().is_dir() && other.is_dir());
        assert!(!left.exists(), "nobody holds its lock");
        let paths = [used.path().to_owned(), next.path().to_owned()];
        drop((used, next));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    /// Whoever runs into one would wait for ever.
    #[cfg(unix)]
    #[test]
    fn what_is_no_lock_is_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join(format!("{NAME}x"));
        fs::create_dir(&folder).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, folder.join(LOCK), kind, mode, 0).unwrap();
        // nor is one that is reached by a link
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(LOCK), "").unwrap();
        let link = base.path().join(format!("{NAME}y"));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        let (done, swept) = std::sync::mpsc::channel();
        let path = base.path().to_owned();
        std::thread::spawn(move || {
            sweep(&path);
            done.send(()).unwrap();
        });
        let waited = swept.recv_timeout(std::time::Duration::from_secs(20));
        assert!(waited.is_ok(), "it waits for somebody to write into a pipe");
        assert!(folder.exists() && link.is_symlink() && elsewhere.path().join(LOCK).exists());
    }

    /// A sweep between the making of a lock and the taking of it leaves no folder to work in.
    #[test]
    fn what_was_swept_right_then_is_not_held() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join(format!("{NAME}1-0"));
        fs::create_dir(&folder).unwrap();
        let path = folder.join(LOCK);
        let lock = File::create_new(&path).unwrap();
        sweep(base.path());
        assert!(!folder.exists());
        assert_eq!(held(lock, &path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

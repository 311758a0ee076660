//! [`TemporaryFolder`]: a folder that is removed when its owner is dropped.
//!
//! If a process is killed, the next new temporary folder removes what it left.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Prefix of the folder names.
const NAME: &str = "rooflight-headers-";
/// Name of the lock file, which is locked while the folder is in use. The system releases the lock when the process ends.
const LOCK: &str = ".lock";

/// A folder that only one process uses.
pub struct TemporaryFolder {
    path: PathBuf,
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a new folder in `base`, and removes folders that processes left there.
    ///
    /// # Errors
    /// If no folder can be created in `base`.
    pub fn new(base: &Path) -> anyhow::Result<TemporaryFolder> {
        sweep(base);
        for i in 0..1000 {
            let path = base.join(format!("{NAME}{}-{i}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => match locked(&path) {
                    Ok(lock) => return Ok(TemporaryFolder { path, _lock: lock }),
                    // another process removed the folder before it was locked
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).with_context(|| crate::shown(&path)),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| crate::shown(&path)),
            }
        }
        anyhow::bail!("{}: no folder can be made there", crate::shown(base))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // on failure, the system eventually clears its temporary files
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn locked(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    held(File::create_new(&path)?, &path)
}

/// Locks a new lock file. Fails with `WouldBlock` if another process has already locked it or removed it with its folder.
fn held(lock: File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        // without support for locks, no process removes the folder
        Err(fs::TryLockError::Error(_)) => Ok(lock),
        // a process that removes the folder holds the lock until it is done
        Ok(()) if path.is_file() => Ok(lock),
        Ok(()) | Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Removes folders whose lock is not held. Skips folders without a lock file, because their owner is about to create it.
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

/// Returns whether a folder and its lock file belong to this user and are a folder and a regular file. Other users may create
/// anything under these names, such as a pipe that blocks every process that opens it.
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

    /// Opening a pipe would block forever.
    #[cfg(unix)]
    #[test]
    fn what_is_no_lock_is_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join(format!("{NAME}x"));
        fs::create_dir(&folder).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, folder.join(LOCK), kind, mode, 0).unwrap();
        // symbolic links are not followed either
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

    /// If a sweep runs after the lock file is created and before it is locked, the folder is not used.
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

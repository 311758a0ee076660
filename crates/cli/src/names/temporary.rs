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
pub(super) struct TemporaryFolder {
    path: PathBuf,
    _lock: File,
}

impl TemporaryFolder {
    /// A new one below `base`, from where those that nobody has any more are taken away.
    ///
    /// # Errors
    /// If none can be made there.
    pub(super) fn new(base: &Path) -> anyhow::Result<TemporaryFolder> {
        sweep(base);
        for i in 0..1000 {
            let path = base.join(format!("{NAME}{}-{i}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => match locked(&path) {
                    Ok(lock) => return Ok(TemporaryFolder { path, _lock: lock }),
                    // another one sweeps right now
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).with_context(|| crate::output::shown(&path)),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| crate::output::shown(&path)),
            }
        }
        anyhow::bail!("{}: no folder can be made there", crate::output::shown(base))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
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
    let lock = File::create_new(folder.join(LOCK))?;
    match lock.try_lock() {
        // where there are no locks, nobody takes the folder away either
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Take away folders whose lock nobody holds. One without a lock is about to get it.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str());
        let ours = name.is_some_and(|name| name.starts_with(NAME)) && !path.is_symlink();
        let Some(lock) = ours.then(|| File::open(path.join(LOCK)).ok()).flatten() else { continue };
        if lock.try_lock().is_ok() {
            // somebody else's stays where the system says so
            let _ = fs::remove_dir_all(&path);
        }
    }
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
}

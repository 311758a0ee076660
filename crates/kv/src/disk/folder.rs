//! [`ProcessFolder`]: a folder that one process has, so that what a killed one left is known as such.
//!
//! A process holds a lock on a file of its folder as long as it lives, however it ends. Folders are made and swept under
//! another lock, that of the folder they are in: one without a lock that is held has no owner.

use std::fs::{DirBuilder, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{DiskError, Result};

/// The file of records in a folder.
const RECORDS: &str = "records";
/// The file that a folder's owner locks.
const OWNER: &str = "lock";
/// The file that is locked while folders are made or swept.
const GATE: &str = ".rooflight-lock";
/// The folder that stays.
const KEPT: &str = "rooflight-kept";
/// How the files of manifests end.
pub(super) const MANIFEST: &str = ".manifest";
/// How folders of processes begin; a process number and sixteen digits follow.
const PREFIX: &str = "rooflight-run-";
/// How long others may take to sweep.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder whose files go when it is dropped, unless it is kept and has manifests.
#[derive(Debug)]
pub(super) struct ProcessFolder {
    path: PathBuf,
    is_kept: bool,
    /// Held while the folder is in use.
    _owner: File,
    /// Folders of killed processes that were removed before.
    swept: usize,
}

impl ProcessFolder {
    /// A new one in `dir`, or the one there that is kept. `dir` is made if need be, and folders without a living owner are
    /// removed.
    pub(super) fn new(dir: &Path, is_kept: bool) -> Result<ProcessFolder> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| DiskError::io(dir, "making the folder", &error))?;
        let _gate = gate(dir, PATIENCE)?;
        let swept = sweep(dir)?;
        let own_name = || format!("{PREFIX}{}-{:016x}", std::process::id(), any_number());
        let path = dir.join(if is_kept { KEPT.to_owned() } else { own_name() });
        let made = DirBuilder::new().recursive(is_kept).mode(0o700).create(&path);
        made.map_err(|error| DiskError::io(&path, "making the folder", &error))?;
        if is_kept {
            check_own(&path)?;
        }
        let owner = own(&path);
        if owner.is_err() && !is_kept {
            remove(&path);
        }
        Ok(ProcessFolder { _owner: owner?, path, is_kept, swept })
    }

    /// Where manifests go, if it is kept.
    pub(super) fn manifests(&self) -> Option<&Path> {
        self.is_kept.then_some(&self.path)
    }

    /// Where its records go.
    pub(super) fn records(&self) -> PathBuf {
        self.path.join(RECORDS)
    }

    /// Folders of killed processes that were removed when this one was made.
    pub(super) fn swept(&self) -> usize {
        self.swept
    }
}

impl Drop for ProcessFolder {
    fn drop(&mut self) {
        let Some(dir) = self.path.parent() else { return };
        let gate = gate(dir, if self.is_kept { PATIENCE } else { Duration::ZERO });
        if !self.is_kept || gate.is_ok() && !has(&self.path, |name| name.ends_with(MANIFEST)) {
            remove(&self.path);
        }
        // the last one leaves nothing behind; who came meanwhile keeps the gate, or makes another
        if gate.is_ok() && !has(dir, |name| name != GATE) {
            let _ = std::fs::remove_file(dir.join(GATE));
        }
    }
}

/// Refuse a folder that is a link to another one, or that another user has or may write to: what is there is not ours.
fn check_own(folder: &Path) -> Result<()> {
    let found = folder.symlink_metadata();
    let found = found.map_err(|error| DiskError::io(folder, "looking at the folder", &error))?;
    let problem = match () {
        () if !found.is_dir() => "it is a link",
        () if found.uid() != geteuid().as_raw() => "it belongs to another user",
        () if found.mode() & 0o022 != 0 => "other users may write to it",
        () => return Ok(()),
    };
    let (doing, found) = ("opening the folder", problem.to_owned());
    Err(DiskError::Io { path: folder.to_owned(), doing, found })
}

/// Whether a folder has such an entry, or cannot be read.
fn has(folder: &Path, is_such: impl Fn(&str) -> bool) -> bool {
    std::fs::read_dir(folder).map_or(true, |mut entries| {
        entries
            .any(|entry| entry.map_or(true, |entry| is_such(&entry.file_name().to_string_lossy())))
    })
}

/// A number that nobody else has.
pub(super) fn any_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Open a file that is no link and no pipe, readable by nobody else if it is made.
pub(super) fn open(path: &Path, make: bool) -> std::io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(make).create(make).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

/// The right to make and remove folders of processes in `dir`, while it is held.
fn gate(dir: &Path, patience: Duration) -> Result<File> {
    let (path, since) = (dir.join(GATE), Instant::now());
    loop {
        let file = open(&path, true).map_err(|error| DiskError::io(&path, "opening", &error))?;
        match file.try_lock() {
            Ok(()) if is_at(&file, &path) => return Ok(file),
            // who held it before was the last and removed it
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(DiskError::io(&path, "locking", &error)),
            Err(TryLockError::WouldBlock) if since.elapsed() >= patience => {
                let holder = format!("a process that sweeps, for {} s", patience.as_secs());
                return Err(DiskError::Locked { path: dir.to_owned(), holder });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Whether a file is still where it was opened.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |at: std::fs::Metadata, own: std::fs::Metadata| {
        (at.dev(), at.ino()) == (own.dev(), own.ino())
    };
    let there = path.symlink_metadata().ok().zip(file.metadata().ok());
    there.is_some_and(|(at, own)| same(at, own))
}

/// How long a lock that was let go of may seem held: a process that was just started by another thread has all files of
/// this one until it runs its own program.
const FORKED: Duration = Duration::from_millis(250);

/// Lock a folder for this process.
fn own(folder: &Path) -> Result<File> {
    let path = folder.join(OWNER);
    let failed = |doing, error: &std::io::Error| DiskError::io(&path, doing, error);
    let mut file = open(&path, true).map_err(|error| failed("opening", &error))?;
    let since = Instant::now();
    let mut locked = file.try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) && since.elapsed() < FORKED {
        std::thread::sleep(Duration::from_millis(5));
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {
            let named =
                file.set_len(0).and_then(|()| write!(file, "process {}", std::process::id()));
            named.map_err(|error| DiskError::write(&path, 0, 20, &error))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.take(40).read_to_string(&mut holder);
            let holder = if holder.is_empty() { "another process".into() } else { holder };
            Err(DiskError::Locked { path: folder.to_owned(), holder })
        }
        Err(TryLockError::Error(error)) => Err(failed("locking", &error)),
    }
}

/// Remove the folders of processes that live no more; how many. The gate must be held.
fn sweep(dir: &Path) -> Result<usize> {
    let entries = std::fs::read_dir(dir).map_err(|error| DiskError::io(dir, "listing", &error))?;
    let mut swept = 0;
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let (name, path) = (entry.file_name(), entry.path());
        let is_kept = || name == KEPT && has(&path, |name| name.ends_with(MANIFEST));
        let is_ours = name == KEPT || is_process_folder(&name.to_string_lossy());
        if is_folder && is_ours && !is_kept() {
            let is_free = match open(&path.join(OWNER), false) {
                Ok(owner) => owner.try_lock().is_ok(),
                Err(error) => name != KEPT && error.kind() == ErrorKind::NotFound,
            };
            swept += usize::from(is_free && remove(&path));
        }
    }
    Ok(swept)
}

fn is_process_folder(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(process, number)| {
        let is_number = |text: &str, is: fn(&u8) -> bool| text.bytes().all(|b| is(&b));
        !process.is_empty()
            && is_number(process, u8::is_ascii_digit)
            && number.len() == 16
            && is_number(number, u8::is_ascii_hexdigit)
    })
}

/// Remove a process's folder, with what is ours in it and nothing else; the lock goes last.
fn remove(folder: &Path) -> bool {
    for name in [RECORDS, OWNER] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    std::fs::remove_dir(folder).is_ok()
}

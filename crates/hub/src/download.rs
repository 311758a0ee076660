//! From a hub to the cache: parts of a file over several connections, until its digest is right; then it has its name.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::journal::{Journal, PART};
use crate::source::PartSource;
use crate::transport::protocol;
use crate::{Hub, HubError, RemoteFile, RemoteModel, Result};

/// Connections at once.
const CONNECTIONS: usize = 4;
/// Left free on the disk.
const MARGIN: u64 = 16 << 20;

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullProgress<'a> {
    /// The file.
    pub file: &'a str,
    /// Its number among all, from 1, and how many there are.
    pub number: (usize, usize),
    /// What is done with it.
    pub stage: PullStage,
    /// Bytes of it that are done.
    pub done: u64,
    /// All its bytes.
    pub total: u64,
    /// What went wrong, while it is tried again.
    pub trouble: Option<&'a str>,
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// It is here already, whole.
    Here,
    /// Another process brings it here: it is waited for.
    Waits,
    /// What came before is read again and checked.
    Found,
    /// So much was there already; the rest comes.
    Comes,
    /// Nothing comes: the hub, or the way to it, is in trouble. It is tried again.
    Retries,
    /// Its digest is computed.
    Checked,
}

/// Asks whether to go on.
type Tell<'t> = &'t mut dyn FnMut(PullProgress<'_>) -> bool;

/// The same of one file: what is done with it, its bytes that are done, what went wrong.
type TellOne<'t> = &'t mut dyn FnMut(PullStage, u64, Option<&str>) -> bool;

impl Hub {
    /// Bring a model here. `tell` is told how far it is, and stops it by returning false: what came is kept.
    ///
    /// # Errors
    /// [`HubError`]: no hub, one that does not keep to what it said, a full disk, or that it was stopped. No file has its
    /// final name then that is not whole.
    pub fn pull(&self, model: &RemoteModel, tell: Tell<'_>) -> Result<PathBuf> {
        self.check_room(model)?;
        let mut first = None;
        for (i, file) in model.files.iter().enumerate() {
            let number = (i + 1, model.files.len());
            let mut told = |stage, done, trouble: Option<&str>| {
                let (name, total) = (&*file.path, file.bytes);
                tell(PullProgress { file: name, number, stage, done, total, trouble })
            };
            let path = self.file_here(model, file, &mut told)?;
            first.get_or_insert(path);
        }
        self.cache.set_revision(model)?;
        first.ok_or_else(|| protocol(&self.options.endpoint, "a file", "none"))
    }

    /// That the disk has room for what is not here yet.
    fn check_room(&self, model: &RemoteModel) -> Result<()> {
        let shelf = self.cache.shelf(&model.name.repository);
        let blobs = shelf.root.join("blobs");
        fs::create_dir_all(&blobs).map_err(HubError::io(&blobs))?;
        let missing = |file: &RemoteFile| {
            if shelf.blob(file).is_file() {
                return 0;
            }
            // a file that has begun takes what was written of it, and no more
            file.bytes.saturating_sub(taken(&part_path(&shelf.blob(file))))
        };
        let need = model.files.iter().map(missing).fold(0, u64::saturating_add);
        let Ok(disk) = rustix::fs::statvfs(&blobs) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match need > 0 && need.saturating_add(MARGIN) > free {
            true => Err(HubError::DiskFull { path: blobs, need, free }),
            false => Ok(()),
        }
    }

    /// Have a file here, under its name.
    fn file_here(
        &self,
        model: &RemoteModel,
        file: &RemoteFile,
        tell: TellOne<'_>,
    ) -> Result<PathBuf> {
        let shelf = self.cache.shelf(&model.name.repository);
        let blob = shelf.blob(file);
        let _lock = lock(&shelf.locks, file, tell)?;
        if fs::metadata(&blob).is_ok_and(|data| data.len() == file.bytes) {
            tell(PullStage::Here, file.bytes, None);
            return self.cache.place(model, file);
        }
        let mut found = |done| tell(PullStage::Found, done, None);
        let mut journal = Journal::open(&part_path(&blob), file, &mut found)?;
        self.fetch(model, file, &mut journal, tell)?;
        match digest(&journal.path, file.bytes, tell)? {
            found if found == file.digest => {
                journal.finish(&blob)?;
                self.cache.place(model, file)
            }
            found => {
                journal.discard();
                let (file, expected) = (file.path.clone(), file.digest.clone());
                Err(HubError::Digest { file, expected, found })
            }
        }
    }

    /// Have all missing parts come.
    fn fetch(
        &self,
        model: &RemoteModel,
        file: &RemoteFile,
        journal: &mut Journal,
        tell: TellOne<'_>,
    ) -> Result<()> {
        let there = journal.present_bytes();
        if !tell(PullStage::Comes, there, None) {
            return Err(HubError::Cancelled);
        }
        let url = self.url_of(&model.name.repository, &model.commit, &file.path);
        let source = Arc::new(PartSource::new(Arc::clone(&self.transport), url, file.bytes));
        let parts = connections(&source, journal.missing()).map_err(HubError::io(&journal.path))?;
        let came = loop {
            match parts.recv_timeout(Duration::from_millis(100)) {
                Ok((part, bytes)) => {
                    if let Err(error) = bytes.and_then(|bytes| journal.put(part, &bytes)) {
                        break Err(error);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break Ok(()),
            }
            let done = (there + source.came()).min(file.bytes);
            let trouble = source.trouble();
            let stage = if trouble.is_some() { PullStage::Retries } else { PullStage::Comes };
            if !tell(stage, done, trouble.as_deref()) {
                break Err(HubError::Cancelled);
            }
        };
        // a connection may hang for a while: nobody waits for it, and what it brings goes nowhere
        source.stop();
        came.and_then(|()| match journal.missing().is_empty() {
            true => Ok(()),
            false => Err(protocol(&self.options.endpoint, "all parts", "a connection ended early")),
        })
    }
}

/// Where parts of a file arrive, each with its number.
type Parts = mpsc::Receiver<(usize, Result<Vec<u8>>)>;

/// Have these parts come over several connections. They end when all is there, when one fails, or when nobody listens.
fn connections(source: &Arc<PartSource>, missing: Vec<usize>) -> std::io::Result<Parts> {
    let n = CONNECTIONS.min(missing.len());
    let missing = Arc::new(Mutex::new(missing.into_iter()));
    // as many parts may wait for the disk as come
    let (sender, parts) = mpsc::sync_channel(CONNECTIONS);
    for i in 0..n {
        let (sender, source, missing) = (sender.clone(), Arc::clone(source), Arc::clone(&missing));
        let connection = move || {
            let next = || missing.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(part) = next() {
                let fetched = source.part(part);
                let over = fetched.is_err();
                if sender.send((part, fetched)).is_err() || over {
                    return;
                }
            }
        };
        match std::thread::Builder::new().name("rooflight-pull".into()).spawn(connection) {
            Ok(_) => {}
            // fewer do as well
            Err(_) if i > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(parts)
}

/// The file that grows in place of a blob.
fn part_path(blob: &Path) -> PathBuf {
    blob.with_extension("rooflight")
}

/// Bytes that a file takes on the disk, which may be fewer than it has.
fn taken(path: &Path) -> u64 {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).map_or(0, |data| data.blocks().saturating_mul(512))
    }
    #[cfg(not(unix))]
    {
        fs::metadata(path).map_or(0, |data| data.len())
    }
}

/// Keep other processes from the file until this is dropped; the system does so too where a process ends.
fn lock(folder: &Path, file: &RemoteFile, tell: TellOne<'_>) -> Result<File> {
    fs::create_dir_all(folder).map_err(HubError::io(folder))?;
    let path = folder.join(format!("{}.lock", file.digest));
    let lock = File::options().write(true).create(true).truncate(false).open(&path);
    let lock = lock.map_err(HubError::io(&path))?;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) => {
                if !tell(PullStage::Waits, 0, None) {
                    return Err(HubError::Cancelled);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            // a file system without locks
            Err(fs::TryLockError::Error(error)) => return Err(HubError::io(&path)(error)),
        }
    }
}

/// SHA-256 of a file.
fn digest(path: &Path, total: u64, tell: TellOne<'_>) -> Result<String> {
    let mut file = File::open(path).map_err(HubError::io(path))?;
    let (mut hash, mut done) = (Sha256::new(), 0);
    let mut buffer = vec![0; PART.min(1 << 20) as usize];
    loop {
        let n = file.read(&mut buffer).map_err(HubError::io(path))?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        done += n as u64;
        if !tell(PullStage::Checked, done.min(total), None) {
            return Err(HubError::Cancelled);
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

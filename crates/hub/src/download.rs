//! From a hub to the cache: parts of a file over several connections, until its digest is right; then it has its name.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::http::StatusCode;

use crate::journal::{Journal, PART, parts_of, range_of};
use crate::transport::{Follow, HubAnswer, failed, protocol};
use crate::{Hub, HubError, RemoteFile, RemoteModel, Result};

/// Connections at once.
const CONNECTIONS: usize = 4;
/// How often a part is tried.
const TRIES: u32 = 6;
/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_secs(8);
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
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// Another process brings it here: it is waited for.
    Waits,
    /// So much was there already; the rest comes.
    Comes,
    /// Its digest is computed.
    Checked,
}

/// Asks whether to go on.
type Tell<'t> = &'t mut dyn FnMut(PullProgress<'_>) -> bool;

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
            let mut told = |stage, done| {
                let (name, total) = (&*file.path, file.bytes);
                tell(PullProgress { file: name, number, stage, done, total })
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
        tell: &mut dyn FnMut(PullStage, u64) -> bool,
    ) -> Result<PathBuf> {
        let shelf = self.cache.shelf(&model.name.repository);
        let blob = shelf.blob(file);
        let _lock = lock(&shelf.locks, file, tell)?;
        if fs::metadata(&blob).is_ok_and(|data| data.len() == file.bytes) {
            return self.cache.place(model, file);
        }
        let mut journal = Journal::open(&part_path(&blob), file)?;
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
        tell: &mut dyn FnMut(PullStage, u64) -> bool,
    ) -> Result<()> {
        let missing = Mutex::new(journal.missing().into_iter());
        let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
        let there = journal.len();
        if !tell(PullStage::Comes, there) {
            return Err(HubError::Cancelled);
        }
        let source = Source { hub: self, model, file, stop: &stop, came: &came };
        std::thread::scope(|scope| {
            // as many parts may wait for the disk as come
            let (sender, parts) = mpsc::sync_channel(CONNECTIONS);
            for _ in 0..CONNECTIONS.min(parts_of(file.bytes)) {
                let (sender, source, missing) = (sender.clone(), &source, &missing);
                scope.spawn(move || {
                    let next = || missing.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some(part) = next() {
                        let fetched = source.part(part);
                        let over = fetched.is_err();
                        if sender.send((part, fetched)).is_err() || over {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut result = Ok(());
            loop {
                match parts.recv_timeout(Duration::from_millis(100)) {
                    Ok((part, Ok(bytes))) if result.is_ok() => result = journal.put(part, &bytes),
                    Ok((_, Err(error))) if result.is_ok() => result = Err(error),
                    Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
                let done = there + came.load(Ordering::Relaxed);
                if result.is_ok() && !tell(PullStage::Comes, done.min(file.bytes)) {
                    result = Err(HubError::Cancelled);
                }
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            result
        })
    }
}

/// Where parts of a file come from.
struct Source<'a> {
    hub: &'a Hub,
    model: &'a RemoteModel,
    file: &'a RemoteFile,
    /// Nothing is wanted any more.
    stop: &'a AtomicBool,
    /// Bytes that came.
    came: &'a AtomicU64,
}

impl Source<'_> {
    /// A part, tried as often as it may help.
    fn part(&self, part: usize) -> Result<Vec<u8>> {
        let mut tried = 0;
        loop {
            let error = match self.once(part) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            tried += 1;
            let helps = matches!(error, HubError::Transport { .. });
            if !helps || tried == TRIES || self.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
            self.pause(Duration::from_millis(250 << tried.min(6)).min(PAUSE))?;
        }
    }

    fn pause(&self, time: Duration) -> Result<()> {
        const STEP: Duration = Duration::from_millis(50);
        let mut left = time;
        while !left.is_zero() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(HubError::Cancelled);
            }
            std::thread::sleep(left.min(STEP));
            left = left.saturating_sub(STEP);
        }
        Ok(())
    }

    /// A part, tried once.
    fn once(&self, part: usize) -> Result<Vec<u8>> {
        let Source { hub, model, file, .. } = self;
        let (start, end) = range_of(part, file.bytes);
        let url = hub.url_of(&model.name.repository, &model.commit, &file.path);
        let mut answer = hub.transport.get(&url, Some((start, end)), Follow::All)?;
        let skip = self.check(&answer, start, end)?;
        let reader = &mut answer.body.as_reader();
        let bad = |error: &dyn std::fmt::Display| failed(&answer.url, error);
        let mut bytes = Vec::with_capacity((end - start) as usize);
        let mut buffer = [0; 64 << 10];
        let (mut at, mut counted) = (0, 0);
        while at < skip + (end - start) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(HubError::Cancelled);
            }
            let n = match reader.read(&mut buffer) {
                Ok(0) => {
                    self.came.fetch_sub(counted, Ordering::Relaxed);
                    return Err(bad(&"the connection broke off"));
                }
                Ok(n) => n as u64,
                Err(error) => {
                    self.came.fetch_sub(counted, Ordering::Relaxed);
                    return Err(bad(&error));
                }
            };
            let from = skip.saturating_sub(at).min(n);
            let room = (end - start) - bytes.len() as u64;
            let wanted = &buffer[from as usize..n as usize];
            let wanted = &wanted[..wanted.len().min(room as usize)];
            bytes.extend_from_slice(wanted);
            self.came.fetch_add(wanted.len() as u64, Ordering::Relaxed);
            counted += wanted.len() as u64;
            at += n;
        }
        let exact = answer.status == StatusCode::PARTIAL_CONTENT;
        if exact && at > end - start {
            return Err(protocol(&url, format!("{} bytes", end - start), "more of them"));
        }
        Ok(bytes)
    }

    /// That an answer is the range that was asked for, or all of it; how many bytes come before the part.
    fn check(&self, answer: &HubAnswer, start: u64, end: u64) -> Result<u64> {
        let total = self.file.bytes;
        let wrong = |expected: String, found: &str| Err(protocol(&answer.url, expected, found));
        if let Some(coding) = answer.header("content-encoding").filter(|c| *c != "identity") {
            return wrong("the file as it is".into(), &format!("Content-Encoding: {coding}"));
        }
        match answer.status {
            StatusCode::PARTIAL_CONTENT => {
                let expected = format!("bytes {start}-{}/{total}", end - 1);
                match answer.header("content-range") {
                    Some(range) if range == expected => Ok(0),
                    other => wrong(
                        format!("Content-Range: {expected}"),
                        other.unwrap_or("no Content-Range"),
                    ),
                }
            }
            // it knows of no ranges: to pass over what comes before would be to read the file once for each part
            StatusCode::OK if start > 0 || end < total => {
                wrong("a part of the file".into(), "all of it: this server knows no ranges")
            }
            StatusCode::OK => match answer.header("content-length").map(str::parse::<u64>) {
                Some(Ok(found)) if found != total => {
                    wrong(format!("{total} bytes"), &format!("{found} bytes"))
                }
                _ => Ok(start),
            },
            status
                if status.is_server_error() || status.as_u16() == 429 || status.as_u16() == 408 =>
            {
                Err(failed(&answer.url, &format!("the server answers {status}")))
            }
            // an address that was signed for a while is asked for anew
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                Err(failed(&answer.url, &format!("the server answers {}", answer.status)))
            }
            status => wrong("a part of the file".into(), &status.to_string()),
        }
    }
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
fn lock(
    folder: &Path,
    file: &RemoteFile,
    tell: &mut dyn FnMut(PullStage, u64) -> bool,
) -> Result<File> {
    fs::create_dir_all(folder).map_err(HubError::io(folder))?;
    let path = folder.join(format!("{}.lock", file.digest));
    let lock = File::options().write(true).create(true).truncate(false).open(&path);
    let lock = lock.map_err(HubError::io(&path))?;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) => {
                if !tell(PullStage::Waits, 0) {
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
fn digest(path: &Path, total: u64, tell: &mut dyn FnMut(PullStage, u64) -> bool) -> Result<String> {
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
        if !tell(PullStage::Checked, done.min(total)) {
            return Err(HubError::Cancelled);
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

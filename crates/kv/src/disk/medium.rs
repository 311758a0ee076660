//! [`RecordMedium`]: what holds the bytes of records, the file that usually does, and what may stand between.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::folder::open;
use super::pages::PAGE;

/// Pages that no file has more of.
pub(super) const MAX_PAGES: u64 = i64::MAX as u64 / PAGE as u64;

/// What holds records: a file, or what stands between it and the store. Threads read and write at the same time, whole
/// pages from buffers that start at pages.
pub trait RecordMedium: Send + Sync {
    /// Fill `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where it ends before; whatever the system says.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Write all of `bytes` from byte `offset` on; it grows as it must.
    ///
    /// # Errors
    /// Whatever the system says; what is there then is anything.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Bytes it has.
    ///
    /// # Errors
    /// Whatever the system says.
    fn size(&self) -> io::Result<u64>;

    /// Cut what is behind the first `bytes` bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn cut(&self, bytes: u64) -> io::Result<()>;

    /// Let others have what is between these bytes, which nobody needs; it stays as long as it is. Where that cannot be it
    /// does nothing.
    ///
    /// # Errors
    /// Whatever the system says.
    fn punch(&self, _bytes: std::ops::Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Wait until everything written would survive the machine's end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync(&self) -> io::Result<()>;
}

/// Storage of manifests: files of a folder, or a layer between them and the store. A change survives the machine's end once
/// it is synced: the bytes of a file by [`sync`](Self::sync), its name by [`sync_folder`](Self::sync_folder).
pub trait ManifestMedium: Send + Sync {
    /// Writes a file, which is made or replaced.
    ///
    /// # Errors
    /// Whatever the system says; the file has any bytes then.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the bytes of a file would survive the machine's end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name in the same folder, in place of the file that has it.
    ///
    /// # Errors
    /// Whatever the system says; nothing has changed then.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Waits until the names in a folder would survive the machine's end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The files of the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ManifestFiles;

impl ManifestMedium for ManifestFiles {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = open(path, true)?;
        file.set_len(0)?;
        file.write_all(bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        open(path, false)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

/// What stands between a store and its file: usually nothing. Who tries what becomes of disks that fail puts a medium of his
/// own there.
#[derive(Clone, Default)]
pub struct DiskLayer(Option<Arc<Wrap>>);

type Wrap = dyn Fn(Box<dyn RecordMedium>) -> Box<dyn RecordMedium> + Send + Sync;

impl DiskLayer {
    /// Something that is laid over every file.
    pub fn new(
        wrap: impl Fn(Box<dyn RecordMedium>) -> Box<dyn RecordMedium> + Send + Sync + 'static,
    ) -> DiskLayer {
        DiskLayer(Some(Arc::new(wrap)))
    }

    /// A file with what stands before it.
    pub fn over(&self, file: Box<dyn RecordMedium>) -> Box<dyn RecordMedium> {
        match &self.0 {
            Some(wrap) => wrap(file),
            None => file,
        }
    }
}

impl std::fmt::Debug for DiskLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "DiskLayer(of a caller's)" } else { "DiskLayer(none)" })
    }
}

/// A file, past the system's cache of pages where it can be: what leaves memory should not come back by another door.
#[derive(Debug)]
pub(super) struct RecordFile {
    plain: File,
    direct: Option<File>,
}

impl RecordFile {
    /// Open or make the file; links are not followed. `direct`: try to bypass the system's cache.
    pub(super) fn open(path: &Path, direct: bool) -> io::Result<RecordFile> {
        let flags = |more: OFlags| (OFlags::NOFOLLOW | more).bits().cast_signed();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let plain = options.custom_flags(flags(OFlags::empty())).open(path)?;
        // not every system can; the plain file does the same
        #[cfg(target_os = "linux")]
        let direct = direct.then(|| options.custom_flags(flags(OFlags::DIRECT)).open(path).ok());
        #[cfg(not(target_os = "linux"))]
        let direct = direct.then_some(None);
        Ok(RecordFile { plain, direct: direct.flatten() })
    }
}

/// Whether a disk wants larger or other pages than ours: then the plain file does it.
fn is_refused(done: &io::Result<()>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}

impl RecordMedium for RecordFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            let done = direct.read_exact_at(bytes, offset);
            if !is_refused(&done) {
                return done;
            }
        }
        self.plain.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            let done = direct.write_all_at(bytes, offset);
            if !is_refused(&done) {
                return done;
            }
        }
        self.plain.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        if self.size()? > bytes { self.plain.set_len(bytes) } else { Ok(()) }
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, bytes: std::ops::Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.plain, flags, bytes.start, bytes.end - bytes.start)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }
}

//! Which parts of a file have come: beside the file that grows, a list of parts with a checksum of each, to which lines of a
//! fixed length are added. What was written half, or does not have its checksum any more, comes again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::{HubError, RemoteFile, Result};

/// Bytes of a part.
pub(crate) const PART: u64 = 2 << 20;
/// Bytes of the head: what it is, and of which file.
const HEAD: usize = 96;
/// Bytes of an entry: number and checksum, and a checksum of both.
const ENTRY: usize = 24;
const MAGIC: &[u8; 8] = b"rfhubj01";

/// The file that grows, and the list beside it.
pub struct Journal {
    /// The file.
    pub(crate) path: PathBuf,
    list_path: PathBuf,
    list: File,
    file: File,
    bytes: u64,
    done: Vec<bool>,
}

/// Parts of a file of so many bytes.
pub(crate) fn parts_of(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(PART)).unwrap_or(usize::MAX)
}

/// Where a part begins and ends.
pub(crate) fn range_of(part: usize, bytes: u64) -> (u64, u64) {
    let start = part as u64 * PART;
    (start, (start + PART).min(bytes))
}

impl Journal {
    /// Go on with what is at `path`, or begin. Parts that are there are read again and checked; `found` is told how many bytes
    /// were, and stops it by returning false.
    ///
    /// # Errors
    /// Files that cannot be read or written; [`HubError::Cancelled`].
    pub fn open(
        path: &Path,
        of: &RemoteFile,
        found: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Journal> {
        let list_path = path.with_extension("journal");
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path).map_err(HubError::io(path))
        };
        let (file, list) = (open(path)?, open(&list_path)?);
        let path = path.to_owned();
        let done = vec![false; parts_of(of.bytes)];
        let mut journal = Journal { path, list_path, list, file, bytes: of.bytes, done };
        match journal.restore(of, found).map_err(HubError::io(&journal.list_path))? {
            true => Ok(journal),
            false => Err(HubError::Cancelled),
        }
    }

    /// Find out what is there; false if it was stopped.
    fn restore(&mut self, of: &RemoteFile, found: &mut dyn FnMut(u64) -> bool) -> io::Result<bool> {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&of.bytes.to_le_bytes());
        head[16..80].copy_from_slice(of.digest.as_bytes());
        let mut listed = Vec::new();
        // a list that is longer than all entries is none
        let most = (HEAD + ENTRY * 2 * self.done.len()) as u64;
        (&self.list).take(most).read_to_end(&mut listed)?;
        if listed.get(..HEAD) != Some(&head[..]) {
            self.list.set_len(0)?;
            self.file.set_len(0)?;
            self.list.rewind()?;
            self.list.write_all(&head)?;
            self.file.set_len(of.bytes)?;
            return Ok(true);
        }
        self.file.set_len(of.bytes)?;
        let (mut whole, mut checked) = (HEAD, 0);
        for entry in listed[HEAD..].chunks_exact(ENTRY) {
            let word =
                |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            if word(16) != XxHash3_64::oneshot(&entry[..16]) {
                break;
            }
            whole += ENTRY;
            let Some(part) = usize::try_from(word(0)).ok().filter(|at| *at < self.done.len())
            else {
                continue;
            };
            let bytes = self.read(part)?;
            self.done[part] = XxHash3_64::oneshot(&bytes) == word(8);
            checked += bytes.len() as u64;
            if !found(checked.min(of.bytes)) {
                return Ok(false);
            }
        }
        self.list.set_len(whole as u64)?;
        self.list.seek(SeekFrom::End(0))?;
        Ok(true)
    }

    fn read(&mut self, part: usize) -> io::Result<Vec<u8>> {
        let (start, end) = range_of(part, self.bytes);
        self.file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a part that has come.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn put(&mut self, part: usize, bytes: &[u8]) -> Result<()> {
        let (start, _) = range_of(part, self.bytes);
        let write = |file: &mut File| {
            file.seek(SeekFrom::Start(start))?;
            file.write_all(bytes)
        };
        write(&mut self.file).map_err(HubError::io(&self.path))?;
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&(part as u64).to_le_bytes());
        entry[8..16].copy_from_slice(&XxHash3_64::oneshot(bytes).to_le_bytes());
        let sum = XxHash3_64::oneshot(&entry[..16]);
        entry[16..].copy_from_slice(&sum.to_le_bytes());
        self.list.write_all(&entry).map_err(HubError::io(&self.list_path))?;
        self.done[part] = true;
        Ok(())
    }

    /// Bytes that are there.
    pub fn present_bytes(&self) -> u64 {
        let there = self.done.iter().enumerate().filter(|(_, done)| **done);
        there.map(|(part, _)| range_of(part, self.bytes)).map(|(start, end)| end - start).sum()
    }

    /// Parts that are still to come.
    pub fn missing(&self) -> Vec<usize> {
        let missing = self.done.iter().enumerate().filter(|(_, done)| !**done);
        missing.map(|(part, _)| part).collect()
    }

    /// All of it is with the disk: give it this name, and then forget the list. Killed between, both are there.
    ///
    /// # Errors
    /// A file that cannot be written or renamed.
    pub fn finish(self, name: &Path) -> Result<()> {
        self.file.sync_all().map_err(HubError::io(&self.path))?;
        std::fs::rename(&self.path, name).map_err(HubError::io(name))?;
        if let Some(folder) = name.parent().and_then(|folder| File::open(folder).ok()) {
            let _ = folder.sync_all();
        }
        let _ = std::fs::remove_file(&self.list_path);
        Ok(())
    }

    /// Throw away what came.
    pub(crate) fn discard(self) {
        // what stays is begun anew: its digest was found wrong
        let _ = std::fs::remove_file(&self.list_path);
        let _ = std::fs::remove_file(&self.path);
    }
}

//! What stays: manifests over records that outlive the process.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::folder::{MANIFEST, open};
use super::key::ContentKey;
use super::manifest::{Fault, MAX_BYTES, Manifest};
use super::pages::PAGE;
use super::record::{Entry, Record, RecordSpace};
use super::store::{BlockStore, RecordId};
use super::{DiskError, Result};

/// Threads that look for records.
const CHECKERS: usize = 8;

/// What a manifest named, held by the store again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecords {
    /// The blocks, in the order in which they were kept.
    pub ids: Vec<RecordId>,
    /// What the caller wrote beside them.
    pub note: Vec<u8>,
}

/// The same, whatever it was made for.
pub(crate) struct HeldRecords {
    pub(crate) key: ContentKey,
    pub(crate) records: KeptRecords,
}

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAbout {
    /// What the blocks were kept for.
    pub key: ContentKey,
    /// What the caller wrote beside them.
    pub note: Vec<u8>,
    /// How many blocks there are.
    pub blocks: usize,
    /// Bytes of them.
    pub bytes: u64,
}

/// The manifests of a store, by name: records that are held for them, or what is wrong with one.
pub(super) type Manifests = BTreeMap<String, Result<Vec<Arc<Record>>>>;

impl BlockStore {
    /// Let blocks outlive the process, under a name of 1 to 64 letters, digits, `.`, `_` and `-` that begins with no `.`;
    /// what had that name before goes. The blocks are those of the store, which may be let go of: nothing is written again.
    /// When this returns a manifest and all it names are on the disk; however it ends, the name stands for the old blocks
    /// or the new ones.
    ///
    /// # Errors
    /// [`DiskError::Manifest`] if the store was not opened to be kept, or for another name; [`DiskError::Unknown`]; why
    /// something cannot be written.
    pub fn keep(&self, name: &str, key: &ContentKey, ids: &[RecordId], note: &[u8]) -> Result<()> {
        let path = self.manifest(name)?;
        let records: Result<Vec<_>> = ids.iter().map(|id| self.shared.record(*id)).collect();
        let records = records?;
        // the disk takes its time for this, which nobody else waits for
        self.flush()?;
        let space = &self.shared.space;
        space.medium.sync().map_err(|error| DiskError::io(&space.path, "syncing", &error))?;
        let mut manifests = self.manifests();
        let entries = records.iter().map(|record| record.entry).collect();
        let manifest = Manifest { key: key.clone(), note: note.to_vec(), records: entries };
        let bytes = manifest.to_bytes();
        if bytes.len() as u64 > MAX_BYTES {
            let (wanted, found) = (format!("at most {MAX_BYTES}"), bytes.len().to_string());
            return Err(fault(&path, ("length", wanted, found)));
        }
        match self.replace_manifest(&path, &bytes) {
            // what is free within the file of records has room for it
            Err(DiskError::NoSpace { .. }) => {
                space.punch();
                self.replace_manifest(&path, &bytes)?;
            }
            done => done?,
        }
        let old = manifests.insert(name.to_owned(), Ok(records));
        if let Err(error) = self.sync_manifest_folder(&path) {
            // either may be there after the machine's end: hold the records of both
            if let (Some(Ok(old)), Some(Ok(new))) = (old, manifests.get_mut(name)) {
                new.extend(old);
            }
            return Err(error);
        }
        if old.is_some() {
            drop(old);
            self.try_writes_again();
        }
        Ok(())
    }

    /// Hold the blocks again that were kept under a name, if they were kept for `key`. The file is checked to have them
    /// where they should be; the bytes of each when it is read.
    ///
    /// # Errors
    /// [`DiskError::Vanished`] if nothing has this name; [`DiskError::Key`] if any part of the key differs; what else is
    /// wrong with the manifest or the file. Nothing is held then.
    pub fn restore(&self, name: &str, key: &ContentKey) -> Result<KeptRecords> {
        let HeldRecords { key: made_for, records: kept } = self.hold_kept(name)?;
        let check = || {
            for ((field, expected), (_, found)) in key.parts().into_iter().zip(made_for.parts()) {
                if expected != found {
                    let path = self.manifest(name)?;
                    let (expected, found) = (expected.to_owned(), found.to_owned());
                    return Err(DiskError::Key { path, field, expected, found });
                }
            }
            let records: Result<Vec<_>> =
                kept.ids.iter().map(|id| self.shared.record(*id)).collect();
            check_headers(&records?)
        };
        if let Err(error) = check() {
            kept.ids.iter().for_each(|id| drop(self.free(*id)));
            return Err(error);
        }
        Ok(kept)
    }

    /// Hold what is kept under a name, whatever for, and without a look at the file of records: key, note and blocks are those
    /// of one manifest, also where somebody writes another one meanwhile.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), but for the key and what is wrong with the file.
    pub(crate) fn hold_kept(&self, name: &str) -> Result<HeldRecords> {
        let (path, manifests) = (self.manifest(name)?, self.manifests());
        let held = match manifests.get(name) {
            None => return Err(DiskError::Vanished { path, doing: "restoring" }),
            Some(held) => held.as_ref().map_err(Clone::clone)?,
        };
        let manifest = read(&path)?;
        let held = &held[..manifest.records.len().min(held.len())];
        if !held.iter().map(|record| &record.entry).eq(&manifest.records) {
            let (wanted, found) = ("those the store holds".into(), "others".into());
            return Err(fault(&path, ("records", wanted, found)));
        }
        let ids = held.iter().map(|record| self.shared.hold(record)).collect();
        Ok(HeldRecords { key: manifest.key, records: KeptRecords { ids, note: manifest.note } })
    }

    /// The names under which blocks are kept, in order, those included that cannot be restored.
    pub fn kept_names(&self) -> Vec<String> {
        self.manifests().keys().cloned().collect()
    }

    /// Whether nothing that is kept under a name can be had now, though it is not damaged: discarding it gains no room.
    pub(crate) fn is_out_of_reach(&self, name: &str) -> bool {
        let manifests = self.manifests();
        manifests.get(name).is_some_and(|held| held.as_ref().is_err_and(|error| !error.is_damage()))
    }

    /// The same, those first that were used longest ago: [kept](Self::keep), or [touched](Self::touch).
    pub fn kept_by_use(&self) -> Vec<String> {
        let manifests = self.manifests();
        let used = |name: &String| {
            let path = self.manifest(name).ok()?;
            path.symlink_metadata().ok()?.modified().ok()
        };
        // what is wrong with one it was not used for
        let used = |(name, held): (&String, &Result<_>)| {
            (used(name).filter(|_| held.is_ok()), name.clone())
        };
        let mut names: Vec<(Option<SystemTime>, String)> = manifests.iter().map(used).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// What is kept under a name is used now.
    ///
    /// # Errors
    /// Another name; why that cannot be written down.
    pub fn touch(&self, name: &str) -> Result<()> {
        let path = self.manifest(name)?;
        let done = open(&path, false).and_then(|file| file.set_modified(SystemTime::now()));
        done.map_err(|error| DiskError::io(&path, "touching", &error))
    }

    /// What the blocks under a name were kept for.
    ///
    /// # Errors
    /// What is wrong with the manifest.
    pub fn kept_key(&self, name: &str) -> Result<ContentKey> {
        Ok(self.kept_about(name)?.key)
    }

    /// What is kept under a name, without holding it.
    ///
    /// # Errors
    /// What is wrong with the manifest.
    pub fn kept_about(&self, name: &str) -> Result<KeptAbout> {
        let (path, manifests) = (self.manifest(name)?, self.manifests());
        if let Some(Err(error)) = manifests.get(name) {
            return Err(error.clone());
        }
        let Manifest { key, note, records } = read(&path)?;
        let bytes = records.iter().map(|entry| entry.len).fold(0, u64::saturating_add);
        Ok(KeptAbout { key, note, blocks: records.len(), bytes })
    }

    /// Keep nothing under a name any more. Blocks that nothing else holds are let go of.
    ///
    /// # Errors
    /// [`DiskError::Vanished`] if nothing has this name; why its file cannot be removed.
    pub fn discard(&self, name: &str) -> Result<()> {
        let (path, mut manifests) = (self.manifest(name)?, self.manifests());
        let doing = "removing";
        if !manifests.contains_key(name) {
            return Err(DiskError::Vanished { path, doing });
        }
        match self.manifest_files.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(DiskError::io(&path, doing, &error));
            }
            _ => self.sync_manifest_folder(&path)?,
        }
        manifests.remove(name);
        self.try_writes_again();
        Ok(())
    }

    /// Where files are that stay; nowhere in a store that goes with its process.
    pub(crate) fn kept_folder(&self) -> PathBuf {
        self.folder.manifests().unwrap_or(Path::new("")).to_owned()
    }

    /// The manifest of a name.
    pub(crate) fn manifest(&self, name: &str) -> Result<PathBuf> {
        let Some(folder) = self.folder.manifests() else {
            let (wanted, found) = ("one opened to be kept".into(), "one of a process".into());
            return Err(fault(&self.shared.space.path, ("store", wanted, found)));
        };
        if !is_name(name) {
            let wanted = "1 to 64 letters, digits, '.', '_' and '-', no '.' first".into();
            return Err(fault(folder, ("name", wanted, format!("{name:?}"))));
        }
        Ok(folder.join(format!("{name}{MANIFEST}")))
    }

    /// Replaces a manifest by another, as a whole.
    fn replace_manifest(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let (files, beside) = (&self.manifest_files, beside(path));
        let written = files
            .write(&beside, bytes)
            .and_then(|()| files.sync(&beside))
            .and_then(|()| files.rename(&beside, path));
        written.map_err(|error| {
            // nothing reads it
            let _ = files.remove(&beside);
            DiskError::write(path, 0, bytes.len() as u64, &error)
        })
    }

    fn sync_manifest_folder(&self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent() else { return Ok(()) };
        let done = self.manifest_files.sync_folder(folder);
        done.map_err(|error| DiskError::io(folder, "syncing", &error))
    }

    fn manifests(&self) -> MutexGuard<'_, Manifests> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the file has all these records where they should be. Small reads are quicker side by side.
fn check_headers(records: &[Arc<Record>]) -> Result<()> {
    let check =
        |records: &[Arc<Record>]| records.iter().try_for_each(|record| record.check_header());
    let (first, rest) = records.split_at(records.len().min(64));
    check(first)?;
    std::thread::scope(|scope| {
        let parts = rest.chunks(rest.len().div_ceil(CHECKERS).max(1));
        let checkers: Vec<_> = parts.map(|part| scope.spawn(move || check(part))).collect();
        checkers.into_iter().try_for_each(|checker| checker.join().expect("reading does not panic"))
    })
}

/// Whether a manifest may have this name: it leads nowhere else.
pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

fn fault(path: &Path, (what, expected, found): Fault) -> DiskError {
    DiskError::Manifest { path: path.to_owned(), what, expected, found }
}

fn read(path: &Path) -> Result<Manifest> {
    let failed = |error: &std::io::Error| DiskError::io(path, "reading", error);
    let file = open(path, false).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    // a stranger's file may be of any length
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fault(path, ("length", format!("at most {MAX_BYTES}"), "more".into())));
    }
    Manifest::from_bytes(&bytes).map_err(|wrong| fault(path, wrong))
}

/// Where a manifest is written before it takes its name: no name begins so.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}"))
}

/// The manifests of a folder as they are read, or what is wrong with one; what was begun and not finished is removed.
pub(super) fn load(folder: &Path, pages: u64) -> Result<BTreeMap<String, Result<Vec<Entry>>>> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| DiskError::io(folder, "listing", &error))?;
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        match file.strip_suffix(MANIFEST) {
            Some(name) if is_name(name) => {
                let path = entry.path();
                let entries = read(&path).and_then(|manifest| check_ends(&path, manifest, pages));
                found.insert(name.to_owned(), entries);
            }
            Some(name) if name.strip_prefix('.').is_some_and(is_name) => {
                let _ = std::fs::remove_file(entry.path());
            }
            _ => {}
        }
    }
    refuse_overlaps(folder, &mut found);
    Ok(found)
}

/// The records of a manifest, if the file of records has so many pages.
fn check_ends(path: &Path, manifest: Manifest, pages: u64) -> Result<Vec<Entry>> {
    let end = manifest.records.iter().map(|entry| entry.first + entry.pages()).max();
    let (expected, found) = (end.unwrap_or(0) * PAGE as u64, pages * PAGE as u64);
    let path = path.with_file_name("records");
    if expected > found {
        Err(DiskError::Truncated { path, expected, found })
    } else {
        Ok(manifest.records)
    }
}

/// Two records in one place: no telling which manifest is right.
fn refuse_overlaps(folder: &Path, found: &mut BTreeMap<String, Result<Vec<Entry>>>) {
    let all = found.iter().filter_map(|(name, entries)| Some((name, entries.as_ref().ok()?)));
    let all = all.flat_map(|(name, entries)| entries.iter().map(move |entry| (*entry, name)));
    let mut all: Vec<(Entry, &String)> = all.collect();
    all.sort_unstable_by_key(|(entry, _)| (entry.first, entry.stamp));
    let mut wrong: Vec<String> = Vec::new();
    let mut furthest: Option<(Entry, &String)> = None;
    for (entry, name) in all {
        let end = |entry: &Entry| entry.first + entry.pages();
        if let Some((before, other)) = furthest.filter(|(b, _)| end(b) > entry.first && *b != entry)
        {
            wrong.extend([name.clone(), other.clone()]);
            furthest =
                Some(if end(&before) > end(&entry) { (before, other) } else { (entry, name) });
        } else {
            furthest = Some((entry, name));
        }
    }
    for name in wrong {
        let path = folder.join(format!("{name}{MANIFEST}"));
        let overlap = fault(&path, ("places of records", "apart".into(), "overlapping".into()));
        found.insert(name, Err(overlap));
    }
}

/// Hold the records that manifests name, each once.
pub(super) fn hold(
    found: BTreeMap<String, Result<Vec<Entry>>>,
    space: &Arc<RecordSpace>,
) -> Manifests {
    let mut records: BTreeMap<u64, Arc<Record>> = BTreeMap::new();
    let mut hold = |entry: Entry| {
        let new = || Arc::new(Record::new(entry, Arc::clone(space), None));
        Arc::clone(records.entry(entry.first).or_insert_with(new))
    };
    let mut held = |entries: Vec<Entry>| entries.into_iter().map(&mut hold).collect();
    found.into_iter().map(|(name, entries)| (name, entries.map(&mut held))).collect()
}

/// The runs of pages that nobody else may have, of a file of so many, in ascending order: those that manifests name, each once,
/// and all others where one cannot be read now, which may name them.
pub(super) fn runs(found: &BTreeMap<String, Result<Vec<Entry>>>, pages: u64) -> BTreeMap<u64, u64> {
    let entries = found.values().flatten().flatten();
    let mut runs: BTreeMap<u64, u64> = entries.map(|entry| (entry.first, entry.pages())).collect();
    if found.values().any(|one| one.as_ref().is_err_and(|error| !error.is_damage())) {
        let mut end = 0;
        let mut between = Vec::new();
        for (first, n) in runs.iter().map(|(first, n)| (*first, *n)).chain([(pages, 0)]) {
            if first > end {
                between.push((end, first - end));
            }
            end = first + n;
        }
        runs.extend(between);
    }
    runs
}

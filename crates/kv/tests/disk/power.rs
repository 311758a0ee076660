//! A machine that loses its power: of what was written since the last sync any part may be missing, and what was kept is whole.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use kv::{BlockStore, DiskOptions, ManifestFiles, ManifestMedium, RecordId, RecordMedium};
use testing::{Dice, mutations};

use crate::block;
use crate::kept::key;

/// What was done to a file.
enum Change {
    Write(u64, Vec<u8>),
    Cut(u64),
    Punch(Range<u64>),
}

/// Seeds of the blocks of what is kept under a name; `None`: nothing is.
type Kept = Option<Vec<u64>>;

/// A file as the process sees it, and what would survive; `None`: never synced.
struct Inode {
    now: Vec<u8>,
    safe: Option<Vec<u8>>,
}

/// A change of the names in a folder.
enum NameChange {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

impl NameChange {
    fn make(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            NameChange::Unlink(name) => drop(names.remove(name)),
        }
    }
}

/// The manifests of a folder: their names and bytes survive apart from each other.
#[derive(Default)]
struct Folder {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    safe_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync, of which a first part may survive.
    since: Vec<NameChange>,
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        change.make(&mut self.names);
        self.since.push(change);
    }

    fn write(&mut self, name: &str, bytes: &[u8]) {
        let inode = match self.names.get(name) {
            Some(inode) => *inode,
            None => {
                self.inodes.push(Inode { now: Vec::new(), safe: None });
                self.change(NameChange::Link(name.to_owned(), self.inodes.len() - 1));
                self.inodes.len() - 1
            }
        };
        self.inodes[inode].now = bytes.to_vec();
    }

    fn sync(&mut self, name: &str) {
        let inode = &mut self.inodes[self.names[name]];
        inode.safe = Some(inode.now.clone());
    }

    fn sync_names(&mut self) {
        self.since.drain(..).for_each(|change| change.make(&mut self.safe_names));
    }

    /// What another process finds when the power has gone: of bytes that were not synced any beginning, or what was there.
    fn found(&self, dice: &mut Dice) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.safe_names.clone();
        let survive = dice.below(self.since.len() + 1);
        self.since[..survive].iter().for_each(|change| change.make(&mut names));
        let bytes = |inode: &Inode, dice: &mut Dice| match &inode.safe {
            Some(safe) if *safe == inode.now || dice.below(2) == 0 => safe.clone(),
            _ => inode.now[..dice.below(inode.now.len() + 1)].to_vec(),
        };
        names.into_iter().map(|(name, inode)| (name, bytes(&self.inodes[inode], dice))).collect()
    }
}

/// A disk with a cache that is lost with the power.
struct Disk {
    /// Bytes that would survive.
    safe: Vec<u8>,
    /// What was done since they were written, of which any part may have come as far as that.
    since: Vec<Change>,
    /// What may be found under each name.
    allowed: BTreeMap<String, Vec<Kept>>,
    dice: Dice,
    /// Times that the power went.
    times: usize,
    manifests: Folder,
}

impl Change {
    fn make(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write(offset, bytes) => {
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[start..end].copy_from_slice(bytes);
            }
            Change::Cut(len) => to.truncate(*len as usize),
            Change::Punch(range) => {
                let end = (range.end as usize).min(to.len());
                to[(range.start as usize).min(end)..end].fill(0);
            }
        }
    }

    /// A part of it, page by page.
    fn make_part(&self, to: &mut Vec<u8>, dice: &mut Dice) {
        match self {
            Change::Write(offset, bytes) => {
                for (page, bytes) in bytes.chunks(4096).enumerate() {
                    if dice.below(2) == 0 {
                        let at = offset + 4096 * page as u64;
                        Change::Write(at, bytes.to_vec()).make(to);
                    }
                }
            }
            other if dice.below(2) == 0 => other.make(to),
            _ => {}
        }
    }
}

impl Disk {
    /// Now and then the power goes: what another process finds on the disk then.
    fn perhaps_lose_power(&mut self) {
        if self.dice.below(5) > 0 {
            return;
        }
        self.times += 1;
        // a writer that panicked would be waited for
        if catch_unwind(AssertUnwindSafe(|| self.lose_power())).is_err() {
            std::process::abort();
        }
    }

    fn lose_power(&mut self) {
        let mut records = self.safe.clone();
        self.since.iter().for_each(|change| change.make_part(&mut records, &mut self.dice));
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let to = dir.path().join("rooflight-kept");
        std::fs::create_dir(&to).expect("it is new");
        for (name, bytes) in self.manifests.found(&mut self.dice) {
            std::fs::write(to.join(name), bytes).expect("there is room");
        }
        std::fs::write(to.join("records"), &records).expect("there is room");
        for more in [0, 3] {
            let store = open(dir.path(), |file| file, Box::new(ManifestFiles));
            self.allowed.iter().for_each(|(name, allowed)| check(&store, name, allowed));
            // what comes next goes where nobody is
            let new: Vec<_> = (0..more).map(|seed| put(&store, 9_000_000 + seed)).collect();
            store.flush().expect("there is room");
            self.allowed.iter().for_each(|(name, allowed)| check(&store, name, allowed));
            new.iter().for_each(|id| store.free(*id).expect("it is held"));
        }
    }
}

fn open(
    dir: &Path,
    layer: impl FnOnce(Box<dyn RecordMedium>) -> Box<dyn RecordMedium>,
    manifests: Box<dyn ManifestMedium>,
) -> BlockStore {
    let options = DiskOptions { keep: true, readers: 1, ..DiskOptions::default() };
    BlockStore::open_over(dir, options, layer, manifests).expect("a store opens")
}

fn len(seed: u64) -> usize {
    (seed * 7919 % 13_000) as usize
}

fn put(store: &BlockStore, seed: u64) -> RecordId {
    store.put(&block(len(seed), seed)).expect("there is room")
}

/// What is kept under a name is one of what may be, every byte of it.
fn check(store: &BlockStore, name: &str, allowed: &[Kept]) {
    let found = store.restore(name, &key()).ok().map(|kept| {
        let bytes = kept.ids.iter().map(|id| store.take(*id).expect("it is whole").to_vec());
        let bytes: Vec<Vec<u8>> = bytes.collect();
        kept.ids.iter().for_each(|id| store.free(*id).expect("it is held"));
        bytes
    });
    let blocks = |kept: &Kept| -> Option<Vec<Vec<u8>>> {
        Some(kept.as_ref()?.iter().map(|seed| block(len(*seed), *seed)).collect())
    };
    let is_allowed = allowed.iter().any(|kept| blocks(kept) == found);
    assert!(is_allowed, "{name}: {allowed:?} may be there, found {:?}", found.map(|f| f.len()));
}

/// The file of a store whose disk loses its power.
struct Volatile(Box<dyn RecordMedium>, Arc<Mutex<Disk>>);

impl Volatile {
    fn change(&self, change: Change) {
        let mut disk = self.1.lock().expect("no test panicked");
        disk.since.push(change);
        disk.perhaps_lose_power();
    }
}

impl RecordMedium for Volatile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write(offset, bytes.to_vec()));
        self.0.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.change(Change::Cut(bytes));
        self.0.cut(bytes)
    }

    fn punch(&self, bytes: Range<u64>) -> io::Result<()> {
        self.change(Change::Punch(bytes.clone()));
        self.0.punch(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.1.lock().expect("no test panicked");
        disk.perhaps_lose_power();
        for change in std::mem::take(&mut disk.since) {
            change.make(&mut disk.safe);
        }
        drop(disk);
        self.0.sync()
    }
}

/// The manifests of the same store.
struct VolatileManifests(Arc<Mutex<Disk>>);

impl VolatileManifests {
    /// Does something to a file, and to what the disk has of it.
    fn change(
        &self,
        path: &Path,
        on_disk: impl FnOnce(&mut Folder, &str),
        really: impl FnOnce(ManifestFiles) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut disk = self.0.lock().expect("no test panicked");
        let name = path.file_name().expect("manifests have names").to_string_lossy();
        on_disk(&mut disk.manifests, &name);
        disk.perhaps_lose_power();
        drop(disk);
        really(ManifestFiles)
    }
}

impl ManifestMedium for VolatileManifests {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(path, |disk, name| disk.write(name, bytes), |files| files.write(path, bytes))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.change(path, Folder::sync, |files| files.sync(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let new = to.file_name().expect("manifests have names").to_string_lossy().into_owned();
        let rename = |disk: &mut Folder, old: &str| {
            disk.change(NameChange::Rename(old.to_owned(), new));
        };
        self.change(from, rename, |files| files.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let unlink =
            |disk: &mut Folder, name: &str| disk.change(NameChange::Unlink(name.to_owned()));
        self.change(path, unlink, |files| files.remove(path))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.change(folder, |disk, _| disk.sync_names(), |files| files.sync_folder(folder))
    }
}

/// A history of what is kept, over restarts; how often the power went.
fn history(seed: u64) -> usize {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut dice = Dice::new(seed);
    let disk = Arc::new(Mutex::new(Disk {
        safe: Vec::new(),
        since: Vec::new(),
        allowed: BTreeMap::new(),
        dice: Dice::new(seed + 1),
        times: 0,
        manifests: Folder::default(),
    }));
    let layer = |file: Box<dyn RecordMedium>| {
        if file.size().is_ok_and(|size| size == 0) {
            // nothing was to be kept, and it is a new file
            let mut disk = disk.lock().expect("no test panicked");
            disk.safe.clear();
            disk.since.clear();
        }
        Box::new(Volatile(file, Arc::clone(&disk))) as Box<dyn RecordMedium>
    };
    let may_be = |name: &str, kept: Vec<Kept>| {
        disk.lock().expect("no test panicked").allowed.insert(name.to_owned(), kept);
    };
    let manifests = || Box::new(VolatileManifests(Arc::clone(&disk))) as Box<dyn ManifestMedium>;
    let mut store = open(dir.path(), layer, manifests());
    let mut held: Vec<(RecordId, u64)> = Vec::new();
    let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
    for action in 0..60 {
        let name = format!("n{}", dice.below(3));
        let old = kept.get(&name).cloned().flatten();
        match dice.below(10) {
            0..=3 => {
                let block = seed * 1000 + action;
                held.push((put(&store, block), block));
            }
            4 if !held.is_empty() => {
                let (id, _) = held.swap_remove(dice.below(held.len()));
                store.free(id).expect("it is held");
            }
            5..=7 => {
                let some: Vec<_> = held.iter().filter(|_| dice.below(3) > 0).copied().collect();
                let ids: Vec<_> = some.iter().map(|(id, _)| *id).collect();
                let new = Some(some.iter().map(|(_, seed)| *seed).collect());
                may_be(&name, vec![old, new.clone()]);
                store.keep(&name, &key(), &ids, &[]).expect("there is room");
                may_be(&name, vec![new.clone()]);
                kept.insert(name, new);
            }
            8 if old.is_some() => {
                // pages leave the file when it is gone
                may_be(&name, vec![old, None]);
                store.discard(&name).expect("it is there");
                may_be(&name, vec![None]);
                kept.insert(name, None);
            }
            _ => {
                drop(store);
                held.clear();
                store = open(dir.path(), layer, manifests());
            }
        }
    }
    drop(store);
    disk.lock().expect("no test panicked").times
}

#[test]
fn what_was_kept_survives_the_loss_of_power() {
    let (histories, mut times) = (mutations(12), 0);
    for seed in 1..=histories {
        times += history(seed);
    }
    testing::covered(&format!("the power went {times} times in {histories} histories"));
    assert!(times as u64 > 5 * histories);
}

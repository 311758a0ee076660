//! Blocks on disk, against a map in memory and with everything that can go wrong beneath.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kv::{BlockStore, DiskError, DiskOptions, RecordId, RecordMedium};
use proptest::prelude::*;
use testing::Dice;

use crate::block;

/// The one file of records below a folder.
fn records(dir: &Path) -> PathBuf {
    let folders = std::fs::read_dir(dir).expect("it is there").flatten().map(|entry| entry.path());
    let mut files = folders.map(|folder| folder.join("records")).filter(|file| file.exists());
    let file = files.next().expect("a store is open");
    assert_eq!(files.next(), None);
    file
}

fn read(store: &BlockStore, id: RecordId) -> Result<Vec<u8>, DiskError> {
    let mut out = vec![0xA5; store.block_len(id)?];
    store.get(id, &mut out)?;
    Ok(out)
}

#[derive(Clone, Debug)]
enum Action {
    Put(usize),
    Get(prop::sample::Index),
    Free(prop::sample::Index),
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    let pages = (0usize..4, 0usize..3).prop_map(|(pages, more)| pages * 4096 + more);
    prop_oneof![
        4 => prop_oneof![pages, 0usize..20_000].prop_map(Action::Put),
        4 => any::<prop::sample::Index>().prop_map(Action::Get),
        3 => any::<prop::sample::Index>().prop_map(Action::Free),
        1 => Just(Action::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is put and freed, each block that is held reads as it was, and the file stays within its bound.
    #[test]
    fn histories_match_a_map(
        actions in proptest::collection::vec(action(), 1..120),
        max_pages in prop_oneof![Just(None), (1u64..40).prop_map(Some)],
        queue_bytes in prop_oneof![Just(0usize), Just(20_000), Just(1 << 20)],
        direct in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let max_bytes = max_pages.map(|pages| pages * 4096);
        let options = DiskOptions { max_bytes, queue_bytes, direct, ..DiskOptions::default() };
        let store = BlockStore::open(dir.path(), options).unwrap();
        let mut model: HashMap<RecordId, Vec<u8>> = HashMap::new();
        let mut ids: Vec<RecordId> = Vec::new();
        for (seed, action) in actions.into_iter().enumerate() {
            match action {
                Action::Put(len) => {
                    let bytes = block(len, seed as u64);
                    match store.put(&bytes) {
                        Ok(id) => {
                            prop_assert!(model.insert(id, bytes).is_none());
                            ids.push(id);
                        }
                        Err(DiskError::Full { most, taken, wanted, .. }) => {
                            prop_assert_eq!(Some(most), max_bytes);
                            // one that was freed while it was being written may have gone since
                            prop_assert!(taken >= store.stats().bytes);
                            prop_assert_eq!(wanted, 4096 + (len as u64).next_multiple_of(4096));
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                Action::Get(which) if !ids.is_empty() => {
                    let id = ids[which.index(ids.len())];
                    match model.get(&id) {
                        Some(bytes) => prop_assert_eq!(&read(&store, id).unwrap(), bytes),
                        None => assert!(matches!(read(&store, id), Err(DiskError::Unknown { .. }))),
                    }
                }
                Action::Free(which) if !ids.is_empty() => {
                    let id = ids[which.index(ids.len())];
                    prop_assert_eq!(store.free(id).is_ok(), model.remove(&id).is_some());
                }
                Action::Get(_) | Action::Free(_) => {}
                Action::Flush => {
                    store.flush().unwrap();
                    let stats = store.stats();
                    prop_assert_eq!((stats.queued_writes, stats.queued_bytes), (0, 0));
                }
            }
            let stats = store.stats();
            let pages = |bytes: &Vec<u8>| 4096 + bytes.len().next_multiple_of(4096);
            let held: usize = model.values().map(pages).sum();
            // one that is being written while it is freed goes a moment later
            prop_assert!(stats.bytes >= held as u64 && stats.records == model.len());
            prop_assert!(max_bytes.is_none_or(|most| stats.file_bytes <= most));
            prop_assert!(stats.queued_bytes <= queue_bytes.max(8 * 4096), "{:?}", stats);
            let size = records(dir.path()).metadata().unwrap().len();
            prop_assert!(max_bytes.is_none_or(|most| size <= most));
        }
        store.flush().unwrap();
        for (id, bytes) in &model {
            prop_assert_eq!(&read(&store, *id).unwrap(), bytes);
        }
        drop(store);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays");
    }
}

#[test]
fn pages_of_freed_blocks_are_used_again_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::open(dir.path(), DiskOptions::default()).unwrap();
    let mut last = Vec::new();
    for round in 0..20 {
        let ids: Vec<_> = (0..40).map(|i| store.put(&block(60_000 + i, round)).unwrap()).collect();
        last.drain(..).for_each(|id| store.free(id).unwrap());
        last = ids;
    }
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!(stats.bytes, 40 * 65_536);
    assert!(stats.file_bytes <= 3 * stats.bytes, "{stats:?}");
    // one that was freed before it was written may have had the last place
    assert!(records(dir.path()).metadata().unwrap().len() <= stats.file_bytes);
    let large = store.put(&block(40 << 20, 1)).unwrap();
    store.flush().unwrap();
    store.free(large).unwrap();
    assert!(records(dir.path()).metadata().unwrap().len() <= stats.file_bytes + (16 << 20));
    last.into_iter().for_each(|id| store.free(id).unwrap());
    assert_eq!((store.stats().bytes, store.stats().records), (0, 0));
}

#[test]
fn every_flipped_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { direct: false, ..DiskOptions::default() };
    let store = BlockStore::open(dir.path(), options).unwrap();
    let blocks: Vec<Vec<u8>> = (0..8).map(|i| block(10_000 + 777 * i, i as u64)).collect();
    let ids: Vec<RecordId> = blocks.iter().map(|bytes| store.put(bytes).unwrap()).collect();
    store.flush().unwrap();
    let file = File::options().read(true).write(true).open(records(dir.path())).unwrap();
    // where each block is, from its header
    let whole = std::fs::read(records(dir.path())).unwrap();
    let is_at = |bytes: &[u8]| whole.windows(bytes.len()).position(|w| w == bytes).unwrap();
    let mut dice = Dice::new(5);
    for _ in 0..2000 {
        let which = dice.below(blocks.len());
        let bytes = &blocks[which];
        let at = dice.below(bytes.len());
        let place = (is_at(&bytes[..64]) + at) as u64;
        let flip = 1 + dice.below(255) as u8;
        file.write_all_at(&[bytes[at] ^ flip], place).unwrap();
        let mut out = vec![7; bytes.len()];
        match store.get(ids[which], &mut out) {
            Err(DiskError::Checksum { expected, found, .. }) => assert_ne!(expected, found),
            other => panic!("byte {at} of block {which} by {flip}: {other:?}"),
        }
        assert!(out.iter().all(|b| *b == 7), "nothing wrong is handed out");
        file.write_all_at(&bytes[at..=at], place).unwrap();
    }
    for (id, bytes) in ids.iter().zip(&blocks) {
        assert_eq!(&read(&store, *id).unwrap(), bytes);
    }
}

#[test]
fn a_cut_file_and_a_vanished_folder_are_told() {
    for direct in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = DiskOptions { direct, ..DiskOptions::default() };
        let store = BlockStore::open(dir.path(), options).unwrap();
        let (one, two) = (block(9000, 1), block(9000, 2));
        let (a, b) = (store.put(&one).unwrap(), store.put(&two).unwrap());
        store.flush().unwrap();
        let path = records(dir.path());
        let size = path.metadata().unwrap().len();
        for cut in [size - 1, size - 4096, size / 2 + 1, size / 2] {
            File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
            let want = DiskError::Truncated { path: path.clone(), expected: size, found: cut };
            assert_eq!(read(&store, b), Err(want));
            assert_eq!(read(&store, a).unwrap(), one);
        }
        // who removes a file that is in use takes nothing from its user
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(read(&store, a).unwrap(), one);
        let c = store.put(&two).unwrap();
        store.flush().unwrap();
        assert_eq!(read(&store, c).unwrap(), two);
    }
}

#[test]
fn what_the_caller_gets_wrong_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::open(dir.path(), DiskOptions::default()).unwrap();
    let id = store.put(&block(100, 1)).unwrap();
    let error = store.get(id, &mut [0; 99]).unwrap_err();
    assert_eq!(error.to_string(), "block of 100 bytes, buffer of 99");
    store.free(id).unwrap();
    let error = store.free(id).unwrap_err().to_string();
    assert_eq!(error, format!("{}: record 0 is not held", records(dir.path()).display()));

    let file = dir.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let error = BlockStore::open(&file, DiskOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: making the folder", file.display())), "{error}");
    let error = BlockStore::open(Path::new("/proc/no/such"), DiskOptions::default()).unwrap_err();
    assert!(matches!(error, DiskError::Vanished { .. }), "{error}");
}

/// Writes fail as a full disk's do while `is_full`, after half of the bytes.
struct FullDisk(Box<dyn RecordMedium>, Arc<AtomicBool>);

impl RecordMedium for FullDisk {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            self.0.write_all_at(&bytes[..bytes.len() / 8192 * 4096], offset)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.0.cut(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn a_full_disk_loses_nothing_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let options = DiskOptions { queue_bytes: 5 * 12_288, ..DiskOptions::default() };
    let full = Arc::clone(&is_full);
    let store =
        BlockStore::open_with(dir.path(), options, |file| Box::new(FullDisk(file, full))).unwrap();
    let mut held = Vec::new();
    let mut refused = 0;
    for seed in 0..200 {
        let bytes = block(8000, seed);
        match store.put(&bytes) {
            Ok(id) => held.push((id, bytes)),
            Err(DiskError::NoSpace { wanted, offset, .. }) => {
                assert_eq!((wanted, offset), (12_288, 0), "the first in the queue");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(store.stats().queued_bytes <= 5 * 12_288);
    }
    assert!((1..=5).contains(&held.len()) && held.len() + refused == 200, "as memory may hold");
    assert!(matches!(store.flush(), Err(DiskError::NoSpace { .. })));
    for (id, bytes) in &held {
        assert_eq!(&read(&store, *id).unwrap(), bytes, "from memory");
    }
    let (gone, _) = held.remove(0);
    store.free(gone).unwrap();
    let left = held.len() as u64;
    is_full.store(false, Ordering::SeqCst);
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!((stats.queued_bytes, stats.bytes_written), (0, left * 12_288), "freed ones never");
    for (id, bytes) in &held {
        assert_eq!(&read(&store, *id).unwrap(), bytes, "from the file");
    }
}

/// Writes take five milliseconds.
struct SlowWrites(Box<dyn RecordMedium>);

impl RecordMedium for SlowWrites {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(5));
        self.0.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.0.cut(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn a_flush_waits_for_what_was_put_before_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { queue_bytes: 20 * 8192, ..DiskOptions::default() };
    let store = BlockStore::open_with(dir.path(), options, |file| Box::new(SlowWrites(file)));
    let store = store.unwrap();
    for seed in 0..10 {
        store.put(&block(4096, seed)).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 10..200 {
                store.put(&block(4096, seed)).unwrap();
            }
        });
        while store.stats().records < 25 {
            std::thread::yield_now();
        }
        store.flush().unwrap();
        let stats = store.stats();
        assert!(stats.bytes_written >= 25 * 8192, "{stats:?}");
        assert!(stats.queued_writes > 0 && stats.records < 150, "{stats:?}");
    });
    assert!(store.stats().put_wait > std::time::Duration::from_millis(100));
}

#[test]
fn threads_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { queue_bytes: 100_000, ..DiskOptions::default() };
    let store = BlockStore::open(dir.path(), options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let store = &store;
            scope.spawn(move || {
                let mut dice = Dice::new(thread + 1);
                let mut held: Vec<(RecordId, usize, u64)> = Vec::new();
                for round in 0..150 {
                    let (len, seed) = (dice.below(30_000), thread * 1000 + round);
                    held.push((store.put(&block(len, seed)).unwrap(), len, seed));
                    let (id, len, seed) = held[dice.below(held.len())];
                    assert_eq!(read(store, id).unwrap(), block(len, seed));
                    if held.len() > 10 {
                        let (id, ..) = held.swap_remove(dice.below(held.len()));
                        store.free(id).unwrap();
                    }
                }
                for (id, len, seed) in held {
                    assert_eq!(read(store, id).unwrap(), block(len, seed));
                }
            });
        }
    });
    assert_eq!(store.stats().records, 60);
}

/// Of the folders beside a store's own those go that processes left which live no more, and no others.
#[test]
fn names_of_folders_are_recognized() {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let others = [
        "run-1-0123456789abcdef",
        "rooflight-run-1",
        "rooflight-run--0123456789abcdef",
        "rooflight-run-1-0123",
        "rooflight-run-x-0123456789abcdef",
        "rooflight-kept",
    ];
    let left = "rooflight-run-1-0123456789abcdef";
    for name in others.into_iter().chain([left]) {
        std::fs::create_dir(dir.path().join(name)).expect("there is room");
    }
    let store = BlockStore::open(dir.path(), DiskOptions::default()).expect("there is room");
    assert_eq!(store.stats().swept_folders, 1);
    assert!(!dir.path().join(left).exists());
    for other in others {
        assert!(dir.path().join(other).is_dir(), "{other}");
    }
}

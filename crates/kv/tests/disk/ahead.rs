//! Reading ahead: what is counted, what memory it takes, and that bytes are right whoever read them.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kv::{BlockStore, DiskError, DiskOptions, RecordId, RecordMedium};
use proptest::prelude::*;

use crate::block;

/// A disk that takes so many milliseconds for each read, and counts them.
struct SlowDisk(Box<dyn RecordMedium>, Arc<AtomicU64>, Arc<AtomicU64>);

impl RecordMedium for SlowDisk {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(self.1.load(Ordering::SeqCst)));
        self.2.fetch_add(1, Ordering::SeqCst);
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
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

/// A store of `n` written blocks of 8,192 bytes on a slow disk; milliseconds of a read, and reads.
struct Slow {
    store: BlockStore,
    ids: Vec<RecordId>,
    millis: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    _dir: tempfile::TempDir,
}

const BYTES: usize = 8192;

fn slow(n: u64, readers: usize, ahead_bytes: usize) -> Slow {
    let _dir = tempfile::tempdir().expect("a temporary folder can be made");
    let (millis, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (time, count) = (Arc::clone(&millis), Arc::clone(&reads));
    let options = DiskOptions { readers, ahead_bytes, ..DiskOptions::default() };
    let disk = |file| -> Box<dyn RecordMedium> { Box::new(SlowDisk(file, time, count)) };
    let store = BlockStore::open_with(_dir.path(), options, disk).expect("a store opens");
    let ids = (0..n).map(|seed| store.put(&block(BYTES, seed)).expect("there is room")).collect();
    store.flush().expect("there is room");
    Slow { store, ids, millis, reads, _dir }
}

/// Wait until nothing is to be read any more.
fn settle(store: &BlockStore) {
    let since = Instant::now();
    while store.stats().queued_reads > 0 {
        assert!(since.elapsed() < Duration::from_secs(60), "{store:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_slow_disk_is_waited_for_by_nobody_who_asked_in_time() {
    let slow = slow(12, 4, 1 << 20);
    slow.millis.store(20, Ordering::SeqCst);
    let (first, last) = slow.ids.split_at(8);
    assert_eq!(slow.store.read_ahead(first), 8);
    settle(&slow.store);
    for (seed, id) in first.iter().enumerate() {
        assert_eq!(*slow.store.take(*id).unwrap(), block(BYTES, seed as u64));
    }
    let stats = slow.store.stats();
    assert_eq!((stats.ahead_hits, stats.ahead_late, stats.ahead_misses), (8, 0, 0));
    assert!(stats.get_wait < Duration::from_millis(8 * 20), "{stats:?}");
    assert_eq!((stats.ahead_bytes, stats.bytes_read), (0, 8 * BYTES as u64));

    // asked for too late, and not at all
    slow.millis.store(200, Ordering::SeqCst);
    assert_eq!(slow.store.read_ahead(&last[..1]), 1);
    for (seed, id) in (8..).zip(last) {
        let mut out = vec![0; BYTES];
        slow.store.get(*id, &mut out).unwrap();
        assert_eq!(out, block(BYTES, seed));
    }
    let stats = slow.store.stats();
    assert_eq!((stats.ahead_hits, stats.ahead_late, stats.ahead_misses), (8, 1, 3));
    assert!(stats.get_wait >= Duration::from_millis(3 * 200), "{stats:?}");
    assert_eq!(slow.reads.load(Ordering::SeqCst), 12, "each block once");
}

#[test]
fn memory_is_bounded_and_newer_requests_come_first() {
    let slow = slow(10, 2, 4 * BYTES + 100);
    let (store, ids) = (&slow.store, &slow.ids);
    assert_eq!(store.read_ahead(ids), 4, "a request does not push itself out");
    settle(store);
    assert_eq!(store.stats().ahead_bytes, 4 * BYTES);
    // 2 and 3 are there and stay, 0 and 1 go for 5 and 6
    assert_eq!(store.read_ahead(&[ids[2], ids[3], ids[5], ids[6], ids[7]]), 4);
    settle(store);
    let stats = store.stats();
    assert_eq!((stats.ahead_bytes, stats.ahead_wasted), (4 * BYTES, 2));
    for seed in [2, 3, 5, 6, 0, 7] {
        assert_eq!(*store.take(ids[seed]).unwrap(), block(BYTES, seed as u64));
    }
    let stats = store.stats();
    assert_eq!((stats.ahead_hits, stats.ahead_late, stats.ahead_misses), (4, 0, 2));
    assert_eq!((stats.ahead_bytes, slow.reads.load(Ordering::SeqCst)), (0, 8));
}

#[test]
fn what_is_in_memory_already_is_not_read() {
    let slow = slow(2, 0, 1 << 20);
    assert_eq!(slow.store.read_ahead(&slow.ids), 0, "nobody reads ahead");
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::open_with(dir.path(), DiskOptions::default(), |file| {
        Box::new(NeverWrites(file))
    });
    let store = store.unwrap();
    let id = store.put(&block(100, 1)).unwrap();
    assert_eq!(store.read_ahead(&[id]), 1);
    assert_eq!(*store.take(id).unwrap(), block(100, 1));
    assert_eq!((store.stats().queued_reads, store.stats().bytes_read), (0, 0));
    // who holds bytes that are to be written keeps nobody from putting more
    let held = store.take(id).unwrap();
    store.free(id).unwrap();
    let start = Instant::now();
    // the writer may be at it
    while store.stats().queued_bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "what nobody has is queued");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*held, block(100, 1));
}

struct NeverWrites(Box<dyn RecordMedium>);

impl RecordMedium for NeverWrites {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Other.into())
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
fn what_was_read_wrong_ahead_is_told_to_who_wants_it() {
    let slow = slow(3, 1, 1 << 20);
    let folder = std::fs::read_dir(slow._dir.path()).unwrap().flatten().map(|entry| entry.path());
    let file = folder.map(|folder| folder.join("records")).find(|file| file.exists()).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(64).position(|w| *w == block(BYTES, 1)[..64]).unwrap();
    bytes[at + 5000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(slow.store.read_ahead(&slow.ids), 3);
    settle(&slow.store);
    assert_eq!(*slow.store.take(slow.ids[0]).unwrap(), block(BYTES, 0));
    assert!(matches!(slow.store.take(slow.ids[1]), Err(DiskError::Checksum { .. })));
    assert_eq!(*slow.store.take(slow.ids[2]).unwrap(), block(BYTES, 2));
}

#[test]
fn pages_of_a_block_that_is_freed_while_it_is_read_wait_for_the_reader() {
    let slow = slow(4, 4, 1 << 20);
    slow.millis.store(5, Ordering::SeqCst);
    let mut ids = slow.ids.clone();
    for round in 1..40u64 {
        assert_eq!(slow.store.read_ahead(&ids), 4);
        ids.drain(..).for_each(|id| slow.store.free(id).unwrap());
        for seed in 0..4 {
            ids.push(slow.store.put(&block(BYTES, round * 10 + seed)).unwrap());
        }
        slow.store.flush().unwrap();
        for (seed, id) in (round * 10..).zip(&ids) {
            assert_eq!(*slow.store.take(*id).unwrap(), block(BYTES, seed));
        }
    }
    settle(&slow.store);
    // a reader holds what was freed until it is done with it
    let all_given_back = (4 * (4096 + BYTES as u64), 0);
    let since = Instant::now();
    loop {
        let stats = slow.store.stats();
        if (stats.bytes, stats.ahead_bytes) == all_given_back {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Clone, Debug)]
enum Action {
    Put(usize),
    Free(prop::sample::Index),
    Ask(Vec<prop::sample::Index>),
    Take(prop::sample::Index),
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0usize..20_000).prop_map(Action::Put),
        1 => which().prop_map(Action::Free),
        2 => proptest::collection::vec(which(), 0..8).prop_map(Action::Ask),
        4 => which().prop_map(Action::Take),
        1 => Just(Action::Flush),
    ]
}

fn history(dir: &Path, options: DiskOptions, actions: Vec<Action>) {
    let store = BlockStore::open(dir, options).expect("a store opens");
    let mut model: HashMap<RecordId, Vec<u8>> = HashMap::new();
    let mut ids: Vec<RecordId> = Vec::new();
    let mut taken = Vec::new();
    for (seed, action) in actions.into_iter().enumerate() {
        match action {
            Action::Put(len) => {
                let bytes = block(len, seed as u64);
                let id = store.put(&bytes).expect("there is room");
                ids.push(id);
                model.insert(id, bytes);
            }
            Action::Flush => store.flush().expect("there is room"),
            _ if ids.is_empty() => {}
            Action::Free(which) => {
                let id = ids[which.index(ids.len())];
                assert_eq!(store.free(id).is_ok(), model.remove(&id).is_some());
            }
            Action::Ask(which) => {
                let asked: Vec<_> = which.iter().map(|which| ids[which.index(ids.len())]).collect();
                let held = asked.iter().filter(|id| model.contains_key(id)).count();
                assert!(store.read_ahead(&asked) <= held);
            }
            Action::Take(which) => {
                let id = ids[which.index(ids.len())];
                match (store.take(id), model.get(&id)) {
                    (Ok(bytes), Some(want)) => {
                        assert_eq!(&*bytes, want);
                        taken.push((bytes, want.clone()));
                    }
                    (Err(DiskError::Unknown { .. }), None) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(store.stats().ahead_bytes <= options.ahead_bytes);
        if taken.len() > 3 {
            let (bytes, want) = taken.remove(0);
            assert_eq!(*bytes, want, "a block that is held stays as it is");
        }
    }
    drop(store);
    // and outlives the store
    assert!(taken.iter().all(|(bytes, want)| **bytes == *want));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is asked for, taken and freed, the bytes are those that were put.
    #[test]
    fn histories_match_a_map(
        actions in proptest::collection::vec(action(), 1..150),
        readers in 0usize..4,
        ahead_bytes in prop_oneof![Just(0usize), Just(30_000), Just(1 << 20)],
        queue_bytes in prop_oneof![Just(0usize), Just(1 << 20)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = DiskOptions { readers, ahead_bytes, queue_bytes, ..DiskOptions::default() };
        history(dir.path(), options, actions);
    }
}

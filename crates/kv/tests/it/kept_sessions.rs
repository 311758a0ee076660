//! Sessions on disk beside others' doings: names that are written anew meanwhile, blocks that are not those that were kept,
//! manifests that cannot be read now.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kv::{
    BlockPool, BlockStore, ContentKey, DiskError, DiskOptions, Error, Heap, SessionStore,
    SessionStoreOptions, StepPlace, TableSpec, Tables,
};

fn specs() -> Arc<[TableSpec]> {
    [TableSpec::all(8, 128), TableSpec::all(4, 64)].into()
}

fn key() -> ContentKey {
    ContentKey { model: "m".into(), ..ContentKey::default() }
}

fn text(seed: u32, n: u32) -> Vec<u32> {
    (0..n).map(|i| i * 7 % 50 + seed).collect()
}

fn empty(pool: &BlockPool<Heap>) -> Tables<Heap> {
    Tables::with_states(pool, specs(), [].into(), 400, None)
}

fn session(pool: &BlockPool<Heap>, tokens: &[u32]) -> Tables<Heap> {
    let mut tables = empty(pool);
    tables.prepare_step(tokens.len(), StepPlace::default(), &mut || false).unwrap();
    tables.extend(tokens).unwrap();
    tables.commit(tokens.len()).unwrap();
    tables
}

fn open(dir: &Path) -> SessionStore {
    SessionStore::open(dir, SessionStoreOptions { max_bytes: None, lets_go: true }).unwrap()
}

fn keep(store: &SessionStore, name: &str, tables: &Tables<Heap>) {
    store.keep((name, &key()), tables, &[], &|| true).unwrap();
}

fn restore(store: &SessionStore, name: &str, wanted: &[u32]) -> kv::Result<usize> {
    let pool = BlockPool::new(Heap, None);
    let mut back = empty(&pool);
    let part = store.restore((name, &key()), &mut back, wanted, &mut || false, &|| true)?;
    assert_eq!(back.tokens(), &wanted[..part.positions]);
    Ok(part.positions)
}

/// What stands in a manifest and the records that it names are those of one write, whoever writes meanwhile.
#[test]
fn a_name_that_is_written_anew_is_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (open(dir.path()), BlockPool::new(Heap, None));
    let (short, long) = (text(1, 30), text(2, 300));
    let sessions = [session(&pool, &short), session(&pool, &long)];
    keep(&store, "it", &sessions[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..200 {
                keep(&store, "it", &sessions[i % 2]);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let found = [restore(&store, "it", &short), restore(&store, "it", &long)];
            for (found, whole) in found.into_iter().zip([30, 300]) {
                let found = found.unwrap();
                assert!(found == 0 || found == whole, "{found} of {whole}");
            }
            store.part("it", (&specs(), &[]), 300).unwrap();
        }
    });
}

/// A manifest over records of other lengths: refused before any of them is read.
#[test]
fn blocks_of_other_lengths_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let pool = BlockPool::new(Heap, None);
    keep(&open(dir.path()), "it", &session(&pool, &text(1, 60)));
    let options = DiskOptions { keep: true, ..DiskOptions::default() };
    let blocks = BlockStore::open(dir.path(), options).unwrap();
    let about = blocks.kept_about("it").unwrap();
    let large = vec![0; 1 << 20];
    let ids: Vec<_> = (0..about.blocks).map(|_| blocks.put(&large).unwrap()).collect();
    blocks.keep("it", &about.key, &ids, &about.note).unwrap();
    drop(blocks);
    let store = open(dir.path());
    let wrong = DiskError::Length { expected: 128, found: 1 << 20 };
    assert!(wrong.is_damage());
    assert_eq!(store.part("it", (&specs(), &[]), 60), Err(wrong.clone()));
    assert_eq!(restore(&store, "it", &text(1, 60)), Err(Error::Disk(wrong)));
}

/// What is on its way to disk needs no tables any more; what does not get there leaves what there was.
#[test]
fn tables_may_go_before_the_disk_has_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (open(dir.path()), BlockPool::new(Heap, None));
    let (first, second) = (text(1, 60), text(2, 80));
    let begin = |tokens: &[u32]| {
        let tables = session(&pool, tokens);
        store.begin(("it", &key()), &tables, &[], &|| true).unwrap()
    };
    let put = begin(&first);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(put.finish().unwrap().positions, 60);
    drop(begin(&second));
    assert_eq!(restore(&store, "it", &first), Ok(60));
    assert_eq!(begin(&second).finish().unwrap().positions, 80);
    assert_eq!(restore(&store, "it", &second), Ok(80));
}

/// A manifest that a later version wrote: told as no damage, and nothing of it is given to others.
#[test]
fn what_cannot_be_read_now_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let pool = BlockPool::new(Heap, None);
    {
        let store = open(dir.path());
        keep(&store, "it", &session(&pool, &text(1, 90)));
        keep(&store, "other", &session(&pool, &text(2, 90)));
    }
    let path = dir.path().join("rooflight-kept/it.manifest");
    let whole = std::fs::read(&path).unwrap();
    let mut later = whole.clone();
    later[8] += 1;
    std::fs::write(&path, later).unwrap();
    {
        let options = SessionStoreOptions { max_bytes: Some(1_300_000), lets_go: true };
        let store = SessionStore::open(dir.path(), options).unwrap();
        let wrong = store.about("it").unwrap_err();
        assert!(!wrong.is_damage() && wrong.to_string().contains("version"), "{wrong}");
        for seed in 3..9 {
            keep(&store, &seed.to_string(), &session(&pool, &text(seed, 300)));
        }
        assert!(store.about("other").is_err(), "others had to go for room");
    }
    std::fs::write(&path, whole).unwrap();
    let store = open(dir.path());
    assert_eq!(restore(&store, "it", &text(1, 90)), Ok(90));
}

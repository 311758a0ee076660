//! What stays: manifests over records, what they were made for, and what happens to them on a disk.

use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use kv::{BlockStore, ContentKey, DiskError, DiskOptions, KeptRecords, RecordId};
use tempfile::TempDir;
use testing::{Dice, mutations};

use crate::block;

fn options() -> DiskOptions {
    DiskOptions { keep: true, ..DiskOptions::default() }
}

pub(crate) fn open(dir: &TempDir) -> BlockStore {
    BlockStore::open(dir.path(), options()).expect("a store opens")
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn file(dir: &TempDir, name: &str) -> PathBuf {
    dir.path().join("rooflight-kept").join(name)
}

pub(crate) fn key() -> ContentKey {
    let text = str::to_owned;
    ContentKey {
        tokens: text("6f1c"),
        model: text("09ab"),
        policy: text("full"),
        cache_types: text("f16 f16"),
        executor: text("cpu"),
        device: text("Some Processor"),
        isa: text("avx512"),
        kernels: text("0.1.0 128"),
        latent_form: String::new(),
    }
}

fn put(store: &BlockStore, len: usize, seeds: std::ops::Range<u64>) -> Vec<RecordId> {
    seeds.map(|seed| store.put(&block(len, seed)).expect("there is room")).collect()
}

#[test]
fn kept_blocks_outlive_the_store_and_are_not_written_again() {
    let dir = folder();
    let len = 300_000;
    let store = open(&dir);
    let ids = put(&store, len, 0..80);
    // an end of the file that nobody names
    let loose = put(&store, len, 80..85);
    store.flush().unwrap();
    let written = store.stats().bytes_written;
    store.keep("chat", &key(), &ids[..70], b"what I mean").unwrap();
    store.keep("other", &ContentKey::default(), &ids[60..], &[]).unwrap();
    assert_eq!(store.stats().bytes_written, written, "the same records");
    ids.iter().chain(&loose).for_each(|id| store.free(*id).unwrap());
    assert_eq!(store.stats().bytes, 80 * (4096 + 303_104), "manifests hold them");
    drop(store);

    for _ in 0..2 {
        let store = open(&dir);
        assert_eq!(store.kept_names(), ["chat", "other"]);
        assert_eq!(store.kept_key("chat"), Ok(key()));
        assert_eq!(store.stats().bytes, store.stats().file_bytes, "nothing else");
        let KeptRecords { ids, note } = store.restore("chat", &key()).unwrap();
        assert_eq!((ids.len(), &note[..]), (70, &b"what I mean"[..]));
        store.read_ahead(&ids);
        for (seed, id) in ids.iter().enumerate() {
            assert_eq!(*store.take(*id).unwrap(), block(len, seed as u64));
        }
        // new blocks go where nobody is
        put(&store, len, 1000..1010);
    }

    let store = open(&dir);
    store.discard("chat").unwrap();
    assert_eq!(store.stats().bytes, 20 * (4096 + 303_104));
    put(&store, len, 2000..2070);
    store.flush().unwrap();
    assert_eq!(store.stats().file_bytes, 90 * (4096 + 303_104), "pages of the discarded ones");
    let ids = store.restore("other", &ContentKey::default()).unwrap().ids;
    for (seed, id) in (60..).zip(&ids) {
        assert_eq!(*store.take(*id).unwrap(), block(len, seed));
    }
    store.discard("other").unwrap();
    assert!(matches!(store.discard("other"), Err(DiskError::Vanished { .. })));
    drop(store);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was to be kept");
}

#[test]
fn a_key_that_differs_anywhere_is_told() {
    type Change = (&'static str, fn(&mut ContentKey) -> &mut String);
    let dir = folder();
    let store = open(&dir);
    store.keep("chat", &key(), &put(&store, 100, 0..3), &[]).unwrap();
    let changes: [Change; 9] = [
        ("tokens", |key| &mut key.tokens),
        ("model", |key| &mut key.model),
        ("policy", |key| &mut key.policy),
        ("cache types", |key| &mut key.cache_types),
        ("executor", |key| &mut key.executor),
        ("device", |key| &mut key.device),
        ("instruction set", |key| &mut key.isa),
        ("kernels", |key| &mut key.kernels),
        ("latent form", |key| &mut key.latent_form),
    ];
    let before = store.stats();
    for (name, part) in changes {
        let mut other = key();
        part(&mut other).push('X');
        match store.restore("chat", &other) {
            Err(DiskError::Key { field, expected, found, .. }) => {
                assert_eq!((field, expected), (name, part(&mut other).clone()));
                assert_eq!(&found, part(&mut key()));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let error = store.restore("chat", &ContentKey { isa: "avx2".into(), ..key() }).unwrap_err();
    let path = file(&dir, "chat.manifest");
    let want = r#"made for instruction set "avx512", not "avx2""#;
    assert_eq!(error.to_string(), format!("{}: {want}", path.display()));
    assert_eq!(store.stats(), before, "nothing is held");
    assert!(store.restore("chat", &key()).is_ok());
}

/// A store with two manifests of three blocks each; who changes its files before it is opened finds out what it says.
fn damaged(damage: impl FnOnce(&TempDir)) -> (TempDir, BlockStore) {
    let dir = folder();
    let store = open(&dir);
    store.keep("one", &key(), &put(&store, 9000, 0..3), b"1").expect("there is room");
    store.keep("two", &key(), &put(&store, 9000, 3..6), b"2").expect("there is room");
    drop(store);
    damage(&dir);
    let store = open(&dir);
    (dir, store)
}

const RECORD: u64 = 4 * 4096;

#[test]
fn every_changed_byte_of_a_manifest_is_found() {
    let (dir, store) = damaged(|_| {});
    drop(store);
    let path = file(&dir, "one.manifest");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        let store = open(&dir);
        let error = store.restore("one", &key()).unwrap_err();
        assert!(matches!(error, DiskError::Manifest { .. }), "byte {at}: {error}");
        assert_eq!(store.restore("two", &key()).unwrap().ids.len(), 3);
    }
    for at in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..at]).unwrap();
        let store = open(&dir);
        assert!(matches!(store.restore("one", &key()), Err(DiskError::Manifest { .. })));
        // its name can be used again
        store.keep("one", &key(), &put(&store, 9000, 0..3), b"1").unwrap();
        assert!(store.restore("one", &key()).is_ok());
    }
}

#[test]
fn damaged_records_are_found_before_or_when_they_are_read() {
    let flip = |dir: &TempDir, at: u64| {
        let records = File::options().read(true).write(true).open(file(dir, "records")).unwrap();
        let mut byte = [0];
        records.read_exact_at(&mut byte, at).unwrap();
        records.write_all_at(&[byte[0] ^ 64], at).unwrap();
    };
    // anywhere in a header
    for at in [0, 7, 8, 20, 39, 47, 48, 4095] {
        let (_dir, store) = damaged(|dir| flip(dir, RECORD + at));
        let error = store.restore("one", &key()).unwrap_err();
        assert!(matches!(error, DiskError::Checksum { offset: RECORD, .. }), "{at}: {error}");
        assert_eq!(store.stats().records, 0);
        assert!(store.restore("two", &key()).is_ok());
    }
    // in a block
    let (_dir, store) = damaged(|dir| flip(dir, RECORD + 4096 + 8999));
    let ids = store.restore("one", &key()).unwrap().ids;
    assert_eq!(*store.take(ids[0]).unwrap(), block(9000, 0));
    assert!(matches!(store.take(ids[1]), Err(DiskError::Checksum { .. })));

    let cut = |dir: &TempDir, to: u64| {
        File::options().write(true).open(file(dir, "records")).unwrap().set_len(to).unwrap();
    };
    let (_dir, store) = damaged(|dir| cut(dir, 5 * RECORD));
    assert!(matches!(store.restore("two", &key()), Err(DiskError::Truncated { .. })));
    let ids = store.restore("one", &key()).unwrap().ids;
    assert_eq!(*store.take(ids[2]).unwrap(), block(9000, 2));
    for gone in [true, false] {
        let (_dir, store) = damaged(|dir| match gone {
            true => std::fs::remove_file(file(dir, "records")).unwrap(),
            false => cut(dir, 0),
        });
        for name in ["one", "two"] {
            assert!(matches!(store.restore(name, &key()), Err(DiskError::Truncated { .. })));
        }
    }
}

#[test]
fn manifests_of_another_store_are_refused() {
    let (other, store) = damaged(|_| {});
    drop(store);
    let copy = |dir: &TempDir, name: &str| {
        std::fs::copy(file(&other, "one.manifest"), file(dir, name)).unwrap();
    };
    // in place of one, while the store is open, and before
    let (dir, store) = damaged(|_| {});
    copy(&dir, "one.manifest");
    assert!(matches!(
        store.restore("one", &key()),
        Err(DiskError::Manifest { what: "records", .. })
    ));
    drop(store);
    let store = open(&dir);
    assert!(matches!(store.restore("one", &key()), Err(DiskError::Checksum { offset: 0, .. })));
    // beside those who have these places
    let (_dir, store) = damaged(|dir| copy(dir, "three.manifest"));
    assert_eq!(store.kept_names(), ["one", "three", "two"]);
    for name in ["one", "three"] {
        let error = store.restore(name, &key()).unwrap_err();
        assert!(matches!(error, DiskError::Manifest { what: "places of records", .. }), "{error}");
    }
    assert!(store.restore("two", &key()).is_ok());
    // removed behind the store's back
    let (dir, store) = damaged(|_| {});
    std::fs::remove_file(file(&dir, "one.manifest")).unwrap();
    assert!(matches!(store.restore("one", &key()), Err(DiskError::Vanished { .. })));
    assert!(store.discard("one").is_ok());
}

#[test]
fn strange_files_among_manifests_do_no_harm() {
    let mut dice = Dice::new(77);
    let (dir, store) = damaged(|_| {});
    drop(store);
    let whole = std::fs::read(file(&dir, "two.manifest")).unwrap();
    for round in 0..mutations(60) {
        let mut bytes: Vec<u8> = match round % 3 {
            0 => (0..dice.below(3000)).map(|_| dice.bits() as u8).collect(),
            1 => whole.iter().chain(&whole).copied().collect(),
            _ => whole.clone(),
        };
        for _ in 0..round % 7 {
            let at = dice.below(bytes.len().max(1));
            bytes.splice(at.min(bytes.len()).., (0..dice.below(40)).map(|_| dice.bits() as u8));
        }
        if bytes == whole {
            bytes.push(0);
        }
        std::fs::write(file(&dir, "one.manifest"), &bytes).unwrap();
        let store = open(&dir);
        assert!(matches!(store.restore("one", &key()), Err(DiskError::Manifest { .. })));
        assert!(store.restore("two", &key()).is_ok());
    }
    // a pipe nobody writes to, a link, a folder, a hole of 300 MB, what a killed process began, a name that is none
    let path = file(&dir, "one.manifest");
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    symlink(file(&dir, "two.manifest"), file(&dir, "link.manifest")).unwrap();
    std::fs::create_dir(file(&dir, "folder.manifest")).unwrap();
    File::create(file(&dir, "huge.manifest")).unwrap().set_len(300_000_000).unwrap();
    std::fs::write(file(&dir, ".begun.manifest"), &whole).unwrap();
    std::fs::write(file(&dir, "no name.manifest"), &whole).unwrap();
    let store = open(&dir);
    assert_eq!(store.kept_names(), ["folder", "huge", "link", "one", "two"]);
    for name in ["folder", "huge", "link", "one"] {
        assert!(store.restore(name, &key()).is_err(), "{name}");
    }
    assert!(store.restore("two", &key()).is_ok());
    assert!(!file(&dir, ".begun.manifest").exists());
}

#[test]
fn a_folder_that_vanishes_while_it_is_used_is_told() {
    let (dir, store) = damaged(|_| {});
    let ids = store.restore("one", &key()).unwrap().ids;
    std::fs::remove_dir_all(file(&dir, "")).unwrap();
    let path = file(&dir, "new.manifest");
    let vanished = |path, doing| Err(DiskError::Vanished { path, doing });
    assert_eq!(store.keep("new", &key(), &ids, &[]), vanished(path, "writing"));
    assert_eq!(store.kept_names(), ["one", "two"]);
    let restored = store.restore("two", &key()).map(drop);
    assert_eq!(restored, vanished(file(&dir, "two.manifest"), "reading"));
    // what is held still is what it was
    assert_eq!(*store.take(ids[2]).unwrap(), block(9000, 2));
}

#[test]
fn names_and_stores_are_checked() {
    let dir = folder();
    let store = open(&dir);
    let long = "x".repeat(65);
    let bad = ["", ".", "..", ".x", "../x", "a/b", "a\0b", "a b", "ａ", "x\n", &long];
    for name in bad {
        let error = store.keep(name, &key(), &[], &[]).unwrap_err();
        assert!(matches!(error, DiskError::Manifest { what: "name", .. }), "{name:?}: {error}");
        assert!(!error.to_string().contains('\n'));
        assert!(store.restore(name, &key()).is_err() && store.discard(name).is_err());
    }
    for name in ["x", "A-b_c.d", &long[..64]] {
        store.keep(name, &key(), &[], &[]).unwrap();
    }
    let id = put(&store, 10, 0..1)[0];
    store.free(id).unwrap();
    assert!(matches!(store.keep("y", &key(), &[id], &[]), Err(DiskError::Unknown { .. })));
    assert_eq!(store.kept_names().len(), 3);

    let other = BlockStore::open(dir.path(), options()).unwrap_err();
    let holder = format!("process {}", std::process::id());
    assert_eq!(other, DiskError::Locked { path: dir.path().join("rooflight-kept"), holder });
    // one that goes with its process may be beside it
    let beside = BlockStore::open(dir.path(), DiskOptions::default()).unwrap();
    let error = beside.keep("x", &key(), &[], &[]).unwrap_err();
    assert!(matches!(error, DiskError::Manifest { what: "store", .. }), "{error}");
    drop((beside, store));
    assert_eq!(open(&dir).kept_names().len(), 3);
    let is_private = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().unwrap().permissions().mode() & 0o077 == 0
    };
    assert!(is_private(&file(&dir, "")) && is_private(&file(&dir, "x.manifest")));
}

//! Which parts of a file have come.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use hub::internals::Journal;
use hub::{HubError, RemoteFile, Result};

/// Bytes of a part.
const PART: u64 = 2 << 20;

fn file(bytes: u64) -> RemoteFile {
    RemoteFile { path: "m.gguf".into(), bytes, digest: "ab".repeat(32) }
}

fn open(path: &Path, of: &RemoteFile) -> Result<Journal> {
    Journal::open(path, of, &mut |_| true)
}

#[test]
fn what_came_is_found_again_and_what_changed_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.part");
    let of = file(2 * PART + 100);
    let part = |n: usize, len: usize| vec![n as u8 + 1; len];
    let mut journal = open(&path, &of).unwrap();
    assert_eq!((journal.missing(), journal.present_bytes()), (vec![0, 1, 2], 0));
    journal.put(2, &part(2, 100)).unwrap();
    journal.put(0, &part(0, PART as usize)).unwrap();
    drop(journal);
    let mut told = Vec::new();
    let stopped = Journal::open(&path, &of, &mut |done| {
        told.push(done);
        told.len() < 2
    });
    assert!(matches!(stopped, Err(HubError::Cancelled)));
    assert_eq!(told, [100, PART + 100], "what is checked is told");
    let journal = open(&path, &of).unwrap();
    assert_eq!((journal.missing(), journal.present_bytes()), (vec![1], PART + 100));
    drop(journal);
    // half an entry, and a byte that is another one
    let list = path.with_extension("journal");
    let mut entries = std::fs::read(&list).unwrap();
    entries.extend([7; 5]);
    std::fs::write(&list, &entries).unwrap();
    let mut changed = OpenOptions::new().write(true).open(&path).unwrap();
    changed.seek(SeekFrom::Start(5)).unwrap();
    changed.write_all(&[99]).unwrap();
    let mut journal = open(&path, &of).unwrap();
    assert_eq!(journal.missing(), [0, 1]);
    journal.put(0, &part(0, PART as usize)).unwrap();
    journal.put(1, &part(1, PART as usize)).unwrap();
    let whole = folder.path().join("x");
    journal.finish(&whole).unwrap();
    assert_eq!(std::fs::metadata(&whole).unwrap().len(), of.bytes);
    assert!(!path.exists());
    assert!(!list.exists());
    // of another file nothing is used
    let mut journal = open(&path, &of).unwrap();
    assert_eq!(journal.present_bytes(), 0, "there is no list any more");
    journal.put(0, &part(0, PART as usize)).unwrap();
    drop(journal);
    let other = RemoteFile { digest: "cd".repeat(32), ..of };
    assert_eq!(open(&path, &other).unwrap().present_bytes(), 0);
}

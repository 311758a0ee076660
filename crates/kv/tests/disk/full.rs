//! A disk without room, a folder without permission: what is told, and that nothing is lost by it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use kv::{BlockStore, ContentKey, DiskError, DiskOptions, RecordId};

use crate::block;

/// Where a process with little room works.
const DIR: &str = "KV_FULL_IN";
/// Whether room comes back when files have holes.
const HOLES: &str = "KV_FULL_HOLES";

const LEN: usize = 60_000;

/// All blocks are as they were put.
fn check(store: &BlockStore, held: &[(RecordId, u64)]) {
    for (id, seed) in held {
        assert_eq!(*store.take(*id).expect("it is held"), block(LEN, *seed));
    }
}

/// Put blocks until there is no room on the disk and none in the queue.
fn fill(store: &BlockStore, held: &mut Vec<(RecordId, u64)>, seeds: &mut std::ops::RangeFrom<u64>) {
    let mut refused = 0;
    while refused < 30 {
        let seed = seeds.next().expect("there are enough");
        match store.put(&block(LEN, seed)) {
            Ok(id) => held.push((id, seed)),
            Err(DiskError::NoSpace { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(store.stats().queued_bytes <= 500_000);
    }
}

#[test]
#[ignore = "what other tests start with little room"]
fn works_with_little_room() {
    let dir = std::env::var_os(DIR).expect("started by another test");
    let options = DiskOptions { keep: true, queue_bytes: 500_000, ..DiskOptions::default() };
    let store = BlockStore::open(Path::new(&dir), options).expect("there is room for that");
    let (mut held, mut seeds) = (Vec::new(), 0..);
    for seed in seeds.by_ref().take(10) {
        held.push((store.put(&block(LEN, seed)).expect("there is room"), seed));
    }
    let key = ContentKey::default();
    let ids = |held: &[(RecordId, u64)]| held.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    store.keep("old", &key, &ids(&held), &[]).expect("there is room");

    fill(&store, &mut held, &mut seeds);
    assert!(held.len() > 30 && store.stats().queued_writes > 0);
    check(&store, &held);
    let full = store.flush().expect_err("there is no room");
    assert!(matches!(full, DiskError::NoSpace { wanted: 65_536, .. }), "{full}");
    let error = store.keep("new", &key, &ids(&held), &[]).expect_err("there is no room");
    assert!(matches!(error, DiskError::NoSpace { .. }), "{error}");
    assert_eq!(store.kept_names(), ["old"]);
    assert_eq!(store.restore("old", &key).expect("it is as it was").ids.len(), 10);

    // letting go of blocks makes room
    let written = held.len() - store.stats().queued_writes;
    let gone = if std::env::var_os(HOLES).is_some() { 10..written } else { written..held.len() };
    held.drain(gone).for_each(|(id, _)| store.free(id).expect("it is held"));
    store.flush().expect("there is room now");
    check(&store, &held);
    store.keep("new", &key, &ids(&held), &[]).expect("there is room");
    fill(&store, &mut held, &mut seeds);
    check(&store, &held);
    writeln!(std::io::stdout(), "\nall as it should be").expect("somebody listens");
}

/// Start the other test by a shell's words, which end with `exec "$@"`.
fn run(words: &str, dir: &Path, holes: bool) -> Output {
    // a mount of one's own, where that is allowed
    let mut command = Command::new(if holes { "unshare" } else { "sh" });
    if holes {
        command.args(["-rm", "sh"]);
    }
    command.args(["-c", words, "sh"]).arg(std::env::current_exe().expect("this is a program"));
    command
        .args(["--exact", "full::works_with_little_room", "--ignored", "--nocapture"])
        .env(DIR, dir);
    if holes {
        command.env(HOLES, "1");
    }
    command.output().expect("a shell starts")
}

fn succeeded(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stdout).contains("all as it should be")
}

#[test]
fn a_limit_on_files_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // 4 or 8 MiB, as the shell counts
    let output = run(r#"trap "" XFSZ; ulimit -f 8192; exec "$@""#, dir.path(), false);
    assert!(succeeded(&output), "{output:?}");
}

#[test]
fn a_full_file_system_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!(
        "mount -t tmpfs -o size=8m none '{}' || exit 77; exec \"$@\"",
        dir.path().display()
    );
    let output = run(&words, dir.path(), true);
    if output.status.code() == Some(77) || output.stdout.is_empty() {
        return testing::skipped("a full file system: mounting is not allowed here");
    }
    assert!(succeeded(&output), "{output:?}");
    testing::covered("a full file system");
}

#[test]
fn a_folder_without_permission_is_told() {
    let path = Path::new("/sys/rooflight");
    let error = BlockStore::open(path, DiskOptions::default()).unwrap_err();
    let want = DiskError::Permission { path: path.to_owned(), doing: "making the folder" };
    assert_eq!(error, want);
}

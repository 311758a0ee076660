//! A disk without room, a folder without permission: what is told, and that nothing is lost by it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use kv::{
    BlockAccess, BlockPool, BlockStore, ContentKey, DiskError, DiskOptions, Error, Heap,
    HostMemory, RecordId, SessionStore, SessionStoreOptions, StepPlace, TableSpec, Tables,
};

use crate::block;

/// Where a process with little room works.
const DIR: &str = "KV_FULL_IN";
/// Whether room comes back when files have holes.
const HOLES: &str = "KV_FULL_HOLES";

/// The tests that are started there.
const BLOCKS: &str = "full::works_with_little_room";
const SESSIONS: &str = "full::sessions_with_little_room";

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

pub(crate) const PLACE: StepPlace =
    StepPlace { begins_prompt: true, ends_prompt: true, made_up: false };

/// An empty session with blocks of `len` bytes.
pub(crate) fn session(pool: &BlockPool<Heap>, len: usize) -> Tables<Heap> {
    Tables::with_states(pool, [TableSpec::all(4, len)].into(), [].into(), 4000, None)
}

/// One with so many blocks, all of whose bytes are `fill`.
pub(crate) fn filled(
    pool: &BlockPool<Heap>,
    (blocks, len): (usize, usize),
    fill: u8,
) -> Tables<Heap> {
    let mut tables = session(pool, len);
    let tokens = vec![u32::from(fill); 4 * blocks];
    tables.prepare_step(tokens.len(), PLACE, &mut || false).expect("there is memory");
    for (_, runs) in tables.step_of_all(tokens.len()).0 {
        for run in runs {
            let BlockAccess::Write(memory) = run.block else { panic!("it is new") };
            memory.bytes_mut().fill(fill);
        }
    }
    tables.extend(&tokens).expect("they have room");
    tables.commit(tokens.len()).expect("they are there");
    tables
}

/// The session that is kept under a name is what [`filled`] made.
pub(crate) fn check_filled(
    store: &SessionStore,
    name: &str,
    (blocks, len): (usize, usize),
    fill: u8,
) {
    let pool = BlockPool::new(Heap, None);
    let mut back = session(&pool, len);
    let wanted = vec![u32::from(fill); 4 * blocks];
    let key = ContentKey::default();
    let found = store.restore((name, &key), &mut back, &wanted, &mut || false, &|| true);
    assert_eq!(found.expect("it is there").positions, wanted.len());
    let next = wanted.len() + 1;
    back.prepare_step(next, PLACE, &mut || false).expect("there is memory");
    let runs: Vec<_> = back.step_of_all(next).0.flat_map(|(_, runs)| runs).collect();
    assert_eq!(runs.len(), blocks + 1);
    for run in &runs[..blocks] {
        let BlockAccess::Read(memory) = &run.block else { panic!("they are whole") };
        assert!(memory.bytes().iter().all(|byte| *byte == fill), "{name}");
    }
}

#[test]
#[ignore = "what other tests start with little room"]
fn sessions_with_little_room() {
    let dir = std::env::var_os(DIR).expect("started by another test");
    let options = SessionStoreOptions { max_bytes: None, lets_go: true };
    let store = SessionStore::open(Path::new(&dir), options).expect("there is room for that");
    let (pool, key) = (BlockPool::new(Heap, None), ContentKey::default());
    let keep = |name: u8, blocks| {
        let tables = filled(&pool, (blocks, LEN), name);
        store.keep((&name.to_string(), &key), &tables, &[], &|| true)
    };
    let mut let_go = 0;
    for name in 0..20 {
        let_go += keep(name, 20).expect("others go for it").let_go;
        assert!(store.names().contains(&name.to_string()));
    }
    assert!((14..20).contains(&let_go), "{let_go} had to go");
    let names = store.names();
    assert_eq!(names.len(), 20 - let_go);
    for name in names {
        let fill: u8 = name.parse().expect("a number");
        check_filled(&store, &name, (20, LEN), fill);
    }
    // what has no room alone is told, and what comes after it is kept
    let full = keep(100, 300).expect_err("there is no room");
    assert!(matches!(full, Error::Disk(DiskError::NoSpace { .. })), "{full}");
    keep(101, 20).expect("there is room");
    assert_eq!(store.names(), ["101"]);
    writeln!(std::io::stdout(), "\nall as it should be").expect("somebody listens");
}

/// Start another test by a shell's words, which end with `exec "$@"`.
fn run(test: &str, words: &str, dir: &Path, holes: bool) -> Output {
    // a mount of one's own, where that is allowed
    let mut command = Command::new(if holes { "unshare" } else { "sh" });
    if holes {
        command.args(["-rm", "sh"]);
    }
    command.args(["-c", words, "sh"]).arg(std::env::current_exe().expect("this is a program"));
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(DIR, dir);
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
    let output = run(BLOCKS, r#"trap "" XFSZ; ulimit -f 8192; exec "$@""#, dir.path(), false);
    assert!(succeeded(&output), "{output:?}");
}

#[test]
fn a_full_file_system_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!(
        "mount -t tmpfs -o size=8m none '{}' || exit 77; exec \"$@\"",
        dir.path().display()
    );
    for test in [BLOCKS, SESSIONS] {
        let output = run(test, &words, dir.path(), true);
        if output.status.code() == Some(77) || output.stdout.is_empty() {
            return testing::skipped("a full file system: mounting is not allowed here");
        }
        assert!(succeeded(&output), "{output:?}");
    }
    testing::covered("a full file system");
}

#[test]
fn a_folder_without_permission_is_told() {
    let path = Path::new("/sys/rooflight");
    let error = BlockStore::open(path, DiskOptions::default()).unwrap_err();
    let want = DiskError::Permission { path: path.to_owned(), doing: "making the folder" };
    assert_eq!(error, want);
}

//! Sessions on disk over restarts: rows and states are what was written, whatever of them is wanted, and nothing else is ever
//! believed.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use kv::{
    BlockAccess, BlockPool, BlockStore, ContentKey, DiskError, DiskOptions, Error, Heap,
    HostMemory, SessionStore, SessionStoreOptions, StateRows, StateSpec, StateStep, StepPlace,
    TableSpec, Tables,
};
use proptest::prelude::*;

const CAPACITY: usize = 200;

/// Rows of 16 bytes: of all positions, of a window, of the first few.
fn specs() -> Arc<[TableSpec]> {
    let all = TableSpec::all(4, 64);
    [
        TableSpec::all(8, 128),
        TableSpec { window: Some(10), ..all },
        TableSpec { limit: Some(6), ..all },
    ]
    .into()
}

const STATES: [StateSpec; 2] = [StateSpec::of(64, 8), StateSpec::of(8, 4)];

fn hash(tokens: &[u32], cache: usize) -> u64 {
    let next = |all: u64, token: &u32| {
        (all ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    };
    tokens.iter().fold(cache as u64 + 1, next)
}

fn row(tokens: &[u32], cache: usize) -> [u8; 16] {
    let half = hash(tokens, cache).to_le_bytes();
    std::array::from_fn(|i| half[i % 8])
}

fn key() -> ContentKey {
    ContentKey { model: "m".into(), isa: "avx2".into(), ..ContentKey::default() }
}

struct Kind {
    has_states: bool,
    spills: bool,
}

impl Kind {
    fn pool(&self, dir: &Path) -> BlockPool<Heap> {
        if !self.spills {
            return BlockPool::new(Heap, None);
        }
        let options = DiskOptions { direct: false, readers: 1, ..DiskOptions::default() };
        BlockPool::with_disk(Heap, 40_000, BlockStore::open(dir, options).unwrap())
    }

    fn open(&self, pool: &BlockPool<Heap>, family: Option<u64>) -> Tables<Heap> {
        let states: &[StateSpec] = if self.has_states { &STATES } else { &[] };
        Tables::with_states(pool, specs(), states.into(), CAPACITY, family)
    }
}

fn at(i: usize) -> std::ops::Range<usize> {
    16 * i..16 * (i + 1)
}

/// Append as a model does, and check all that a step reads.
fn append(tables: &mut Tables<Heap>, more: &[u32], ends_prompt: bool) {
    let tokens = [tables.tokens(), more].concat();
    let place = StepPlace { begins_prompt: true, ends_prompt, made_up: false };
    tables.prepare_step(tokens.len(), place, &mut || false).unwrap();
    let from = tokens.len() - more.len();
    let (rows, (step, states)) = tables.step_of_all(tokens.len());
    for (cache, (_, runs)) in rows.enumerate() {
        for run in runs {
            let want = |i: usize| row(&tokens[..=run.first + i], cache);
            match run.block {
                BlockAccess::Read(memory) => {
                    run.rows.for_each(|i| assert_eq!(memory.bytes()[at(i)], want(i), "{cache}"));
                }
                BlockAccess::Write(memory) => {
                    for i in run.rows {
                        if run.first + i < from {
                            assert_eq!(memory.bytes()[at(i)], want(i), "cache {cache}");
                        }
                        memory.bytes_mut()[at(i)].copy_from_slice(&want(i));
                    }
                }
            }
        }
    }
    if let Some(step) = step {
        for (cache, rows) in states.into_iter().enumerate() {
            step_of_states(cache, &step, rows, &tokens);
        }
    }
    tables.extend(more).unwrap();
    tables.commit(tokens.len()).unwrap();
}

fn step_of_states(
    cache: usize,
    step: &StateStep,
    rows: StateRows<'_, <Heap as kv::Store>::Memory>,
    tokens: &[u32],
) {
    let StateRows { base, fold, ring, next } = rows;
    let state = |n: usize| hash(&tokens[..n], cache).to_le_bytes();
    if let Some(base) = base {
        assert_eq!(base.bytes()[..8], state(step.base), "the state at {}", step.base);
    }
    let bytes = STATES[cache].row;
    let slot = |position: usize| {
        StateStep::slot(position) * bytes..(StateStep::slot(position) + 1) * bytes
    };
    let words = |position: usize| tokens[position].to_le_bytes().repeat(bytes / 4);
    let known = match &ring {
        BlockAccess::Read(memory) => &**memory,
        BlockAccess::Write(memory) => &**memory,
    };
    for position in step.base..step.new.start {
        assert_eq!(known.bytes()[slot(position)], words(position), "row {position}");
    }
    if let (Some(memory), Some(fold)) = (fold, step.fold) {
        memory.bytes_mut()[..8].copy_from_slice(&state(fold));
    }
    let stored = match (next, ring) {
        (Some(next), _) => next,
        (None, BlockAccess::Write(ring)) => ring,
        (None, BlockAccess::Read(_)) => panic!("rows have to go somewhere"),
    };
    for position in step.stored_from..step.new.end {
        stored.bytes_mut()[slot(position)].copy_from_slice(&words(position));
    }
}

fn text(seed: usize, n: usize) -> Vec<u32> {
    (0..n).map(|i| (hash(&[seed as u32, i as u32], 9) % 50) as u32).collect()
}

fn open(dir: &Path) -> SessionStore {
    SessionStore::open(dir, SessionStoreOptions { max_bytes: None, lets_go: true }).unwrap()
}

/// What is done with a session, or with one of the names.
#[derive(Clone, Debug)]
enum Action {
    Append(usize, bool),
    Truncate(prop::sample::Index),
    Fork,
    LetGo,
    Keep(u8),
    Restore(u8, prop::sample::Index),
    Discard(u8),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        6 => (1usize..40, any::<bool>()).prop_map(|(n, ends)| Action::Append(n, ends)),
        2 => which().prop_map(Action::Truncate),
        1 => Just(Action::Fork),
        1 => Just(Action::LetGo),
        4 => (0u8..3).prop_map(Action::Keep),
        4 => (0u8..3, which()).prop_map(|(name, len)| Action::Restore(name, len)),
        1 => (0u8..3).prop_map(Action::Discard),
        1 => Just(Action::Reopen),
    ]
}

fn history(kind: &Kind, actions: &[Action]) -> usize {
    let (dir, spill) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut store = open(dir.path());
    let mut pool = kind.pool(spill.path());
    let mut session = kind.open(&pool, Some(1));
    let mut kept: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
    let (mut seed, mut restored) = (0, 0);
    let state_specs: &[StateSpec] = if kind.has_states { &STATES } else { &[] };
    for action in actions {
        match action {
            Action::Append(n, ends_prompt) => {
                seed += 1;
                // what was let go of a model computes again; here it begins anew
                if session.held() < session.len() {
                    session = kind.open(&pool, Some(1));
                }
                let n = (*n).min(CAPACITY - session.len());
                if n > 0 {
                    append(&mut session, &text(seed % 4, n), *ends_prompt);
                }
            }
            Action::Truncate(which) => {
                let len = which.index(session.len() + 1);
                session.truncate(len).unwrap();
            }
            Action::Fork => session = session.fork(session.len()).unwrap(),
            Action::LetGo => session.let_go(),
            Action::Keep(name) => {
                let tokens = session.tokens()[..session.held()].to_vec();
                let now =
                    store.keep((&name.to_string(), &key()), &session, &[*name], &|| true).unwrap();
                assert_eq!(now.positions, tokens.len());
                // what has nothing any more leaves what there is
                if !tokens.is_empty() {
                    let again = store
                        .keep((&name.to_string(), &key()), &session, &[*name], &|| true)
                        .unwrap();
                    assert_eq!((again.positions, again.written), (tokens.len(), 0), "not twice");
                    kept.insert(*name, tokens);
                }
            }
            Action::Restore(name, which) => {
                let id = name.to_string();
                let Some(tokens) = kept.get(name) else {
                    assert!(matches!(store.about(&id), Err(DiskError::Vanished { .. })));
                    continue;
                };
                let about = store.about(&id).unwrap();
                assert_eq!((&about.tokens, &about.note[..]), (tokens, &[*name][..]));
                let len = which.index(tokens.len() + 1);
                let part = store.part(&id, (&specs(), state_specs), len).unwrap();
                assert!(part.positions <= len);
                let mut back = kind.open(&pool, Some(1));
                let wanted = [&tokens[..len], &[99]].concat();
                let found =
                    store.restore((&id, &key()), &mut back, &wanted, &mut || false, &|| true);
                let found = found.unwrap();
                assert_eq!((found.positions, found.bytes), (part.positions, part.bytes));
                assert_eq!(back.tokens(), &tokens[..found.positions]);
                // another session that is cut as far goes on from there, too
                restored += found.positions;
                session = back;
                if session.len() < CAPACITY {
                    append(&mut session, &[7], false);
                }
            }
            Action::Discard(name) => {
                let gone = kept.remove(name);
                assert_eq!(store.discard(&name.to_string()).is_ok(), gone.is_some());
            }
            Action::Reopen => {
                drop((session, store));
                drop(pool);
                store = open(dir.path());
                pool = kind.pool(spill.path());
                session = kind.open(&pool, Some(1));
            }
        }
    }
    restored
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever sessions do, what comes back is what was kept; a step that goes on reads it.
    #[test]
    fn histories_bring_back_what_was_kept(
        actions in proptest::collection::vec(action(), 1..40),
        has_states in any::<bool>(),
        spills in any::<bool>(),
    ) {
        history(&Kind { has_states, spills }, &actions);
    }
}

const PLAIN: Kind = Kind { has_states: false, spills: false };
const RECURS: Kind = Kind { has_states: true, spills: false };

fn grown(kind: &Kind, pool: &BlockPool<Heap>, n: usize) -> Tables<Heap> {
    let mut session = kind.open(pool, None);
    for part in text(1, n).chunks(45) {
        append(&mut session, part, true);
    }
    session
}

/// Of what was kept as `it` the first `len` tokens.
fn restore(store: &SessionStore, tables: &mut Tables<Heap>, len: usize) -> kv::Result<usize> {
    let tokens = store.about("it")?.tokens;
    let tokens = &tokens[..len.min(tokens.len())];
    let found = store.restore(("it", &key()), tables, tokens, &mut || false, &|| true)?;
    Ok(found.positions)
}

#[test]
fn what_goes_on_writes_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let pool = PLAIN.pool(dir.path());
    let mut session = grown(&PLAIN, &pool, 90);
    let first = store.keep(("it", &key()), &session, &[], &|| true).unwrap();
    assert_eq!(first.written, first.bytes);
    append(&mut session, &[1, 2, 3], false);
    let second = store.keep(("it", &key()), &session, &[], &|| true).unwrap();
    // a block of all positions and two of the window, which three rows went into
    assert_eq!((second.positions, second.written), (93, 128 + 2 * 64));
    drop((session, pool, store));

    let store = open(dir.path());
    let pool = PLAIN.pool(dir.path());
    let mut back = PLAIN.open(&pool, None);
    assert_eq!(restore(&store, &mut back, 93).unwrap(), 93);
    assert_eq!(store.keep(("it", &key()), &back, &[], &|| true).unwrap().written, 0, "it is there");
    append(&mut back, &[4], false);
    assert!(store.keep(("it", &key()), &back, &[], &|| true).unwrap().written > 0);
    // under another name, too: the records are the same
    assert_eq!(store.keep(("other", &key()), &back, &[], &|| true).unwrap().written, 0);
}

/// A window and a state say how far a session can be cut, before anything is read.
#[test]
fn what_cannot_be_gone_on_from_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let pool = RECURS.pool(dir.path());
    let session = grown(&RECURS, &pool, 150);
    store.keep(("it", &key()), &session, &[], &|| true).unwrap();
    let part = |len| store.part("it", (&specs(), &STATES), len).unwrap();
    assert_eq!(part(150).positions, 150);
    assert_eq!(part(150).bytes, store.about("it").unwrap().bytes);
    assert_eq!(part(100), kv::SessionPart::default(), "its window is gone");
    let mut back = RECURS.open(&pool, None);
    assert_eq!(restore(&store, &mut back, 100).unwrap(), 0);
    assert!(back.is_empty());
    // nor what begins as another one does
    let mut wanted = text(1, 150);
    wanted[149] += 1;
    let found = store.restore(("it", &key()), &mut back, &wanted, &mut || false, &|| true).unwrap();
    assert_eq!((found.positions, back.tokens()), (149, &wanted[..149]));
    // tables of others are no use
    let other = store.part("it", (&specs()[..2], &STATES), 150);
    assert!(matches!(other, Err(DiskError::Manifest { what: "note", .. })), "{other:?}");
    let mut plain = PLAIN.open(&pool, None);
    assert!(restore(&store, &mut plain, 150).is_err());
}

#[test]
fn a_session_made_by_other_means_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let pool = PLAIN.pool(dir.path());
    store.keep(("it", &key()), &grown(&PLAIN, &pool, 60), &[], &|| true).unwrap();
    let mut back = PLAIN.open(&pool, None);
    let other = ContentKey { isa: "avx512".into(), ..key() };
    let error = store
        .restore(("it", &other), &mut back, &text(1, 60), &mut || false, &|| true)
        .unwrap_err();
    assert!(
        matches!(error, Error::Disk(DiskError::Key { field: "instruction set", .. })),
        "{error}"
    );
    let stopped = store.restore(("it", &key()), &mut back, &text(1, 60), &mut || false, &|| false);
    assert_eq!(stopped, Err(Error::Stopped));
    assert!(back.is_empty());
    assert_eq!(restore(&store, &mut back, 60).unwrap(), 60);
    // a session that is not empty takes nothing
    assert!(restore(&store, &mut back, 60).is_err());
}

/// Every flipped byte of the records and of the manifest: what comes back is right, or an error.
#[test]
fn flipped_bytes_are_never_believed() {
    let dir = tempfile::tempdir().unwrap();
    let pool = RECURS.pool(dir.path());
    {
        let store = open(dir.path());
        store.keep(("it", &key()), &grown(&RECURS, &pool, 60), b"note", &|| true).unwrap();
    }
    let file = |name: &str| dir.path().join("rooflight-kept").join(name);
    let (mut refused, mut taken) = (0, 0);
    // last the manifest: what it does not name is cut off
    for name in ["records", "it.manifest"] {
        let whole = std::fs::read(file(name)).unwrap();
        // of records every byte of blocks, of which most pages are padding
        let stride = if name == "records" { 37 } else { 3 };
        for place in (0..whole.len()).step_by(stride) {
            let open_file = || std::fs::File::options().write(true).open(file(name)).unwrap();
            open_file().write_all_at(&[whole[place] ^ 4], place as u64).unwrap();
            let store = open(dir.path());
            let mut back = RECURS.open(&pool, None);
            match restore(&store, &mut back, 60) {
                Ok(n) => {
                    assert_eq!(n, 60);
                    append(&mut back, &[1], false);
                    taken += 1;
                }
                Err(_) => {
                    assert!(back.is_empty());
                    refused += 1;
                }
            }
            drop(store);
            open_file().write_all_at(&whole[place..=place], place as u64).unwrap();
        }
    }
    assert!(refused > 100 && taken > 100, "{refused} refused, {taken} in what nobody reads");
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PLAIN.pool(dir.path());
    // 8 blocks of all positions, 3 of the window and 2 of the first few, each with a page before it
    let one = 13 * 2 * 4096;
    let options = SessionStoreOptions { max_bytes: Some(3 * one), lets_go: true };
    let store = SessionStore::open(dir.path(), options).unwrap();
    let session = |seed: usize| {
        let mut session = PLAIN.open(&pool, None);
        append(&mut session, &text(seed, 60), true);
        session
    };
    let keep = |name: &str, seed| {
        // times of files tell apart what is some milliseconds apart
        std::thread::sleep(std::time::Duration::from_millis(15));
        store.keep((name, &key()), &session(seed), &[], &|| true).map(|kept| kept.let_go)
    };
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(keep(name, seed), Ok(0), "{name}");
    }
    std::thread::sleep(std::time::Duration::from_millis(15));
    let mut back = PLAIN.open(&pool, None);
    store.restore(("a", &key()), &mut back, &text(1, 60), &mut || false, &|| true).unwrap();
    assert_eq!(store.names(), ["b", "c", "a"]);
    assert_eq!(keep("d", 4), Ok(1));
    assert_eq!(store.names(), ["c", "a", "d"]);
    drop(store);
    // where less is allowed than there is, the oldest go when it is opened
    let options = SessionStoreOptions { max_bytes: Some(one), lets_go: true };
    let store = SessionStore::open(dir.path(), options).unwrap();
    assert_eq!((store.names(), store.let_go_at_open()), (vec!["d".to_owned()], 2));
    // what has no room at all pushes nothing out
    let mut long = PLAIN.open(&pool, None);
    append(&mut long, &text(5, 150), true);
    let full = store.keep(("long", &key()), &long, &[], &|| true).unwrap_err();
    assert!(matches!(full, Error::Disk(DiskError::Full { .. })), "{full}");
    assert_eq!(store.names(), ["d"]);
    drop(store);
    // a store that does not let go says so
    let options = SessionStoreOptions { max_bytes: Some(one), lets_go: false };
    let store = SessionStore::open(dir.path(), options).unwrap();
    let full = store.keep(("e", &key()), &session(6), &[], &|| true).unwrap_err();
    assert!(matches!(full, Error::Disk(DiskError::Full { .. })), "{full}");
    assert_eq!(store.names(), ["d"]);
}

#[test]
fn a_folder_that_is_not_ours_is_refused() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = dir.path().join("rooflight-kept");
    let refused = |why: &str| {
        let error = SessionStore::open(dir.path(), SessionStoreOptions::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
    refused("it is a link");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let mode = |mode| std::fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    refused("other users may write to it");
    mode(0o755);
    SessionStore::open(dir.path(), SessionStoreOptions::default()).unwrap();
    // an empty one went with the store
    std::fs::create_dir(&folder).unwrap();
    match std::os::unix::fs::chown(&folder, Some(65_534), None) {
        Ok(()) => refused("it belongs to another user"),
        Err(_) => eprintln!("skipped: needs the right to give a folder away"),
    }
}

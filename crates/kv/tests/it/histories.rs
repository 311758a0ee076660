//! Tables against plain lists, over random histories of several sessions that fork, share prefixes and lose windows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kv::{BlockAccess, BlockKind, BlockPool, Error, Heap, HostMemory, Store, TableSpec, Tables};
use proptest::prelude::*;

const CAPACITY: usize = 100;

/// Less than that many things happen in a history; Miri takes a thousand times as long.
const ACTIONS: usize = if cfg!(miri) { 12 } else { 40 };

/// Four caches with blocks of 4, 2, 4 and 4 positions, the last of which keeps few; a byte is a row. Stretches are of 4.
fn specs() -> Arc<[TableSpec]> {
    let spec = |positions, window| TableSpec { window, ..TableSpec::all(positions, positions) };
    let few = TableSpec { limit: Some(6), ..TableSpec::all(4, 4) };
    [spec(4, None), spec(2, Some(5)), spec(4, Some(1)), few].into()
}

/// A heap that counts what it has handed out and not got back, and refuses more than `most` bytes.
#[derive(Clone, Default)]
struct Counted {
    live: Arc<AtomicUsize>,
    most: Option<usize>,
}

struct Memory(<Heap as Store>::Memory, Arc<AtomicUsize>);

impl Drop for Memory {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.bytes().len(), Ordering::Relaxed);
    }
}

impl Store for Counted {
    type Memory = Memory;

    /// Up to three blocks at once, which the pool has to give back together.
    fn allocate(&self, kind: BlockKind, most: usize) -> Option<Vec<Memory>> {
        let bytes = kind.bytes;
        let n = most.min(3);
        let live = self.live.load(Ordering::Relaxed);
        if self.most.is_some_and(|most| live + n * bytes > most) {
            return None;
        }
        self.live.fetch_add(n * bytes, Ordering::Relaxed);
        let block = || Heap.allocate(kind, 1).expect("little memory").remove(0);
        Some((0..n).map(|_| Memory(block(), Arc::clone(&self.live))).collect())
    }

    fn copy(&self, from: &Memory, to: &mut Memory) {
        to.0.bytes_mut().copy_from_slice(from.0.bytes());
    }

    fn save(&self, from: &Memory, take: &mut dyn FnMut(&[u8])) {
        take(from.0.bytes());
    }

    fn load(&self, bytes: &[u8], to: &mut Memory) {
        to.0.bytes_mut().copy_from_slice(bytes);
    }
}

/// What a row holds: it depends on all tokens up to its own and on the cache, as keys and values do.
fn stamp(tokens: &[u32], cache: usize) -> u8 {
    let all = tokens.iter().fold(7u32, |all, token| all.wrapping_mul(31).wrapping_add(*token));
    (all.wrapping_mul(5).wrapping_add(cache as u32 * 77) >> 3) as u8
}

/// Write rows for `more`, and check that all a query sees is right.
fn append(tables: &mut Tables<Counted>, more: &[u32]) -> kv::Result<()> {
    let all = [tables.tokens(), more].concat();
    let (from, to) = (tables.len(), all.len());
    tables.prepare(to)?;
    let specs = Arc::clone(tables.specs());
    for (cache, (spec, runs)) in specs.iter().zip(tables.rows(to)).enumerate() {
        let mut next = spec.window.map_or(0, |window| (from + 1).saturating_sub(window));
        for run in runs {
            assert_eq!(run.first + run.rows.start, next, "ascending and without gaps");
            next = run.first + run.rows.end;
            assert!(run.first.is_multiple_of(spec.positions));
            let want = |row: usize| stamp(&all[..=run.first + row], cache);
            match run.block {
                BlockAccess::Read(memory) => {
                    assert!(next <= from, "a step writes all its rows");
                    for row in run.rows {
                        assert_eq!(memory.0.bytes()[row], want(row), "cache {cache}");
                    }
                }
                BlockAccess::Write(memory) => {
                    assert!(next > from, "what a step does not write is only read");
                    for row in run.rows {
                        if run.first + row < from {
                            assert_eq!(memory.0.bytes()[row], want(row), "cache {cache}");
                        }
                        memory.0.bytes_mut()[row] = want(row);
                    }
                }
            }
        }
        assert_eq!(next, spec.limit.unwrap_or(to).min(to), "all rows of the step");
    }
    tables.extend(more)
}

#[derive(Clone, Debug)]
enum Action {
    Append(Vec<u32>),
    Abandon(usize),
    Truncate(f64),
    Commit(f64),
    Fork(usize, f64),
    Adopt(Vec<u32>),
    Close,
}

/// Few tokens, so that prefixes meet.
fn tokens(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        3 => n.clone().prop_map(|n| vec![1; n]),
        1 => proptest::collection::vec(1u32..3, n),
    ]
}

fn action() -> impl Strategy<Value = (usize, Action)> {
    let action = prop_oneof![
        5 => tokens(1..20).prop_map(Action::Append),
        1 => (1usize..20).prop_map(Action::Abandon),
        2 => (0.0..=1.0).prop_map(Action::Truncate),
        4 => (0.5..=1.0).prop_map(Action::Commit),
        2 => (0usize..3, 0.0..=1.0).prop_map(|(to, at)| Action::Fork(to, at)),
        3 => tokens(4..40).prop_map(Action::Adopt),
        1 => Just(Action::Close),
    ];
    (0usize..3, action)
}

fn part(len: usize, share: f64) -> usize {
    (len as f64 * share).round() as usize
}

/// What a session must hold.
#[derive(Clone, Default)]
struct Plain {
    tokens: Vec<u32>,
    committed: usize,
    /// The greatest number of positions committed since all were known: windows have left what it does not need.
    left: usize,
}

impl Plain {
    /// What a truncation to `len` reaches.
    fn reaches(&self, len: usize) -> usize {
        let kept = |spec: &TableSpec| {
            let first = |next: usize| match spec.window {
                None => 0,
                Some(window) => (next + 1).saturating_sub(window) / spec.positions,
            };
            self.left == 0 || first(self.left) <= first(len)
        };
        if specs().iter().all(kept) { len } else { 0 }
    }

    fn cut(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.committed = self.committed.min(len);
        self.left = if len == 0 { 0 } else { self.left };
    }
}

fn check(tables: &Tables<Counted>, plain: &Plain) {
    assert_eq!(tables.tokens(), plain.tokens);
    let tentative = plain.tokens.len() - plain.committed;
    let most = |spec: &TableSpec| spec.most_bytes(plain.tokens.len(), tentative);
    let most: u64 = specs().iter().map(most).sum();
    assert!(tables.bytes() <= most, "{} bytes, {most} at most", tables.bytes());
}

fn run(actions: Vec<(usize, Action)>, budget: Option<u64>, store: &Counted) {
    let pool = BlockPool::new(store.clone(), budget);
    let new = || Tables::new(&pool, specs(), CAPACITY, Some(0));
    let mut sessions = [new(), new(), new()];
    let mut plain = [Plain::default(), Plain::default(), Plain::default()];
    let mut committed: Vec<Vec<u32>> = Vec::new();
    for (who, action) in actions {
        let len = sessions[who].len();
        match action {
            Action::Append(more) => match append(&mut sessions[who], &more) {
                Ok(()) => plain[who].tokens.extend(more),
                Err(Error::Capacity { .. }) => assert!(len + more.len() > CAPACITY),
                Err(Error::Budget { .. }) => assert!(budget.is_some()),
                Err(Error::Memory { .. }) => assert!(store.most.is_some()),
                Err(other) => panic!("{other}"),
            },
            Action::Abandon(more) => {
                let _ = sessions[who].prepare((len + more).min(CAPACITY));
                sessions[who].abandon();
            }
            Action::Truncate(at) => {
                let want = plain[who].reaches(part(len, at));
                assert_eq!(sessions[who].truncate(part(len, at)), Ok(want));
                plain[who].cut(want);
                let error = Error::Length { len: want, wanted: want + 1 };
                assert_eq!(sessions[who].truncate(want + 1), Err(error));
            }
            Action::Commit(at) => {
                let at = part(len, at);
                sessions[who].commit(at).expect("it holds that many");
                let plain = &mut plain[who];
                committed.push(plain.tokens[..at].to_vec());
                plain.committed = plain.committed.max(at);
                plain.left = plain.left.max(at);
            }
            Action::Fork(to, at) => {
                let want = plain[who].reaches(part(len, at));
                sessions[to] = sessions[who].fork(part(len, at)).expect("it holds that many");
                plain[to] = plain[who].clone();
                plain[to].cut(want);
            }
            Action::Adopt(tokens) => {
                let gained = sessions[who].adopt(&tokens);
                if gained > 0 {
                    assert!(
                        (len + gained).is_multiple_of(4) && tokens.starts_with(&plain[who].tokens)
                    );
                    let tokens = tokens[..len + gained].to_vec();
                    let known = committed.iter().any(|other| other.starts_with(&tokens));
                    assert!(known, "a prefix that somebody committed");
                    plain[who] = Plain { committed: len + gained, left: len + gained, tokens };
                }
            }
            Action::Close => {
                sessions[who] = new();
                plain[who] = Plain::default();
            }
        }
        for (tables, plain) in sessions.iter().zip(&plain) {
            check(tables, plain);
        }
        let live = store.live.load(Ordering::Relaxed) as u64;
        assert_eq!(pool.in_use() + pool.free(), live);
        assert!(budget.is_none_or(|budget| live <= budget), "{live} of {budget:?}");
        assert!(sessions.iter().map(Tables::bytes).sum::<u64>() >= pool.in_use());
    }
    drop(sessions);
    assert_eq!(pool.in_use(), 0, "nobody holds a block");
    pool.trim();
    assert_eq!((pool.free(), store.live.load(Ordering::Relaxed)), (0, 0), "all is given back");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 300 }))]

    /// Whatever sessions do, each reads its own rows, windows stay small, and nothing leaks.
    #[test]
    fn histories_match_lists(actions in proptest::collection::vec(action(), 1..ACTIONS)) {
        run(actions, None, &Counted::default());
    }

    /// The same where memory is short: what does not fit is refused and changes nothing.
    #[test]
    fn short_memory_changes_nothing(
        actions in proptest::collection::vec(action(), 1..ACTIONS),
        budget in 12u64..200,
        most in 20usize..200,
    ) {
        run(actions, Some(budget), &Counted { most: Some(most), ..Counted::default() });
    }
}

fn session(pool: &BlockPool<Counted>, family: Option<u64>) -> Tables<Counted> {
    Tables::new(pool, specs(), CAPACITY, family)
}

#[test]
fn equal_prefixes_share_blocks_and_others_do_not() {
    let pool = BlockPool::new(Counted::default(), None);
    let prompt: Vec<u32> = (0..30).collect();
    let mut first = session(&pool, Some(1));
    append(&mut first, &prompt).unwrap();
    first.commit(29).unwrap();
    let alone = pool.in_use();

    let mut second = session(&pool, Some(1));
    let other = [&prompt[..25], &[99; 5]].concat();
    // of 25 equal tokens 24 are whole blocks, but the windows have left theirs behind
    assert_eq!(second.adopt(&other), 0);
    assert_eq!(second.adopt(&prompt), 28);
    assert_eq!((second.len(), second.adopt(&prompt)), (28, 0));
    assert_eq!(pool.in_use(), alone, "nothing is copied");
    append(&mut second, &[5, 6, 7]).unwrap();
    append(&mut first, &[8, 9]).unwrap();

    assert_eq!(session(&pool, Some(2)).adopt(&prompt), 0, "another family");
    assert_eq!(session(&pool, None).adopt(&prompt), 0, "no family");
    drop(first);
    assert_eq!(session(&pool, Some(1)).adopt(&prompt), 28, "the second holds them still");
    drop(second);
    assert_eq!(session(&pool, Some(1)).adopt(&prompt), 0, "nobody holds them");
}

#[test]
fn a_prefix_without_windows_is_shared_from_any_whole_block_on() {
    let pool = BlockPool::new(Heap, None);
    let specs: Arc<[TableSpec]> = [TableSpec::all(4, 4)].into();
    let new = || Tables::new(&pool, Arc::clone(&specs), CAPACITY, Some(0));
    let prompt: Vec<u32> = (0..30).collect();
    let mut first = new();
    first.prepare(30).unwrap();
    first.extend(&prompt).unwrap();
    first.commit(30).unwrap();
    for common in [3, 4, 11, 27, 30] {
        let mut second = new();
        let tokens = [&prompt[..common], &[77; 3]].concat();
        assert_eq!(second.adopt(&tokens), common / 4 * 4);
        // rows that match are kept, rows that do not are not replaced
        let mut third = new();
        third.prepare(5).unwrap();
        third.extend(&prompt[..5]).unwrap();
        assert_eq!(third.adopt(&tokens), (common / 4 * 4).saturating_sub(5));
        let mut fourth = new();
        fourth.prepare(1).unwrap();
        fourth.extend(&[42]).unwrap();
        assert_eq!(fourth.adopt(&tokens), 0);
    }
    // a session that writes into a block others know of takes a copy; here nobody else holds it
    first.truncate(3).unwrap();
    first.prepare(4).unwrap();
    assert_eq!(new().adopt(&prompt), 0);
}

#[test]
fn a_full_pool_gives_freed_memory_to_other_sizes() {
    let pool = BlockPool::new(Heap, Some(64));
    let spec = |bytes| -> Arc<[TableSpec]> { [TableSpec::all(1, bytes)].into() };
    let mut small = Tables::new(&pool, spec(16), 100, None);
    small.prepare(4).unwrap();
    let mut large = Tables::new(&pool, spec(32), 100, None);
    assert_eq!(large.prepare(1), Err(Error::Budget { budget: 64, in_use: 64, bytes: 32 }));
    small.abandon();
    assert_eq!((pool.in_use(), pool.free()), (0, 64));
    large.prepare(2).unwrap();
    assert_eq!((pool.in_use(), pool.free()), (64, 0));
    assert_eq!(small.prepare(1), Err(Error::Budget { budget: 64, in_use: 64, bytes: 16 }));
}

#[test]
fn errors_name_what_is_held() {
    let pool = BlockPool::new(Heap, None);
    let mut tables = Tables::new(&pool, [TableSpec::all(4, 4)].into(), 10, None);
    assert_eq!(tables.prepare(11), Err(Error::Capacity { capacity: 10, wanted: 11 }));
    assert_eq!(tables.extend(&[1]), Err(Error::Length { len: 0, wanted: 1 }));
    tables.prepare(3).unwrap();
    tables.extend(&[1, 2, 3]).unwrap();
    let length = || Error::Length { len: 3, wanted: 4 };
    assert_eq!(tables.commit(4), Err(length()));
    assert_eq!(tables.truncate(4), Err(length()));
    assert_eq!(tables.fork(4).unwrap_err(), length());
    assert!(tables.bytes() == 4 && pool.in_use() == 4);
}

/// Sessions of one pool may work in threads of their own.
#[test]
fn threads_share_a_pool() {
    let pool = BlockPool::new(Counted::default(), Some(10_000));
    let errors = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (pool, errors) = (&pool, &errors);
            scope.spawn(move || {
                for round in 0..if cfg!(miri) { 3 } else { 50 } {
                    let mut tables = session(pool, Some(0));
                    let tokens: Vec<u32> =
                        (0..40).map(|i| if i < 20 { i } else { thread + round }).collect();
                    let gained = tables.adopt(&tokens);
                    if append(&mut tables, &tokens[gained..]).is_err() {
                        *errors.lock().unwrap() += 1;
                    }
                    tables.commit(tables.len()).unwrap();
                }
            });
        }
    });
    assert_eq!((pool.in_use(), *errors.lock().unwrap()), (0, 0));
}

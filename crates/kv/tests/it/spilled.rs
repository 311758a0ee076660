//! Tables in a pool with a disk: rows are what was written, wherever their blocks lie, and memory stays within its bound.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use kv::{
    BlockAccess, BlockPool, BlockStore, CacheBlock, DiskOptions, Error, Heap, HostMemory, Limit,
    TableSpec, Tables,
};
use proptest::prelude::*;

const CAPACITY: usize = 80;
const BUDGET: u64 = 3000;

/// Blocks of 4 positions of which few are chosen, others that are all read, and a window; a row has 16 bytes.
fn specs() -> Arc<[TableSpec]> {
    let all = TableSpec::all(4, 64);
    let chosen = TableSpec { chosen: true, ..all };
    [chosen, TableSpec::all(8, 128), TableSpec { window: Some(6), ..all }].into()
}

fn row(tokens: &[u32], cache: usize) -> [u8; 16] {
    let sum = tokens.iter().fold(7u32, |all, token| all.wrapping_mul(31).wrapping_add(*token));
    [(sum.wrapping_mul(5).wrapping_add(cache as u32 * 77) >> 3) as u8; 16]
}

fn pool(disk: &tempfile::TempDir, budget: u64) -> BlockPool<Heap> {
    let options = DiskOptions { direct: false, readers: 1, ..DiskOptions::default() };
    let pool = BlockPool::with_disk(Heap, budget, BlockStore::open(disk.path(), options).unwrap());
    pool.reserve(2 * 64);
    pool
}

/// Write rows from those it has on, up to all of `tokens`, and check what a step reads.
fn write(tables: &mut Tables<Heap>, tokens: &[u32]) -> kv::Result<()> {
    let (from, to) = (tables.held(), tokens.len());
    tables.prepare(to)?;
    let specs = Arc::clone(tables.specs());
    for (cache, (spec, (chosen, runs))) in specs.iter().zip(tables.step(to)).enumerate() {
        let mut next = 0;
        while let Some(block) = chosen.get(next / spec.positions) {
            let taken = match block.memory() {
                Some(_) => None,
                None => Some(CacheBlock::take(block, Limit::Whole)?),
            };
            let memory =
                taken.as_ref().map_or_else(|| block.memory().unwrap(), |taken| taken.get());
            for (i, found) in memory.bytes().chunks(16).enumerate() {
                assert_eq!(found, row(&tokens[..=next + i], cache), "chosen, position {next}");
            }
            next += spec.positions;
        }
        let mut given = runs.peekable();
        if let Some(first) = given.peek().filter(|_| spec.chosen) {
            // all others are chosen: a step costs the same however much there is
            assert!(first.first + spec.positions > from, "cache {cache} is given {}", first.first);
        }
        for run in given {
            let at = |i: usize| 16 * i..16 * (i + 1);
            match run.block {
                BlockAccess::Read(memory) => {
                    for i in run.rows {
                        let want = row(&tokens[..=run.first + i], cache);
                        assert_eq!(memory.bytes()[at(i)], want, "cache {cache}");
                    }
                }
                BlockAccess::Write(memory) => {
                    for i in run.rows {
                        let want = row(&tokens[..=run.first + i], cache);
                        if run.first + i < from {
                            assert_eq!(memory.bytes()[at(i)], want, "cache {cache}");
                        }
                        memory.bytes_mut()[at(i)].copy_from_slice(&want);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Append as a model does: what was let go of is written again first, some rows at a time.
fn append(tables: &mut Tables<Heap>, more: &[u32]) -> kv::Result<()> {
    let tokens = tables.tokens().to_vec();
    while tables.held() < tokens.len() {
        let end = tokens.len().min(tables.held() + 5);
        if let Err(error) = write(tables, &tokens[..end]) {
            tables.abandon();
            return Err(error);
        }
        tables.restore(end)?;
    }
    let all = [&tokens[..], more].concat();
    match write(tables, &all) {
        Ok(()) => tables.extend(more),
        Err(error) => {
            tables.abandon();
            Err(error)
        }
    }
}

fn run(actions: &[(usize, usize, f64)]) -> u64 {
    let disk = tempfile::tempdir().unwrap();
    let pool = pool(&disk, BUDGET);
    run_in(&pool, actions);
    pool.spilled().unwrap().written
}

fn run_in(pool: &BlockPool<Heap>, actions: &[(usize, usize, f64)]) {
    let new = || Tables::new(pool, specs(), CAPACITY, Some(1));
    let mut sessions = [new(), new(), new()];
    for &(who, action, at) in actions {
        let part = (sessions[who].len() as f64 * at) as usize;
        match action {
            0..=4 => {
                let n = (1 + (at * 18.0) as usize).min(CAPACITY - sessions[who].len());
                let more: Vec<u32> =
                    (0..n).map(|i| (i * 7 + (at * 3.0) as usize) as u32 % 5).collect();
                let tokens = sessions[who].tokens().to_vec();
                match append(&mut sessions[who], &more) {
                    Ok(()) => assert_eq!(sessions[who].tokens(), [&tokens[..], &more].concat()),
                    Err(Error::Budget { .. }) => assert_eq!(sessions[who].tokens(), tokens),
                    Err(error) => panic!("{error}"),
                }
            }
            5 => {
                sessions[who].truncate(part).unwrap();
            }
            6 => sessions[who].commit(part).unwrap(),
            7 => sessions[(who + 1) % 3] = sessions[who].fork(part).unwrap(),
            8 => sessions[who].let_go(),
            _ => sessions[who].lose(part),
        }
        assert!(pool.in_use() + pool.free() <= BUDGET);
    }
    drop(sessions);
    assert_eq!(pool.in_use(), 0, "nobody holds a block");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 60 }))]

    /// Whatever sessions do, each reads its own rows from memory or disk.
    #[test]
    fn histories_read_what_was_written(
        actions in proptest::collection::vec((0usize..3, 0usize..10, 0.0..1.0), 1..40)
    ) {
        run(&actions);
        run_in(&BlockPool::new(Heap, Some(BUDGET)), &actions);
    }
}

/// Blocks leave memory in the order in which they were taken, and are written once.
#[test]
fn what_was_taken_longest_ago_leaves_first() {
    let disk = tempfile::tempdir().unwrap();
    // eight blocks, two of which are kept free for those that are chosen
    let pool = pool(&disk, 8 * 64);
    let specs: Arc<[TableSpec]> = [TableSpec { chosen: true, ..TableSpec::all(4, 64) }].into();
    let mut tables = Tables::new(&pool, specs, 100, None);
    let fill = |tables: &mut Tables<Heap>, n: usize| {
        let tokens: Vec<u32> = (0..n as u32).collect();
        tables.prepare(tables.len() + n).unwrap();
        tables.extend(&tokens).unwrap();
    };
    let take = |tables: &mut Tables<Heap>, number: usize| {
        let before = pool.spilled().unwrap().loaded;
        tables.prepare(tables.len() + 1).unwrap();
        let end = tables.len() + 1;
        let (chosen, _) = tables.step(end).next().unwrap();
        CacheBlock::take(chosen.get(number).unwrap(), Limit::Whole).unwrap();
        tables.abandon();
        pool.spilled().unwrap().loaded - before
    };
    fill(&mut tables, 20);
    assert_eq!(pool.spilled().unwrap().written, 0, "all have room");
    assert_eq!(take(&mut tables, 0), 0);
    fill(&mut tables, 8);
    // of 0 to 6 those have left that were sealed first, and not 0, which was taken
    assert_eq!(take(&mut tables, 0), 0);
    assert_eq!(take(&mut tables, 1), 1);
    let written = pool.spilled().unwrap().written;
    for number in [2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0] {
        take(&mut tables, number);
    }
    let counts = pool.spilled().unwrap();
    assert!(written <= 3 && counts.written <= 7, "{counts:?}: each is written once");
    assert_eq!(counts.written_bytes, 64 * counts.written);
    assert_eq!(counts.loaded_bytes, 64 * counts.loaded);
    // what is in memory is not read ahead, and what is not comes without waiting for the file
    assert_eq!(take(&mut tables, 0), 0);
}

//! Caches within a bound: what leaves memory for a disk, or is let go of and computed again, changes no bit.

use std::path::Path;

use program::{
    CacheOptions, CacheStorage, CacheType, ContextMemory, Error, Executor, KvPolicy, MemoryOptions,
    Model, Outputs, SpillCounts,
};
use quant::GgmlType;

use super::context::{SETTINGS, SMALL, beside, history, tiny, tokens, with};
use super::supers;
use crate::made::{all_logits, feed};
use crate::{Made, Random, assert_same_bits};

/// Starts the executor with a bound on the caches of all sessions, and perhaps a folder.
pub type StorageRoom<'a> = &'a dyn Fn(CacheStorage) -> Box<dyn Executor>;

/// A model, without and with a bound.
struct Bounded {
    plain: Box<dyn Model>,
    bounded: Box<dyn Model>,
    /// The bound.
    memory: u64,
}

impl Bounded {
    /// With what `sessions` of these caches need at least, in steps of `chunk` rows.
    fn new(
        start: StorageRoom<'_>,
        disk: Option<&Path>,
        ty: GgmlType,
        cache: &CacheOptions,
        (sessions, chunk): (usize, usize),
    ) -> Bounded {
        let plain = start(CacheStorage::default());
        let program = tiny("qwen2", ty);
        let asked = MemoryOptions { cache: *cache, sessions, chunk };
        let needs = plain.memory(&program, &asked).expect("it can be told");
        let memory = if disk.is_some() { needs.least_cache } else { needs.cache };
        let storage = CacheStorage { memory: Some(memory), disk: disk.map(Into::into) };
        let made = |executor: &dyn Executor| Made::new(executor, &program, 4).tested;
        Bounded { plain: made(&*plain), bounded: made(&*start(storage)), memory }
    }

    fn counts(&self) -> SpillCounts {
        self.bounded.stats().spilled
    }
}

/// Run these checks of an executor that keeps what has no room in `disk`.
///
/// # Panics
/// At the first difference.
pub fn spilled(start: StorageRoom<'_>, disk: &Path) {
    policies(start, disk);
    histories(start, disk);
    super_blocks(start, disk);
    others(start, disk);
    idle(start, Some(disk));
    idle(start, None);
    refused(start, disk);
}

/// Every policy with nearly all of what it chooses from on disk, however a text is cut.
fn policies(start: StorageRoom<'_>, disk: &Path) {
    for (i, memory) in SETTINGS.into_iter().enumerate() {
        let ty = [GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0][i % 3];
        let options = with(memory, CacheType::ALL[i % CacheType::ALL.len()]);
        let room = Bounded::new(start, Some(disk), ty, &options, (1, 129));
        let tokens = tokens(900, 61);
        let want = all_logits(&*room.plain, &options, &tokens, 300);
        for chunk in [1, 7, 64, 129] {
            // single steps take long
            if chunk == 1 && i % 4 != 0 {
                continue;
            }
            let found = all_logits(&*room.bounded, &options, &tokens, chunk);
            assert_same_bits(&found, &want, &format!("on disk, chunks of {chunk}, {memory}"));
        }
        let readings = [&room.plain, &room.bounded].map(|model| {
            let session = model.open(&options).expect("a session opens");
            for tokens in tokens.chunks(100) {
                feed(&**model, session, tokens, Outputs::NONE);
                model.commit(session, model.len(session).expect("it is open")).expect("it is");
            }
            let readings = model.readings(session).expect("it is open");
            model.close(session);
            readings
        });
        assert_eq!(readings[0], readings[1], "the meter's readings, {memory}");
        assert_eq!(readings[0].all().is_empty(), !memory.chooses(832), "{memory}");
        let SpillCounts { written, loaded, recomputed, .. } = room.counts();
        if memory.has_blocks() {
            // one block that is chosen over and over stays in memory
            let stays = memory.n_blocks == 1;
            let is_tried = written > 0 && (loaded > 0 || stays);
            assert!(is_tried, "{memory}: {written} written, {loaded} loaded");
        }
        assert_eq!(recomputed, 0, "{memory}: a disk keeps what it is given");
    }
}

/// Histories of several sessions end in the bits of fresh ones: forks share what is on disk, and idle ones leave memory.
fn histories(start: StorageRoom<'_>, disk: &Path) {
    for (i, memory) in SETTINGS.into_iter().enumerate().step_by(2) {
        let options = with(memory, CacheType::F16);
        let room = Bounded::new(start, Some(disk), GgmlType::F32, &options, (3, 130));
        history(&*room.bounded, &options, &[], Random::new(271 + i as u64));
    }
    let options = CacheOptions { policy: KvPolicy::Full, ..with(SMALL, CacheType::F16) };
    let room = Bounded::new(start, Some(disk), GgmlType::F32, &options, (2, 130));
    history(&*room.bounded, &options, &[], Random::new(3));
}

/// Queries that look at the blocks of few super-blocks, most of what they choose from being on disk.
fn super_blocks(start: StorageRoom<'_>, disk: &Path) {
    for (i, (memory, n)) in supers::SETTINGS.into_iter().enumerate() {
        let ty = [GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0][i % 3];
        let options = supers::with_room(memory, CacheType::ALL[(i + 1) % CacheType::ALL.len()]);
        let room = Bounded::new(start, Some(disk), ty, &options, (1, 129));
        let tokens = tokens(n, 66);
        let [want, found] = [(&room.plain, 300), (&room.bounded, 129)].map(|(model, chunk)| {
            let session = model.open(&options).expect("a session opens");
            let mut logits = Vec::new();
            for tokens in tokens.chunks(chunk) {
                logits.extend(feed(&**model, session, tokens, Outputs::ALL));
                model.commit(session, model.len(session).expect("it is open")).expect("it is");
            }
            let readings = model.readings(session).expect("it is open");
            model.close(session);
            (logits, readings)
        });
        assert_same_bits(&found.0, &want.0, &format!("on disk, {memory}"));
        assert_eq!(found.1, want.1, "the meter's readings, {memory}");
        let last = found.1.all().last().expect("something is measured");
        assert!(memory.looks_at_few(last.position as usize), "{memory}: {last:?}");
        let SpillCounts { written, loaded, recomputed, .. } = room.counts();
        assert!(written > 0 && loaded > 0 && recomputed == 0, "{memory}: {:?}", room.counts());
        let room = Bounded::new(start, Some(disk), GgmlType::F32, &options, (3, 150));
        history(&*room.bounded, &options, &tokens, Random::new(31 + i as u64));
    }
}

/// Beside other sessions, one of which reads all.
fn others(start: StorageRoom<'_>, disk: &Path) {
    let options = with(SMALL, CacheType::Q8_0);
    let room = Bounded::new(start, Some(disk), GgmlType::Q8_0, &options, (8, 129));
    let tokens = tokens(420, 62);
    let want = all_logits(&*room.plain, &options, &tokens, 420);
    beside(&*room.bounded, &options, &tokens, &want);
}

/// Sessions that take turns, with room for one and a half: the idle one leaves memory, or lets go of its rows.
fn idle(start: StorageRoom<'_>, disk: Option<&Path>) {
    let window = ContextMemory { n_blocks: 0, ..SMALL };
    for policy in [KvPolicy::Full, KvPolicy::Memory(SMALL), KvPolicy::Memory(window)] {
        let short = CacheOptions { policy, ..with(SMALL, CacheType::F16) };
        let options = CacheOptions { capacity: 700, ..short };
        let room = Bounded::new(start, disk, GgmlType::F32, &options, (1, 129));
        let texts = [tokens(600, 63), tokens(600, 64), tokens(600, 65)];
        let [plain, bounded] = [&room.plain, &room.bounded].map(|model| {
            let open = |_| model.open(&options).expect("a session opens");
            let sessions: Vec<_> = (0..texts.len()).map(open).collect();
            let mut logits = Vec::new();
            for part in 0..5 {
                for (session, text) in sessions.iter().zip(&texts) {
                    let part = &text[part * 120..(part + 1) * 120];
                    logits.extend(feed(&**model, *session, part, Outputs::LAST));
                    let held = model.len(*session).expect("it is open");
                    model.commit(*session, held).expect("it holds that many");
                }
            }
            // what was let go of can be forked, and cut
            let fork = model.fork(sessions[0], 500).expect("it holds that many");
            let reached = model.truncate(sessions[1], 550).expect("it holds that many");
            let rest = &texts[1][reached..];
            logits.extend(feed(&**model, sessions[1], rest, Outputs::LAST));
            let held = model.len(fork).expect("it is open");
            logits.extend(feed(&**model, fork, &texts[0][held..], Outputs::LAST));
            logits
        });
        let what = format!(
            "{} idle sessions, {policy}",
            if disk.is_some() { "spilled" } else { "dropped" }
        );
        assert_same_bits(&bounded, &plain, &what);
        let SpillCounts { written, recomputed, .. } = room.counts();
        match disk {
            Some(_) => assert!(written > 0, "{what}"),
            None => assert!(recomputed > 0, "{what}"),
        }
    }
}

/// A byte less than the least is refused when a session opens.
fn refused(start: StorageRoom<'_>, disk: &Path) {
    for disk in [None, Some(disk)] {
        let options = with(SMALL, CacheType::F16);
        let room = Bounded::new(start, disk, GgmlType::F32, &options, (1, 1));
        let open = |memory| {
            let storage = CacheStorage { memory: Some(memory), disk: disk.map(Into::into) };
            let program = tiny("qwen2", GgmlType::F32);
            Made::new(&*start(storage), &program, 4).tested.open(&options).map(drop)
        };
        assert_eq!(open(room.memory), Ok(()));
        match open(room.memory / 2) {
            Err(Error::CacheBudget { budget, least }) => {
                assert!(budget == room.memory / 2 && least > budget && least <= room.memory);
            }
            other => panic!("half of what is needed: {other:?}"),
        }
    }
}

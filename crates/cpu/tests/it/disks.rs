//! Disks that err, are full, or slow, beneath the caches of a model: bits are those of one that has no disk, or a step ends
//! with a line and the session is as it was.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::{MemoryWeights, Random, assert_same_bits, tiny_config, tiny_model};
use cpu::{Cpu, Options};
use kv::{DiskLayer, RecordMedium};
use program::{
    BlockAnchor, BlockSharing, CacheOptions, CacheStorage, CacheType, ContextMemory, Error,
    Executor, FarPositions, KvPolicy, MemoryOptions, Model, Outputs, Program, Sequence, SessionId,
    Smoothing, SpillCounts, Step, StepOut,
};
use quant::GgmlType;
use testing::{Dice, mutations};

/// What a disk does wrong. Of so many calls one goes wrong; with 0 none does.
#[derive(Default)]
struct Wrongs {
    /// Of what is read a bit is another one.
    flips: AtomicU64,
    /// It is not to be read.
    refuses: AtomicU64,
    /// The file seems to end before it.
    ends: AtomicU64,
    /// What is written has another bit from then on.
    lies: AtomicU64,
    /// It cannot be written, for another reason than room.
    fails: AtomicU64,
    /// Microseconds that each call takes at most.
    slow: AtomicU64,
    /// Bytes that are still written, plus one: 0 is as many as there are.
    room: AtomicU64,
    /// Things that went wrong.
    done: AtomicU64,
}

/// A disk that goes wrong by chance, which is the same for each seed as far as threads come in the same order.
struct Disk {
    wrongs: Wrongs,
    dice: Mutex<Dice>,
}

impl Disk {
    fn new(seed: u64) -> Arc<Disk> {
        Arc::new(Disk { wrongs: Wrongs::default(), dice: Mutex::new(Dice::new(seed)) })
    }

    fn layer(self: &Arc<Disk>) -> DiskLayer {
        let disk = Arc::clone(self);
        DiskLayer::new(move |file| Box::new(Over(file, Arc::clone(&disk))))
    }

    fn below(&self, n: usize) -> usize {
        self.dice.lock().unwrap().below(n)
    }

    /// Whether this call is one of those that go wrong.
    fn is(&self, one_of: &AtomicU64) -> bool {
        let n = one_of.load(Ordering::SeqCst) as usize;
        let wrong = n > 0 && self.below(n) == 0;
        self.wrongs.done.fetch_add(u64::from(wrong), Ordering::SeqCst);
        wrong
    }

    fn set(one_of: &AtomicU64, n: u64) {
        one_of.store(n, Ordering::SeqCst);
    }

    /// From now on it does everything right.
    fn mend(&self) {
        let Wrongs { flips, refuses, ends, lies, fails, slow, room, .. } = &self.wrongs;
        let all = [flips, refuses, ends, lies, fails, slow, room];
        all.into_iter().for_each(|wrong| Disk::set(wrong, 0));
    }

    fn done(&self) -> u64 {
        self.wrongs.done.load(Ordering::SeqCst)
    }

    fn wait(&self) {
        let most = self.wrongs.slow.load(Ordering::SeqCst) as usize;
        if most > 0 {
            std::thread::sleep(Duration::from_micros(self.below(most) as u64));
        }
    }

    /// How many of so many bytes have room.
    fn fit(&self, bytes: usize) -> usize {
        let mut fit = bytes;
        let _ = self.wrongs.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| {
            fit = if room == 0 { bytes } else { bytes.min(room as usize - 1) };
            (room > 0).then(|| room - fit as u64)
        });
        fit
    }
}

/// A file beneath which a disk does wrong.
struct Over(Box<dyn RecordMedium>, Arc<Disk>);

impl RecordMedium for Over {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let (disk, wrongs) = (&*self.1, &self.1.wrongs);
        disk.wait();
        if disk.is(&wrongs.refuses) {
            return Err(io::Error::from_raw_os_error(5));
        }
        if disk.is(&wrongs.ends) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.read_exact_at(bytes, offset)?;
        if disk.is(&wrongs.flips) {
            bytes[disk.below(bytes.len())] ^= 1 << disk.below(8);
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (disk, wrongs) = (&*self.1, &self.1.wrongs);
        disk.wait();
        if disk.is(&wrongs.fails) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let fit = disk.fit(bytes.len());
        if fit < bytes.len() {
            self.0.write_all_at(&bytes[..fit], offset)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        if disk.is(&wrongs.lies) {
            let mut other = bytes.to_vec();
            other[disk.below(bytes.len())] ^= 1 << disk.below(8);
            return self.0.write_all_at(&other, offset);
        }
        self.0.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.0.cut(bytes)
    }

    fn punch(&self, bytes: Range<u64>) -> io::Result<()> {
        self.0.punch(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

const SMALL: ContextMemory = ContextMemory {
    n_init: 64,
    n_local: 128,
    block: 64,
    n_blocks: 2,
    dense_layers: 0,
    anchor: BlockAnchor::Bounds,
    n_representatives: 4,
    sharing: BlockSharing::Layer,
    positions: FarPositions::Fixed,
    certificate: None,
    n_supers: 0,
    token_step: 1,
    layer_step: 1,
    smoothing: None,
    given: None,
};

fn policies() -> [KvPolicy; 4] {
    let exact = FarPositions::Exact;
    [
        KvPolicy::Memory(SMALL),
        KvPolicy::Memory(ContextMemory {
            anchor: BlockAnchor::Mass,
            sharing: BlockSharing::KvHead,
            positions: exact,
            token_step: 4,
            smoothing: Smoothing::new(0.25),
            ..SMALL
        }),
        KvPolicy::Memory(ContextMemory { anchor: BlockAnchor::Products, n_init: 0, ..SMALL }),
        KvPolicy::Full,
    ]
}

const CAPACITY: usize = 1300;
const CHUNK: usize = 60;

fn options(policy: KvPolicy) -> CacheOptions {
    CacheOptions { policy, ..CacheOptions::new(CacheType::F16, CacheType::F16, CAPACITY) }
}

fn load(storage: CacheStorage, layer: DiskLayer) -> Box<dyn Model> {
    let cpu = Cpu::new(&Options { threads: Some(2), storage, layer, ..Options::default() });
    let program: Arc<Program> = tiny_model(&tiny_config("qwen2", 64, true), GgmlType::F32);
    cpu.load(Arc::clone(&program), &MemoryWeights::random(&program, 5), &mut |_| ()).unwrap()
}

/// A model over a disk, with the least memory that works for a session: others let go of what they have.
fn over(disk: &Arc<Disk>, policy: KvPolicy, dir: &std::path::Path) -> (Box<dyn Model>, u64) {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let asked = MemoryOptions { cache: options(policy), sessions: 1, chunk: CHUNK };
    let program = tiny_model(&tiny_config("qwen2", 64, true), GgmlType::F32);
    let bound = cpu.memory(&program, &asked).unwrap().least_cache;
    let storage = CacheStorage { memory: Some(bound), disk: Some(dir.into()) };
    (load(storage, disk.layer()), bound)
}

fn step(model: &dyn Model, session: SessionId, tokens: &[u32]) -> program::Result<Vec<f32>> {
    let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    model.commit(session, model.len(session)?)?;
    Ok(out.into_logits().logits)
}

/// What can be told of a disk: one line, which says what.
fn told(error: Error) -> String {
    let Error::Disk { problem, .. } = error else { panic!("{error}") };
    assert_eq!(problem.lines().count(), 1, "{problem}");
    problem
}

/// Two sessions and a fork of one, in turns: what every step yields. A step that fails is `mended` and made again.
fn history(
    model: &dyn Model,
    policy: KvPolicy,
    texts: &[Vec<u32>; 3],
    mended: &mut dyn FnMut(Error),
) -> Vec<f32> {
    let mut sessions: Vec<_> = (0..2).map(|_| model.open(&options(policy)).unwrap()).collect();
    let mut logits = Vec::new();
    let mut go_on = |session: SessionId, tokens: &[u32]| {
        for part in tokens.chunks(CHUNK) {
            let held = model.len(session).unwrap();
            let found = loop {
                match step(model, session, part) {
                    Ok(found) => break found,
                    Err(error) => mended(error),
                }
                assert_eq!(model.len(session), Ok(held), "it is as it was");
            };
            logits.extend(found);
        }
    };
    for part in 0..3 {
        for (session, text) in sessions.iter().zip(texts) {
            go_on(*session, &text[part * 350..(part + 1) * 350]);
        }
    }
    let fork = model.fork(sessions[0], 1050).unwrap();
    assert_eq!(model.len(fork), Ok(1050));
    sessions.push(fork);
    for (session, text) in sessions.iter().zip(texts).rev() {
        go_on(*session, &text[1050..1100]);
        text[1100..1110].iter().for_each(|token| go_on(*session, &[*token]));
    }
    sessions.into_iter().for_each(|session| model.close(session));
    logits
}

fn texts() -> [Vec<u32>; 3] {
    [1, 2, 3].map(|seed| Random::new(seed).tokens(1110, 97))
}

/// Bits that flip while they are read or written, reads that fail for once, files that seem to end.
#[test]
fn a_disk_that_errs_changes_no_bit() {
    let texts = texts();
    let (plain, mut lost) = (load(CacheStorage::default(), DiskLayer::default()), 0);
    for (i, policy) in policies().into_iter().enumerate() {
        let want = history(&*plain, policy, &texts, &mut |error| panic!("{error}"));
        let usual = usual(policy, &texts).recomputed;
        // who reads all reads blocks as often as sessions take turns
        let reads = if policy == KvPolicy::Full { 20 } else { 400 };
        for seed in 0..mutations(1) {
            let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::new(10 * seed + i as u64));
            let (model, _) = over(&disk, policy, dir.path());
            let Wrongs { flips, refuses, ends, lies, .. } = &disk.wrongs;
            [flips, refuses, ends].into_iter().for_each(|wrong| Disk::set(wrong, reads));
            Disk::set(lies, reads / 5);
            let mut failed = 0;
            let found = history(&*model, policy, &texts, &mut |error| {
                let line = told(error);
                assert!(line.contains("computed again 3 times"), "{line}");
                failed += 1;
                assert!(failed < 200, "it never ends");
            });
            assert_same_bits(&found, &want, &format!("{policy}, seed {seed}"));
            let counts = model.stats().spilled;
            assert!(disk.done() > 0 && counts.recomputed >= usual, "{} {counts:?}", disk.done());
            lost += counts.recomputed - usual;
            testing::covered(&format!(
                "{policy}: {} wrongs, {} positions computed again instead of {usual}, {failed} steps made again",
                disk.done(),
                counts.recomputed
            ));
        }
    }
    assert!(lost > 0, "nothing was ever lost");
}

/// What the history costs over a disk that does nothing wrong.
fn usual(policy: KvPolicy, texts: &[Vec<u32>; 3]) -> SpillCounts {
    let dir = tempfile::tempdir().unwrap();
    let (model, _) = over(&Disk::new(1), policy, dir.path());
    history(&*model, policy, texts, &mut |error| panic!("{error}"));
    model.stats().spilled
}

/// A disk of which nothing can be read, or written, ends steps, and nothing else; when it works again all is as it would be.
#[test]
fn a_disk_that_is_gone_is_told() {
    let texts = texts();
    let policy = policies()[0];
    let plain = load(CacheStorage::default(), DiskLayer::default());
    let want = history(&*plain, policy, &texts, &mut |error| panic!("{error}"));
    let cases = [("reading failed", true), ("writing failed", false)];
    for (what, reads) in cases {
        let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::new(7));
        let (model, _) = over(&disk, policy, dir.path());
        let wrong = if reads { &disk.wrongs.refuses } else { &disk.wrongs.fails };
        Disk::set(wrong, 1);
        let mut failed = 0;
        let found = history(&*model, policy, &texts, &mut |error| {
            let line = told(error);
            assert!(line.contains(what), "{line}");
            failed += 1;
            if failed == 2 {
                disk.mend();
            }
        });
        assert_same_bits(&found, &want, what);
        // one more may have been under way when it was mended
        assert!((2..=3).contains(&failed), "{what}: {failed}");
    }
}

/// A disk with room for so many bytes, wherever that ends: a line, and the bits of one with room once there is some.
#[test]
fn a_full_disk_ends_a_step_and_loses_nothing() {
    let texts = texts();
    let mut dice = Dice::new(3);
    let plain = load(CacheStorage::default(), DiskLayer::default());
    for policy in policies() {
        let want = history(&*plain, policy, &texts, &mut |error| panic!("{error}"));
        for _ in 0..mutations(4) {
            let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::new(11));
            let (model, bound) = over(&disk, policy, dir.path());
            let more = |dice: &mut Dice| Disk::set(&disk.wrongs.room, 1 + dice.bits() % 300_000);
            more(&mut dice);
            let mut failed = 0;
            let found = history(&*model, policy, &texts, &mut |error| {
                let line = told(error);
                assert!(line.contains("no space left"), "{line}");
                failed += 1;
                // some more, until it is tried no more
                match failed < 30 {
                    true => more(&mut dice),
                    false => disk.mend(),
                }
                let memory = model.stats().spilled.memory;
                assert!(memory <= bound, "{memory} bytes, {bound} allowed");
            });
            assert_same_bits(&found, &want, &format!("{policy}"));
            let counts = model.stats().spilled;
            testing::covered(&format!(
                "{policy}: {failed} times full, {} positions computed again",
                counts.recomputed
            ));
        }
    }
}

/// A disk that takes its time changes when, not what; memory stays within its bound.
#[test]
fn a_slow_disk_is_waited_for() {
    let texts = texts();
    let plain = load(CacheStorage::default(), DiskLayer::default());
    for policy in policies() {
        let want = history(&*plain, policy, &texts, &mut |error| panic!("{error}"));
        let usual = usual(policy, &texts).recomputed;
        for slow in [300, 6000] {
            let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::new(5));
            let (model, bound) = over(&disk, policy, dir.path());
            Disk::set(&disk.wrongs.slow, slow);
            let found = history(&*model, policy, &texts, &mut |error| panic!("{error}"));
            assert_same_bits(&found, &want, &format!("{policy}, {slow} us"));
            let counts = model.stats().spilled;
            assert!(counts.memory <= bound && counts.recomputed == usual, "{usual} {counts:?}");
            assert!(counts.written > 0 && counts.waited > Duration::ZERO, "{counts:?}");
        }
    }
}

//! Caches on disk: bits are those of memory; what is lost is computed again, memory stays below its bound, and nothing is read that was chosen before.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use conformance::{MemoryWeights, Random, tiny_config, tiny_model};
use cpu::{Cpu, Options};
use program::{
    CacheOptions, CacheStorage, CacheType, ContextMemory, Error, Executor, KvPolicy, MemoryOptions,
    Model, Outputs, Program, Sequence, SessionId, SpillCounts, Step, StepOut,
};
use quant::GgmlType;

#[test]
fn bits_do_not_tell_where_blocks_lie() {
    let disk = tempfile::tempdir().unwrap();
    let start = |storage: CacheStorage| -> Box<dyn Executor> {
        Box::new(Cpu::new(&Options { threads: Some(3), storage, ..Options::default() }))
    };
    conformance::spilled(&start, disk.path());
    assert_eq!(records(disk.path()).len(), 0, "files go at the end");
}

/// Files of records of running models.
fn records(disk: &Path) -> Vec<File> {
    let folders = std::fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.map(|folder| folder.join("records")).filter(|file| file.exists());
    let open = |file| File::options().write(true).read(true).open(file).unwrap();
    files.map(open).collect()
}

const MEMORY: ContextMemory = ContextMemory {
    n_init: 64,
    n_local: 128,
    block: 64,
    n_blocks: 3,
    dense_layers: 0,
    anchor: program::BlockAnchor::Bounds,
    n_representatives: 4,
    sharing: program::BlockSharing::Layer,
    positions: program::FarPositions::Fixed,
    certificate: None,
    n_supers: 0,
    token_step: 1,
    layer_step: 1,
    smoothing: None,
    given: None,
};

fn options(capacity: usize) -> CacheOptions {
    let policy = KvPolicy::Memory(MEMORY);
    CacheOptions { policy, ..CacheOptions::new(CacheType::F16, CacheType::F16, capacity) }
}

fn program() -> Arc<Program> {
    tiny_model(&tiny_config("qwen2", 64, true), GgmlType::F32)
}

fn load(storage: CacheStorage) -> Box<dyn Model> {
    let cpu = Cpu::new(&Options { threads: Some(2), storage, ..Options::default() });
    let (program, weights) = (program(), MemoryWeights::random(&program(), 5));
    cpu.load(program, &weights, &mut |_| ()).unwrap()
}

/// A model that keeps `more` bytes in memory beside the least that works for a session of `capacity`.
fn on_disk(disk: &Path, capacity: usize, more: u64) -> (Box<dyn Model>, u64) {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let asked = MemoryOptions { cache: options(capacity), sessions: 1, chunk: 64 };
    let bound = cpu.memory(&program(), &asked).unwrap().least_cache + more;
    (load(CacheStorage { memory: Some(bound), disk: Some(disk.into()) }), bound)
}

fn feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> program::Result<Vec<f32>> {
    let mut logits = Vec::new();
    for tokens in tokens.chunks(64) {
        let sequence =
            Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
        logits.extend(out.into_logits().logits);
        model.commit(session, model.len(session)?)?;
    }
    Ok(logits)
}

fn text(n: usize) -> Vec<u32> {
    Random::new(71).tokens(n, 97)
}

/// Flipped bytes, a file cut short: the session goes on with the bits of one that lost nothing.
#[test]
fn what_is_lost_is_computed_again() {
    let text = text(1500);
    let plain = load(CacheStorage::default());
    let want = feed(&*plain, plain.open(&options(2000)).unwrap(), &text).unwrap();
    let flip = |file: &File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes.iter_mut().step_by(512).for_each(|byte| *byte ^= 16);
        file.write_all_at(&bytes, 0).unwrap();
    };
    let cut = |file: &File| file.set_len(0).unwrap();
    for (what, harm) in [("flipped", &flip as &dyn Fn(&File)), ("cut", &cut)] {
        let disk = tempfile::tempdir().unwrap();
        let (model, _) = on_disk(disk.path(), 2000, 0);
        let session = model.open(&options(2000)).unwrap();
        let mut found = feed(&*model, session, &text[..1216]).unwrap();
        assert_eq!(model.stats().spilled.recomputed, 0);
        // what is on its way to the file is in memory still
        std::thread::sleep(std::time::Duration::from_millis(200));
        let files = records(disk.path());
        assert_eq!(files.len(), 1);
        files.iter().for_each(harm);
        let fork = model.fork(session, 1216).unwrap();
        found.extend(feed(&*model, session, &text[1216..]).unwrap());
        assert!(found == want, "{what}: other bits");
        let recomputed = model.stats().spilled.recomputed;
        assert!(recomputed > 0, "{what}: nothing was lost");
        // a fork finds its own loss
        let rest = feed(&*model, fork, &text[1216..]).unwrap();
        assert!(want.ends_with(&rest), "{what}: other bits of a fork");
    }
}

/// All blocks lie within the bound after every step, and a bound that others use up is told in one line.
#[test]
fn memory_stays_below_its_bound() {
    let disk = tempfile::tempdir().unwrap();
    let (model, bound) = on_disk(disk.path(), 5000, 0);
    let text = text(4600);
    let session = model.open(&options(5000)).unwrap();
    let mut most = 0;
    for part in text.chunks(64) {
        feed(&*model, session, part).unwrap();
        let SpillCounts { memory, .. } = model.stats().spilled;
        most = most.max(memory);
        assert!(memory <= bound, "{memory} bytes, {bound} allowed");
    }
    let SpillCounts { written_bytes, .. } = model.stats().spilled;
    assert!(written_bytes > bound && most * 4 > bound * 3, "{written_bytes} written, {most} used");
    assert!(matches!(model.open(&options(1 << 20)), Err(Error::CacheBudget { .. })));
    let nowhere = CacheStorage { memory: Some(bound), disk: Some("/proc/nowhere".into()) };
    let cpu = Cpu::new(&Options { threads: Some(1), storage: nowhere, ..Options::default() });
    let refused = cpu.load(program(), &MemoryWeights::random(&program(), 5), &mut |_| ());
    assert!(
        matches!(refused.map(drop), Err(Error::Disk { problem, .. }) if problem.contains("nowhere"))
    );
}

/// A made-up past that ends within a run of tokens: the rest of it reads blocks that are there.
#[test]
fn made_up_choices_are_of_blocks_that_are_there() {
    for (token_step, layer_step) in [(16, 1), (64, 2)] {
        let memory = ContextMemory { token_step, layer_step, ..MEMORY };
        let options = CacheOptions { policy: KvPolicy::Memory(memory), ..options(2000) };
        let model = load(CacheStorage::default());
        let session = model.open(&options).unwrap();
        model.make_up(session, 1509).unwrap();
        assert_eq!(feed(&*model, session, &text(30)).unwrap().len(), 97);
        assert_eq!(model.len(session), Ok(1539));
    }
}

/// As long as the same blocks are chosen, and they have room, nothing is read.
#[test]
fn nothing_is_loaded_while_choices_do_not_change() {
    let disk = tempfile::tempdir().unwrap();
    // room for what a step chooses in both layers, and not for all
    let (model, _) = on_disk(disk.path(), 5000, 400_000);
    let session = model.open(&options(5000)).unwrap();
    feed(&*model, session, &text(4600)).unwrap();
    let again = || {
        let sequence =
            Sequence { session, tokens: &[7], outputs: Outputs::LAST, prompt: None, rows: &[] };
        let before = model.stats().spilled;
        model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).unwrap();
        assert_eq!(model.truncate(session, 4600), Ok(4600));
        let after = model.stats().spilled;
        (after.loaded - before.loaded, after.hits - before.hits)
    };
    let (first, _) = again();
    assert!(first > 0, "most blocks are on disk, {first} read");
    for _ in 0..5 {
        let (loaded, hits) = again();
        assert!(loaded == 0 && hits > 0, "{loaded} read, {hits} in memory");
    }
}

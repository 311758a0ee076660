//! Sessions on disk over restarts, on the CPU: every architecture goes on with the bits of one that never stopped, and what was
//! made by other means, or damaged, is refused.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::models::GgufWeights;
use conformance::golden::models;
use conformance::{MemoryWeights, Random, assert_same_bits, tiny_config, tiny_model};
use cpu::{Cpu, MlaChoice, MlaForm, Options, SessionFolder, SessionFolders};
use gguf::Gguf;
use program::{
    BlockAnchor, CacheKind, CacheOptions, CacheStorage, CacheType, ContextMemory, Error, Executor,
    FarPositions, KeptPart, KeptPlace, KvPolicy, Model, Outputs, Program, Prompt, Sequence,
    SessionId, Smoothing, Step, StepOut,
};
use quant::GgmlType;

const LEN: usize = 200;
const OPTIONS: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 512);

/// A processor whose models keep conversations in a folder, until it and they are gone.
fn keeping(dir: &Path, options: &Options) -> Cpu {
    let conversations = Some(SessionFolder::conversations(dir, 1 << 30).unwrap());
    let kept = SessionFolders { conversations, saved: None };
    Cpu::new(&Options { threads: Some(2), kept, ..options.clone() })
}

/// What tokens yield that are part of a prompt of so many, from its beginning on.
fn feed(model: &dyn Model, session: SessionId, tokens: &[u32], len: usize) -> Vec<f32> {
    let prompt = Some(Prompt { start: 0, len });
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).unwrap();
    let held = model.len(session).unwrap();
    model.commit(session, held).unwrap();
    out.into_logits().logits
}

fn keep(model: &dyn Model, name: &str, session: SessionId) -> program::KeptNow {
    let kept = model.kept(KeptPlace::Conversations).unwrap();
    kept.keep(name, session, b"mine").unwrap()
}

fn restore(
    model: &dyn Model,
    name: &str,
    options: &CacheOptions,
    tokens: &[u32],
) -> program::Result<(SessionId, KeptPart)> {
    let session = model.open(options).unwrap();
    let kept = model.kept(KeptPlace::Conversations).unwrap();
    let part = kept.restore(name, session, tokens, &|| true)?;
    assert_eq!(model.len(session).unwrap(), part.positions);
    Ok((session, part))
}

/// What kinds of caches a program has.
fn kinds(program: &Program) -> Vec<&'static str> {
    let kind = |kind: &CacheKind| match kind {
        CacheKind::Heads { window: Some(_), .. } => "windows",
        CacheKind::Heads { .. } => "attention",
        CacheKind::Latent { .. } => "latents",
        CacheKind::Keys { .. } => "keys",
        CacheKind::State { .. } => "states",
    };
    program.caches.iter().map(|cache| kind(&cache.kind)).collect()
}

/// Attention, windows, latents, keys of indexers, states, and any of them together: cut at several places, the bits are those of a run that was
/// never interrupted.
#[test]
fn every_architecture_goes_on_after_a_restart() {
    let mut checked: BTreeSet<&str> = BTreeSet::new();
    let mut names = Vec::new();
    for (name, file) in models() {
        let gguf = Gguf::from_bytes(file).unwrap();
        let loaded = ::models::load(&gguf).unwrap();
        let short = loaded.program.n_positions().is_some_and(|n| n < LEN);
        let writes = loaded.config.text.is_none() && Outputs::ALL.check(&loaded.program).is_ok();
        if short || !writes {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let load = || {
            let cpu = keeping(dir.path(), &Options::default());
            let program = Arc::clone(&loaded.program);
            cpu.load(program, &GgufWeights(&gguf), &mut |_| ()).unwrap()
        };
        let vocab = loaded.config.vocab_size;
        let tokens = Random::new(name.len() as u64).tokens(LEN, vocab);
        let model = load();
        let session = model.open(&OPTIONS).unwrap();
        let mut want = feed(&*model, session, &tokens[..130], LEN);
        want.extend(feed(&*model, session, &tokens[130..150], LEN));
        let now = keep(&*model, "it", session);
        assert_eq!((now.positions, now.bytes), (150, now.written), "{name}");
        want.extend(feed(&*model, session, &tokens[150..], LEN));
        drop(model);

        let model = load();
        for len in [150, 149, 141, 128, 60] {
            let (session, part) = restore(&*model, "it", &OPTIONS, &tokens[..len]).unwrap();
            let from = part.positions;
            assert!(from <= len && (from > 0 || len < 150), "{name}: {from} of {len}");
            let found = feed(&*model, session, &tokens[from..], LEN);
            let n = want.len() / LEN;
            assert_same_bits(&found, &want[from * n..], &format!("{name}, from {from}"));
            model.close(session);
        }
        checked.extend(kinds(&loaded.program));
        names.push(name);
    }
    assert!(names.len() > 40, "{names:?}");
    assert_eq!(
        checked.into_iter().collect::<Vec<_>>(),
        ["attention", "keys", "latents", "states", "windows"]
    );
    testing::covered(&names.join(", "));
}

/// Few blocks of a long past.
fn few_blocks() -> ContextMemory {
    let small =
        ContextMemory { n_init: 64, n_local: 128, block: 64, ..ContextMemory::suited(1024) };
    ContextMemory { n_blocks: 2, ..small }
}

/// Few blocks of a long past: anchors, near and far keys, what queries said.
#[test]
fn policies_go_on_after_a_restart() {
    let program = tiny_model(&tiny_config("qwen2", 64, true), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 5);
    let all = Random::new(71).tokens(2400, 97);
    let choose = |anchor, token_step, layer_step| ContextMemory {
        anchor,
        token_step,
        layer_step,
        ..few_blocks()
    };
    let few = |anchor, token_step| ContextMemory {
        n_init: 0,
        n_supers: 1,
        ..choose(anchor, token_step, 1)
    };
    for (memory, n) in [
        (choose(BlockAnchor::Bounds, 1, 1), 610),
        (choose(BlockAnchor::Mass, 1, 1), 610),
        (choose(BlockAnchor::Products, 1, 1), 610),
        // within a run of tokens
        (choose(BlockAnchor::Bounds, 32, 2), 610),
        (ContextMemory { positions: FarPositions::Exact, ..choose(BlockAnchor::Mass, 4, 1) }, 610),
        (ContextMemory { smoothing: Smoothing::new(0.05), ..choose(BlockAnchor::Mean, 4, 1) }, 610),
        (few(BlockAnchor::Bounds, 1), 2210),
        (few(BlockAnchor::Products, 8), 2250),
    ] {
        assert_eq!(memory.looks_at_few(n + 89), memory.n_supers == 1, "{memory}");
        let tokens = &all[..n + 90];
        let policy = KvPolicy::Memory(memory);
        let options =
            CacheOptions { policy, ..CacheOptions::new(CacheType::Q8_0, CacheType::F16, 4096) };
        let dir = tempfile::tempdir().unwrap();
        let load = || {
            let cpu = keeping(dir.path(), &Options::default());
            cpu.load(Arc::clone(&program), &weights, &mut |_| ()).unwrap()
        };
        let model = load();
        let session = model.open(&options).unwrap();
        feed(&*model, session, &tokens[..n], n + 90);
        keep(&*model, "it", session);
        let want = feed(&*model, session, &tokens[n..], n + 90);
        drop(model);
        let model = load();
        let (session, part) = restore(&*model, "it", &options, tokens).unwrap();
        assert_eq!(part.positions, n);
        let found = feed(&*model, session, &tokens[n..], n + 90);
        assert_same_bits(&found, &want, &memory.to_string());
    }
}

fn qwen2() -> (Arc<Program>, MemoryWeights) {
    let program = tiny_model(&tiny_config("qwen2", 64, true), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 5);
    (program, weights)
}

/// Each part of what bits depend on: told, and nothing is taken.
#[test]
fn other_means_are_told_and_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Random::new(3).tokens(LEN, 97);
    let load = |options: &Options, arch: &str, seed: u64| {
        let program = tiny_model(&tiny_config(arch, 64, true), GgmlType::F32);
        let weights = MemoryWeights::random(&program, seed);
        keeping(dir.path(), options).load(program, &weights, &mut |_| ()).unwrap()
    };
    let plain = Options { isa: Some(kernels::Isa::NONE), ..Options::default() };
    let auto = Options { mla: MlaChoice::Auto, ..plain.clone() };
    for arch in ["qwen2", "deepseek2"] {
        let model = load(&auto, arch, 5);
        let session = model.open(&OPTIONS).unwrap();
        feed(&*model, session, &tokens, LEN);
        keep(&*model, arch, session);
    }
    let refused = |model: &dyn Model, name: &str, options: &CacheOptions, field: &str| {
        let kept = model.kept(KeptPlace::Conversations).unwrap();
        let about = kept.about(name, options).unwrap();
        let why = about.differs.unwrap_or_default();
        assert!(why.starts_with(&format!("made for {field} ")), "{field}: {why}");
        assert!(!why.contains('\n'), "{why}");
        let session = model.open(options).unwrap();
        let error = kept.restore(name, session, &tokens, &|| true).unwrap_err();
        assert!(
            matches!(&error, Error::Disk { problem, is_damage: false } if problem.contains(field)),
            "{error}"
        );
        assert_eq!(model.len(session).unwrap(), 0);
    };
    let model = load(&plain, "qwen2", 5);
    let q8 = CacheOptions { k: CacheType::Q8_0, ..OPTIONS };
    let few = CacheOptions { policy: KvPolicy::Memory(ContextMemory::suited(1024)), ..OPTIONS };
    refused(&*model, "qwen2", &q8, "cache types");
    refused(&*model, "qwen2", &few, "policy");
    refused(&*model, "deepseek2", &OPTIONS, "model");
    assert_eq!(restore(&*model, "qwen2", &OPTIONS, &tokens).unwrap().1.positions, LEN);
    drop(model);
    refused(&*load(&plain, "qwen2", 6), "qwen2", &OPTIONS, "model");
    let one_form = Options { mla: MlaChoice::Always(MlaForm::Elided), ..plain.clone() };
    refused(&*load(&one_form, "deepseek2", 5), "deepseek2", &OPTIONS, "latent form");
    if kernels::Isa::detect() == kernels::Isa::NONE {
        eprintln!("skipped: needs avx2");
    } else {
        let detected = Options { isa: None, ..plain };
        refused(&*load(&detected, "qwen2", 5), "qwen2", &OPTIONS, "instruction set");
    }
}

/// Where caches spill, what is kept is read from the one disk and put on the other; with little memory idle sessions let go.
#[test]
fn what_is_spilled_is_kept_and_what_has_no_room_makes_room() {
    let (program, weights) = qwen2();
    let tokens = Random::new(71).tokens(900, 97);
    let policy = KvPolicy::Memory(few_blocks());
    let options =
        CacheOptions { policy, ..CacheOptions::new(CacheType::F16, CacheType::F16, 1024) };
    let (dir, spill) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let asked = program::MemoryOptions { cache: options, sessions: 1, chunk: 64 };
    let plain = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let bound = plain.memory(&program, &asked).unwrap().least_cache;
    let storage = CacheStorage { memory: Some(bound), disk: Some(spill.path().into()) };
    let spills = Options { storage, ..Options::default() };
    let load = || {
        let cpu = keeping(dir.path(), &spills);
        cpu.load(Arc::clone(&program), &weights, &mut |_| ()).unwrap()
    };
    let model = load();
    let session = model.open(&options).unwrap();
    for part in tokens[..800].chunks(50) {
        feed(&*model, session, part, 900);
    }
    assert!(model.stats().spilled.written > 0, "nothing had to leave memory");
    keep(&*model, "it", session);
    let want = feed(&*model, session, &tokens[800..850], 900);
    drop(model);
    let model = load();
    // somebody else has the memory
    let other = model.open(&options).unwrap();
    for part in tokens[50..450].chunks(50) {
        feed(&*model, other, part, 900);
    }
    let (session, part) = restore(&*model, "it", &options, &tokens[..800]).unwrap();
    assert_eq!(part.positions, 800);
    let found = feed(&*model, session, &tokens[800..850], 900);
    assert_same_bits(&found, &want, "spilled");
}

/// Where memory is short the session goes that was used longest ago, and not one that has just come back.
#[test]
fn what_just_came_back_is_not_the_first_to_go() {
    let (program, weights) = qwen2();
    let dir = tempfile::tempdir().unwrap();
    let texts = [1, 2, 3].map(|seed| Random::new(seed).tokens(LEN, 97));
    let load = |memory| {
        let storage = CacheStorage { memory, disk: None };
        let cpu = keeping(dir.path(), &Options { storage, ..Options::default() });
        cpu.load(Arc::clone(&program), &weights, &mut |_| ()).unwrap()
    };
    let model = load(None);
    let session = model.open(&OPTIONS).unwrap();
    feed(&*model, session, &texts[0][..199], LEN);
    keep(&*model, "it", session);
    let bytes = model.cache_bytes(session).unwrap();
    drop(model);
    let model = load(Some(2 * bytes));
    let old = model.open(&OPTIONS).unwrap();
    feed(&*model, old, &texts[1][..199], LEN);
    let (back, _) = restore(&*model, "it", &OPTIONS, &texts[0][..199]).unwrap();
    let new = model.open(&OPTIONS).unwrap();
    feed(&*model, new, &texts[2], LEN);
    feed(&*model, back, &texts[0][199..], LEN);
    assert_eq!(model.stats().spilled.recomputed, 0, "it had to go");
    feed(&*model, old, &texts[1][199..], LEN);
    assert_eq!(model.stats().spilled.recomputed, 199);
}

/// Memory for one session alone, which is being written to disk when another needs it: at whatever moment, whether it was
/// closed meanwhile or not, the step waits for the writer and has the memory.
#[test]
fn a_session_that_is_written_gives_way_at_any_moment() {
    let (program, weights) = qwen2();
    let dir = tempfile::tempdir().unwrap();
    let load = |memory| {
        let storage = CacheStorage { memory, disk: None };
        let cpu = keeping(dir.path(), &Options { storage, ..Options::default() });
        cpu.load(Arc::clone(&program), &weights, &mut |_| ()).unwrap()
    };
    // no session may have more than each of these has
    let options = CacheOptions { capacity: 256, ..OPTIONS };
    let mut random = Random::new(13);
    let tokens: Vec<_> = (0..40).map(|_| random.tokens(LEN, 97)).collect();
    let model = load(None);
    let session = model.open(&options).unwrap();
    feed(&*model, session, &tokens[0], LEN);
    let bytes = model.cache_bytes(session).unwrap();
    drop(model);

    let model = load(Some(bytes));
    let (mut written, mut cancelled) = (0, 0);
    for (i, pair) in tokens.chunks_exact(2).cycle().take(200).enumerate() {
        let [first, second] = [0, 1].map(|_| model.open(&options).unwrap());
        feed(&*model, first, &pair[0], LEN);
        let wait = Duration::from_micros(random.bits() % 400);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let kept = model.kept(KeptPlace::Conversations).unwrap();
                kept.keep(&format!("{}", i % 8), first, b"mine")
            });
            std::thread::sleep(wait);
            if i % 2 == 0 {
                model.close(first);
            }
            feed(&*model, second, &pair[1], LEN);
            match writer.join().unwrap() {
                Ok(_) => written += 1,
                Err(Error::Cancelled | Error::Session(_)) => cancelled += 1,
                Err(error) => panic!("{error}"),
            }
        });
        model.close(first);
        model.close(second);
    }
    testing::covered(&format!("sessions that give way: {written} written, {cancelled} not"));
}

/// A flipped byte anywhere in a record: the session is refused as a whole, or none of its bytes was meant.
#[test]
fn damaged_blocks_are_refused() {
    let (program, weights) = qwen2();
    let dir = tempfile::tempdir().unwrap();
    let tokens = Random::new(3).tokens(LEN, 97);
    let load = || {
        let cpu = keeping(dir.path(), &Options::default());
        cpu.load(Arc::clone(&program), &weights, &mut |_| ()).unwrap()
    };
    let model = load();
    let session = model.open(&OPTIONS).unwrap();
    let want = feed(&*model, session, &tokens, LEN);
    model.truncate(session, 190).unwrap();
    keep(&*model, "it", session);
    drop(model);
    let path = dir.path().join("rooflight-kept/records");
    let whole = std::fs::read(&path).unwrap();
    let mut random = Random::new(9);
    let (mut refused, mut right) = (0, 0);
    for _ in 0..60 {
        let at = random.bits() as usize % whole.len();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[whole[at] ^ 32], at as u64).unwrap();
        let model = load();
        match restore(&*model, "it", &OPTIONS, &tokens) {
            Ok((session, part)) => {
                assert_eq!(part.positions, 190);
                let found = feed(&*model, session, &tokens[190..], LEN);
                assert_same_bits(&found, &want[190 * 97..], "what nobody reads was flipped");
                right += 1;
            }
            Err(Error::Disk { problem, is_damage: true }) => {
                assert!(
                    problem.contains("checksum") && !problem.contains("rooflight-kept"),
                    "{problem}"
                );
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        drop(model);
        file.write_all_at(&whole[at..=at], at as u64).unwrap();
    }
    assert!(refused > 20, "{refused} refused, {right} right");
}

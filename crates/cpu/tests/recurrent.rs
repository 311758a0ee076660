//! Every architecture whose memory recurs, or that chooses what it reads, on the CPU: the same bits for any cut of a prompt,
//! after going back, in forks and beside others.

use std::sync::atomic::{AtomicUsize, Ordering};

use ::models::GgufWeights;
use conformance::golden::{self, models};
use conformance::{Picky, Random, assert_same_bits};
use cpu::{Cpu, Options};
use gguf::Gguf;
use program::{
    CacheKind, CacheOptions, CacheStorage, CacheType, ContextMemory, DeviceShare, Division, Error,
    Executor, Hybrid, HybridOptions, KvPolicy, MemoryNeeds, MemoryOptions, Model, Outputs, Prompt,
    Sequence, SessionId, Step, StepOut,
};

const LEN: usize = 200;
const OPTIONS: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 512);

fn feed(model: &dyn Model, session: SessionId, tokens: &[u32], prompt: Option<Prompt>) -> Vec<f32> {
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    out.expect("a step runs").into_logits().logits
}

/// What tokens yield whose prompt is cut into chunks of lengths that `next` tells.
fn cut(model: &dyn Model, tokens: &[u32], mut next: impl FnMut() -> usize) -> Vec<f32> {
    let session = model.open(&OPTIONS).expect("a session opens");
    // in parts, the form of latent attention is that of the prompt
    let prompt = Some(Prompt { start: 0, len: tokens.len() });
    let (mut rest, mut all) = (tokens, Vec::new());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(next().clamp(1, rest.len()));
        all.extend(feed(model, session, chunk, prompt));
        let len = model.len(session).expect("it is open");
        if len.is_multiple_of(3) {
            model.commit(session, len).expect("it holds that many");
        }
        rest = after;
    }
    model.close(session);
    all
}

#[test]
fn every_architecture_that_recurs_or_chooses_gives_the_same_bits() {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let mut checked = Vec::new();
    for (name, file) in models() {
        let gguf = Gguf::from_bytes(file).expect("a model that was made");
        let loaded = ::models::load(&gguf).expect("a model that is supported");
        let recurs =
            |kind: &CacheKind| matches!(kind, CacheKind::State { .. } | CacheKind::Keys { .. });
        if !loaded.program.caches.iter().any(|cache| recurs(&cache.kind)) {
            continue;
        }
        let vocab = loaded.config.vocab_size;
        let model = cpu.load(loaded.program, &GgufWeights(&gguf), &mut |_| ());
        let model = model.unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut random = Random::new(name.len() as u64 + 7);
        let tokens = random.tokens(LEN, vocab);
        let want = cut(&*model, &tokens, || LEN);
        for chunk in [1, 7, 64, 100] {
            let found = cut(&*model, &tokens, || chunk);
            assert_same_bits(&found, &want, &format!("{name}, chunks of {chunk}"));
        }
        for _ in 0..3 {
            let found = cut(&*model, &tokens, || random.bits() as usize % 50);
            assert_same_bits(&found, &want, &format!("{name}, cuts at random places"));
        }
        back(&*model, &name, &tokens, &want, &mut random);
        checked.push(name);
    }
    assert!(checked.len() >= 30, "{checked:?}");
    eprintln!("covered: {}", checked.join(", "));
}

/// Truncations to any length, and forks there.
fn back(model: &dyn Model, name: &str, tokens: &[u32], want: &[f32], random: &mut Random) {
    let vocab = want.len() / tokens.len();
    let prompt = Some(Prompt { start: 0, len: tokens.len() });
    let session = model.open(&OPTIONS).expect("a session opens");
    feed(model, session, tokens, prompt);
    model.commit(session, tokens.len()).expect("it holds that many");
    for _ in 0..6 {
        let to = random.bits() as usize % tokens.len();
        let fork = model.fork(session, to).expect("it holds more");
        let reached = model.truncate(session, to).expect("it holds more");
        assert!(reached <= to, "{name}: {reached} of {to}");
        assert_eq!(model.len(fork).expect("it is open"), reached, "{name}: a fork");
        for session in [fork, session] {
            let found = feed(model, session, &tokens[reached..], prompt);
            let what = format!("{name}, from {reached} on after going back to {to}");
            assert_same_bits(&found, &want[reached * vocab..], &what);
        }
        model.close(fork);
        model.commit(session, tokens.len()).expect("it holds that many");
    }
    model.close(session);
}

/// What recurs, between layers on a device that fails, or beside which nobody wants a step any more: the session is as it was,
/// also where a long step left no row of before; and rows of a device that are taken back are not taken for its own tokens.
#[test]
fn layers_beside_a_device_that_fails() {
    for name in ["lfm2", "qwen35", "granitehybrid", "mamba2"] {
        let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
        let program = ::models::load(&gguf).expect("a model that is supported").program;
        let device = Picky::as_a_gpu();
        let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
        let share = DeviceShare::default();
        let division = Division::of(&program, &device, share.clone()).expect("it divides");
        let (storage, sessions) =
            (CacheStorage::default(), MemoryOptions { cache: OPTIONS, sessions: 1, chunk: 64 });
        let options = HybridOptions { share, storage, sessions };
        let hybrid = Hybrid::new(Box::new(cpu), Box::new(device.clone()), &division, options);
        assert!(division.crossings() > 0, "{name}: {}", hybrid.describe());
        let model =
            hybrid.load(program.clone(), &GgufWeights(&gguf), &mut |_| ()).expect("it loads");
        let mut random = Random::new(8);
        let tokens = random.tokens(LEN, program.vocab_size());
        let prompt = Some(Prompt { start: 0, len: LEN });
        let begun = || {
            let session = model.open(&OPTIONS).expect("a session opens");
            feed(&*model, session, &tokens[..70], prompt);
            feed(&*model, session, &tokens[70..73], prompt);
            session
        };
        let want = feed(&*model, begun(), &tokens[73..], prompt);
        let session = begun();
        for n in [1, 9, 40, LEN - 73] {
            let tokens = &tokens[73..73 + n];
            let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt, rows: &[] };
            let step = Step { sequences: &[sequence] };
            for nth in 1..=division.submissions() {
                device.fail(nth);
                let failed = model.step(&step);
                assert!(matches!(failed, Err(Error::Device { .. })), "{name}, {n} tokens");
                assert_eq!(model.len(session), Ok(73), "{name}, {n} tokens");
            }
            for most in [1, 3] {
                let asked = AtomicUsize::new(0);
                let go_on = || asked.fetch_add(1, Ordering::Relaxed) < most;
                let stopped = model.step_while(&step, &go_on).err();
                assert_eq!(stopped, Some(Error::Cancelled), "{name}, asked {most} times");
                assert_eq!(model.len(session), Ok(73), "{name}, {n} tokens");
            }
        }
        let found = feed(&*model, session, &tokens[73..], prompt);
        assert_same_bits(&found, &want, &format!("{name}, after steps that failed"));
        // rows that were never committed
        for to in [190, 100, 20] {
            let reached = model.truncate(session, to).expect("it holds more");
            assert!(
                reached <= to && model.len(session) == Ok(reached),
                "{name}: {reached} of {to}"
            );
            let found = feed(&*model, session, &tokens[reached..], prompt);
            let n = want.len().min(found.len());
            let what = format!("{name}, from {reached} on after going back to {to}");
            assert_same_bits(&found[found.len() - n..], &want[want.len() - n..], &what);
        }
    }
}

/// States alone, and beside attention; large states, and large rows.
const FEW: [&str; 4] = ["mamba2", "qwen35", "rwkv7", "lfm2"];

/// Most rows of a step.
const CHUNK: usize = 300;

/// A model whose caches lie in `storage`, and what it says that a session takes.
fn load(name: &str, storage: CacheStorage, cache: CacheOptions) -> (Box<dyn Model>, MemoryNeeds) {
    let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
    let program = ::models::load(&gguf).expect("a model that is supported").program;
    let cpu = Cpu::new(&Options { threads: Some(2), storage, ..Options::default() });
    let needs = cpu.memory(&program, &MemoryOptions { cache, sessions: 1, chunk: CHUNK });
    let model = cpu.load(program, &GgufWeights(&gguf), &mut |_| ()).expect("it loads");
    (model, needs.expect("it can be told"))
}

/// The least bound that a session opens with.
fn opens_with(name: &str, cache: CacheOptions) -> u64 {
    let (model, _) = load(name, CacheStorage { memory: Some(1), disk: None }, cache);
    match model.open(&cache) {
        Err(Error::CacheBudget { least, .. }) => least,
        other => panic!("{other:?}"),
    }
}

/// What is said in a conversation of `len` tokens with `session`: prompts, replies with wrong drafts, replies begun anew and
/// questions asked otherwise; and the last logits. `check` is called after each step.
fn conversation(
    model: &dyn Model,
    session: SessionId,
    len: usize,
    check: &dyn Fn(),
) -> (Vec<u32>, Vec<f32>) {
    let mut random = Random::new(len as u64);
    let (mut text, mut ends): (Vec<u32>, Vec<usize>) = (Vec::new(), Vec::new());
    let step = |tokens: &[u32], prompt| {
        let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        check();
        out.expect("memory is enough").into_logits().logits
    };
    let commit = |len| model.commit(session, len).expect("it holds that many");
    while text.len() < len {
        let longest = [30, 700][random.below(2)];
        let (mut held, mut n) = (text.len(), 1 + random.below(longest));
        if random.below(4) == 0 && !ends.is_empty() {
            // a reply begun anew, or a question asked otherwise
            let end: usize = ends[ends.len() - 1 - random.below(ends.len().min(4))];
            let back = end - 1 - random.below(end.min(20));
            held = model.truncate(session, back).expect("it holds more");
            text.truncate(back);
            ends.retain(|end| *end <= back);
            n = 1 + random.below(50);
        }
        text.extend(random.tokens(n, 500));
        let prompt = Prompt { start: held, len: text.len() - held };
        for chunk in text[held..].chunks(CHUNK) {
            step(chunk, Some(prompt));
            held += chunk.len();
            commit(held);
        }
        ends.push(text.len());
        for _ in 0..random.below(60) {
            let (n, right) = (1 + random.below(5), 1 + random.below(5));
            let tokens = random.tokens(n, 500);
            step(&tokens, None);
            text.extend(&tokens[..right.min(n)]);
            assert_eq!(model.truncate(session, text.len()), Ok(text.len()), "tentative ones go");
            commit(text.len());
        }
    }
    text.push(7);
    let last = step(&[7], None);
    (text, last)
}

/// A session of `len` tokens takes no more than is foretold, gives nothing up where it has that, and works with the least
/// that an error names; what comes of it has the bits of a session that begins there.
fn stays_within_bounds(name: &str, len: usize) {
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, len + 1500);
    let (plain, needs) = load(name, CacheStorage::default(), cache);
    let (least, most) = (needs.bounded_cache, needs.cache);
    assert!(opens_with(name, cache) <= least && least < most, "{name}: {least} of {most}");
    let session = plain.open(&cache).expect("a session opens");
    let taken = || plain.cache_bytes(session).expect("it is open");
    let (text, found) = conversation(&*plain, session, len, &|| assert!(taken() <= most));
    let computed = |model: &dyn Model| [model.stats().rows, model.stats().spilled.recomputed];
    let [rows, again_rows] = computed(&*plain);
    let again = plain.open(&cache).expect("a session opens");
    let mut want = Vec::new();
    for tokens in text.chunks(512) {
        let prompt = Some(Prompt { start: 0, len: text.len() });
        let sequence =
            Sequence { session: again, tokens, outputs: Outputs::LAST, prompt, rows: &[] };
        let out = plain.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        want = out.expect("no bound").into_logits().logits;
        plain.commit(again, plain.len(again).expect("it is open")).expect("it holds that many");
    }
    assert_same_bits(&found, &want, &format!("{name} after {} tokens", text.len()));
    // with the least, every way back begins at the beginning: too long for a long text
    let bounds =
        [("most", most), ("least", least)].into_iter().take(if len > 10_000 { 1 } else { 2 });
    for (what, bound) in bounds {
        let storage = CacheStorage { memory: Some(bound), disk: None };
        let (bounded, _) = load(name, storage, cache);
        let session = bounded.open(&cache).expect("the bound is enough");
        let (same, found) = conversation(&*bounded, session, len, &|| ());
        assert_eq!(same, text, "{name}: the same conversation");
        assert_same_bits(&found, &want, &format!("{name} with the {what} memory"));
        let more = computed(&*bounded);
        let same = more == [rows, again_rows];
        assert!(same || what == "least", "{name}: {more:?} for {rows}, {again_rows}");
        eprintln!("{name}: {} tokens, {bound} bytes at {what}: {more:?}", text.len());
    }
}

#[test]
fn memory_is_bounded() {
    FEW.into_iter().for_each(|name| stays_within_bounds(name, 2500));
}

#[test]
#[ignore = "takes minutes: the same over 200,000 tokens"]
fn memory_is_bounded_over_a_long_text() {
    ["mamba2", "rwkv7"].into_iter().for_each(|name| stays_within_bounds(name, 200_000));
}

/// Blocks on disk and blocks to choose from, beside states that stay: the bits of the same in memory.
#[test]
fn disks_and_policies_go_with_states() {
    let memory = ContextMemory {
        n_init: 64,
        n_local: 128,
        block: 64,
        n_blocks: 3,
        ..ContextMemory::suited(4096)
    };
    for name in ["qwen35", "lfm2", "jamba"] {
        for policy in [KvPolicy::Full, KvPolicy::Memory(memory)] {
            let options = CacheOptions::new(CacheType::F16, CacheType::F16, 4000);
            let cache = CacheOptions { policy, ..options };
            let (plain, needs) = load(name, CacheStorage::default(), cache);
            let want = {
                let session = plain.open(&cache).expect("a session opens");
                conversation(&*plain, session, 2500, &|| ())
            };
            let folder = tempfile::tempdir().expect("a folder can be made");
            let disk = Some(folder.path().to_owned());
            let storage = CacheStorage { memory: Some(needs.least_cache), disk };
            let (spilling, _) = load(name, storage, cache);
            let session = spilling.open(&cache).expect("the bound is enough");
            let found = conversation(&*spilling, session, 2500, &|| ());
            assert_eq!(found.0, want.0, "{name} {policy}: the same conversation");
            assert_same_bits(&found.1, &want.1, &format!("{name} {policy}"));
            let spilled = spilling.stats().spilled;
            assert!(policy == KvPolicy::Full || spilled.written > 0, "{name}: {spilled:?}");
        }
    }
}

/// States stay in memory: where there is nothing else a folder changes nothing, also not how little is enough.
#[test]
fn a_disk_is_nothing_to_states_alone() {
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 4000);
    let (_, needs) = load("mamba2", CacheStorage::default(), cache);
    assert_eq!(needs.least_cache, needs.bounded_cache);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let run = |disk| {
        let storage = CacheStorage { memory: Some(needs.bounded_cache), disk };
        let (model, _) = load("mamba2", storage, cache);
        let session = model.open(&cache).expect("the bound is enough");
        let (text, logits) = conversation(&*model, session, 1500, &|| ());
        let stats = model.stats();
        (text, logits, [stats.rows, stats.spilled.recomputed, stats.spilled.written])
    };
    let (without, with) = (run(None), run(Some(folder.path().to_owned())));
    assert_eq!((&without.0, without.2), (&with.0, with.2));
    assert_same_bits(&with.1, &without.1, "with a folder");
}

/// A session that is not at work lets go of all before one that is gives up where it can go back to.
#[test]
fn idle_sessions_go_before_ways_back() {
    for name in ["qwen35", "lfm2"] {
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 2048);
        let (_, needs) = load(name, CacheStorage::default(), cache);
        let storage = CacheStorage { memory: Some(needs.cache), disk: None };
        let (model, _) = load(name, storage, cache);
        let [idle, active] = [(); 2].map(|()| model.open(&cache).expect("a session opens"));
        let mut random = Random::new(3);
        for (session, len) in [(idle, 1900), (active, 300)] {
            let tokens = random.tokens(len, 500);
            for chunk in tokens.chunks(CHUNK) {
                feed(&*model, session, chunk, Some(Prompt { start: 0, len }));
                let held = model.len(session).expect("it is open");
                model.commit(session, held).expect("it holds that many");
            }
        }
        let mut len = 300;
        while model.cache_bytes(idle).expect("it is open") > 0 {
            assert!(len < 2000, "{name}: there is room for both");
            feed(&*model, active, &[7], None);
            len += 1;
            model.commit(active, len).expect("it holds that many");
        }
        let reached = model.truncate(active, 299).expect("it holds more");
        assert!(reached + 16 >= 300, "{name}: {reached} reached of a prompt of 300");
    }
}

//! What recurs: op by op, in sessions that go back and forth, and in as few submissions as other layers.

use conformance::golden;
use conformance::{Made, RECURRENT, Random, assert_close};
use gguf::Gguf;
use gpu::GpuExecutor;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{
    Act, CacheOptions, CacheStorage, CacheType, Error, Executor, LinearWeight, MemoryOptions,
    Model, OutputKind, Outputs, Prompt, Recorder, ScanKind, Sequence, SessionId, Step, StepOut,
    ValueId, WeightSpec,
};
use quant::GgmlType;

use crate::sessions::{feed, in_chunks, oracle};
use crate::{device, open};

const EXACT: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 1024);

/// A model of each rule: convolutions alone, state spaces of heads and of channels, delta nets, RWKV 6 and 7, decays that are
/// what they are.
const MODELS: [&str; 7] = ["lfm2", "mamba2", "mamba", "qwen35", "rwkv6", "rwkv7", "minimax-01"];

/// Most positions of a history.
const LEN: usize = 260;

#[test]
fn suite_recurrent() {
    let Some(device) = device() else { return };
    if testing::full("wgpu: the suite of what recurs") {
        conformance::run(device, RECURRENT);
    }
}

struct Golden {
    gguf: Gguf,
}

impl Golden {
    fn new(name: &str) -> Golden {
        Golden { gguf: Gguf::from_bytes(golden::model(name)).expect("a model that was made") }
    }

    fn load(&self, executor: &dyn Executor) -> Box<dyn Model> {
        let program = models::load(&self.gguf).expect("a model that is supported").program;
        let loaded = executor.load(program, &GgufWeights(&self.gguf), &mut |_| ());
        loaded.unwrap_or_else(|e| panic!("{}: {e}", executor.describe()))
    }
}

fn step(model: &dyn Model, session: SessionId, tokens: &[u32], prompt: Option<Prompt>) -> Vec<f32> {
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    out.unwrap_or_else(|e| panic!("a step of {} tokens: {e}", tokens.len())).into_logits().logits
}

/// Steps of many sizes, some committed, some taken back, forks, and ways far back, in any order: what comes of it is what the
/// interpreter makes of the same tokens.
#[test]
fn histories() {
    if !crate::is_tested("histories of what recurs") {
        return;
    }
    let Some(device) = device() else { return };
    let models = testing::cases(&MODELS, 3, "wgpu: histories of what recurs");
    for (seed, name) in models.iter().copied().enumerate() {
        let golden = Golden::new(name);
        let model = &*golden.load(device);
        let vocab = model.program().vocab_size();
        let mut random = Random::new(100 + seed as u64);
        let tokens = random.tokens(LEN, vocab);
        let want = oracle(&*golden.load(&Interpreter), &tokens, LEN);
        history(model, (name, vocab), &tokens, &want, &mut random);
        // beyond the rows that are kept, and before the first state
        let session = model.open(&EXACT).expect("a session opens");
        step(model, session, &tokens[..100], None);
        step(model, session, &tokens[100..160], None);
        let before = model.stats().spilled.recomputed;
        assert_eq!(model.truncate(session, 80), Ok(80), "{name}: nothing was committed");
        let found = step(model, session, &tokens[80..91], None);
        assert_close(&found, &want[80 * vocab..91 * vocab], 1e-9, &format!("{name}: far back"));
        assert_eq!(model.stats().spilled.recomputed - before, 80, "{name}");
        assert_eq!(model.len(session), Ok(91), "{name}");
    }
}

fn history(
    model: &dyn Model,
    (name, vocab): (&str, usize),
    tokens: &[u32],
    want: &[f32],
    random: &mut Random,
) {
    let mut session = model.open(&EXACT).expect("a session opens");
    let mut committed = 0;
    for action in 0..60 {
        let len = model.len(session).expect("it is open");
        let what = format!("{name}, action {action} at {len}, {committed} committed");
        match random.below(8) {
            0..4 if len < LEN => {
                let most = [1, 3, 20, 120][random.below(4)];
                let n = (1 + random.below(most)).min(LEN - len);
                let prompt = (random.below(2) == 0).then_some(Prompt { start: len, len: n });
                let found = step(model, session, &tokens[len..len + n], prompt);
                assert_close(&found, &want[len * vocab..(len + n) * vocab], 1e-9, &what);
            }
            // others take their places for a while
            4 if len + 30 < LEN => {
                let n = 1 + random.below(30);
                step(model, session, &tokens[..n], None);
                assert_eq!(model.truncate(session, len).expect("it is open"), len, "{what}");
            }
            5 => {
                committed = committed.max(len - random.below(len - committed + 1));
                model.commit(session, committed).expect("it holds that many");
            }
            6 => {
                let back = if random.below(3) == 0 { len } else { len - committed };
                let to = len - random.below(back + 1);
                let reached = model.truncate(session, to).expect("it holds more");
                assert!(reached == to || reached < committed, "{what}: {reached} of {to}");
                committed = committed.min(reached);
            }
            _ => {
                let fork = model.fork(session, len).expect("it holds that many");
                assert_eq!(model.len(fork).expect("it is open"), len, "{what}");
                let other = std::mem::replace(&mut session, fork);
                step(model, other, &tokens[..7], None);
                model.close(other);
            }
        }
    }
    model.close(session);
}

/// Sequences of several lengths in one step, each with a state of its own; one fails and loses nothing.
#[test]
fn together() {
    let Some(device) = device() else { return };
    for name in ["lfm2", "mamba2", "qwen35"] {
        let golden = Golden::new(name);
        let (model, reference) = (&*golden.load(device), &*golden.load(&Interpreter));
        let vocab = model.program().vocab_size();
        let tokens = |seed: usize, n| Random::new(seed as u64).tokens(n, vocab);
        let lens = [30, 3, 90, 1, 7];
        let pasts: Vec<_> = lens.iter().map(|n| tokens(*n, *n)).collect();
        let sessions: Vec<_> = pasts
            .iter()
            .map(|past| {
                let session = model.open(&EXACT).expect("a session opens");
                feed(model, session, past);
                session
            })
            .collect();
        let more: Vec<_> = (0..5).map(|i| tokens(50 + i, 1 + 9 * i)).collect();
        let bad = [1, vocab as u32];
        let sequence = |i: usize| Sequence {
            session: sessions[i],
            tokens: if i == 1 { &bad } else { &more[i] },
            outputs: Outputs::ALL,
            prompt: None,
            rows: &[],
        };
        let out = model.step(&Step { sequences: &[0, 1, 2, 3, 4].map(sequence) }).expect("a step");
        for (i, rows) in out.sequences.into_iter().enumerate() {
            let (past, more) = (&pasts[i][..], &more[i]);
            let found = match rows {
                Ok(rows) => rows.into_logits().logits,
                Err(why) => {
                    assert!(i == 1 && matches!(why, Error::Token { .. }), "{name}, {i}: {why}");
                    feed(model, sessions[1], more)
                }
            };
            let want = oracle(reference, &[past, more].concat(), more.len());
            assert_close(&found, &want, 1e-9, &format!("{name}: sequence {i}"));
        }
    }
}

/// With the least memory that is said to do, ways back are given up, and nothing else changes; what a session takes is never
/// more than was foretold.
#[test]
fn memory_is_bounded() {
    if !crate::is_tested("bounded memory of what recurs") {
        return;
    }
    let Some(device) = device() else { return };
    for name in ["lfm2", "mamba2", "qwen35"] {
        let golden = Golden::new(name);
        let program = models::load(&golden.gguf).expect("a model that is supported").program;
        let cache = CacheOptions { capacity: 300, ..EXACT };
        let options = MemoryOptions { cache, sessions: 1, chunk: 100 };
        let needs = device.memory(&program, &options).expect("it is supported");
        assert!(needs.bounded_cache < needs.cache, "{name}: {needs:?}");
        let tokens = Random::new(3).tokens(LEN, program.vocab_size());
        let want = oracle(&*golden.load(&Interpreter), &tokens, 1);
        for bound in [None, Some(needs.bounded_cache)] {
            let storage = CacheStorage { memory: bound, disk: None };
            let bounded = device.beside(&storage).expect("a device is shared");
            let told = bounded.memory(&program, &options).expect("it is supported").cache;
            assert_eq!(told, bound.unwrap_or(needs.cache), "{name}");
            let model = &*golden.load(&*bounded);
            assert_eq!(needs.weights, model.stats().weight_memory, "{name}");
            let session = model.open(&cache).expect("the bound is enough");
            let mut last = Vec::new();
            for (i, part) in [90, 100, 1, 9, 12, 40, 1, 1].into_iter().enumerate() {
                let len = model.len(session).expect("it is open");
                let part = &tokens[len..(len + part).min(LEN)];
                let prompt = (i % 2 == 0).then_some(Prompt { start: len, len: part.len() });
                last = step(model, session, part, prompt);
                model.commit(session, len + part.len()).expect("it holds that many");
                let taken = model.cache_bytes(session).expect("it is open");
                assert!(taken <= told, "{name}: {taken} of {told}");
            }
            let len = model.len(session).expect("it is open");
            if len < LEN {
                last = step(model, session, &tokens[len..], None);
            }
            let last = &last[last.len() - program.vocab_size()..];
            assert_close(last, &want, 1e-9, &format!("{name}, {bound:?}"));
        }
        let storage = CacheStorage { memory: Some(needs.bounded_cache / 2), disk: None };
        let bounded = device.beside(&storage).expect("a device is shared");
        let refused = golden.load(&*bounded).open(&cache).err();
        assert!(matches!(refused, Some(Error::CacheBudget { .. })), "{name}: {refused:?}");
    }
}

/// Made-up positions are there and finite, and more go on from them.
#[test]
fn made_up() {
    let Some(device) = device() else { return };
    for name in ["lfm2", "mamba2", "qwen35"] {
        let model = Golden::new(name).load(device);
        for len in [0, 5, 700] {
            let session = model.open(&EXACT).expect("a session opens");
            model.make_up(session, len).expect("there is room");
            assert_eq!(model.len(session), Ok(len));
            for tokens in [&[1, 2][..], &[3]] {
                assert!(feed(&*model, session, tokens).iter().all(|x| x.is_finite()), "{name}");
            }
            assert_eq!(model.truncate(session, len), Ok(len), "{name}");
            assert!(feed(&*model, session, &[1]).iter().all(|x| x.is_finite()), "{name}");
            model.close(session);
        }
    }
}

/// Dispatches of a layer that convolves: norm, product, gate, convolution, gate, product, norm, product, product. With
/// attention there are as many.
const BY_LAYER: u64 = 9;
/// Beside layers: embedding, two selections, norm, head.
const BESIDE: u64 = 5;

#[test]
fn a_step_is_one_submission_and_one_read_back() {
    // a device of its own: others count too
    let Some(device) = open() else { return };
    for name in MODELS {
        let model = Golden::new(name).load(&device);
        let program = model.program();
        let layers = program.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |n| n + 1);
        let session = model.open(&EXACT).expect("a session opens");
        for n in [40, 1, 3, 1] {
            let before = device.counts();
            feed(&*model, session, &Random::new(n).tokens(n as usize, program.vocab_size()));
            let after = device.counts();
            assert_eq!(after.submissions, before.submissions + 1, "{name}: submissions");
            assert_eq!(after.readbacks, before.readbacks + 1, "{name}: read-backs");
            let (found, most) =
                (after.dispatches - before.dispatches, BY_LAYER * layers as u64 + BESIDE);
            eprintln!("{name}: {found} dispatches of {layers} layers");
            assert!(name != "lfm2" || found <= most, "{name}: {found} dispatches of {most}");
        }
    }
}

/// Inputs that others read too, in more buffers than a kernel binds: they are brought together.
#[test]
fn inputs_in_many_buffers() {
    let Some(device) = device() else { return };
    inputs_of(device, 5, 7);
    inputs_of(device, 6, 19);
}

fn inputs_of(device: &GpuExecutor, key_dim: usize, value_dim: usize) {
    const HEADS: usize = 3;
    let r = Recorder::new();
    let weight = |name: &str, rows: usize, cols: usize| {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    };
    let record = || -> program::Result<ValueId> {
        let x = r.embed(weight("token_embd.weight", 41, 33))?;
        let made = |name: &str, groups: usize, dim: usize| {
            let weight = weight(&format!("{name}.weight"), groups * dim, 33);
            let y = r.linear(name, x, LinearWeight { weight, bias: None })?;
            r.view(&format!("{name}_heads"), y, groups)
        };
        let (q, k) = (made("q", HEADS, key_dim)?, made("k", HEADS, key_dim)?);
        let (v, b) = (made("v", HEADS, value_dim)?, made("b", HEADS, 1)?);
        let g = r.act("softplus", Act::Softplus, made("g", HEADS, key_dim)?)?;
        let g = r.scale("decay", g, -0.3)?;
        let b = r.act("beta", Act::Sigmoid, b)?;
        let y = r.scan("scan", ScanKind::Delta { eps: 1e-6 }, false, &[q, k, v, g, b])?;
        let mut sum = None;
        for (name, x) in [("y", y), ("q", q), ("k", k), ("v", v), ("g", g), ("b", b)] {
            let x = r.view(&format!("{name}_joined"), x, 1)?;
            let weight = weight(&format!("{name}_out.weight"), 21, r.shape(x).cols());
            let part = r.linear(&format!("{name}_out"), x, LinearWeight { weight, bias: None })?;
            sum = Some(match sum {
                Some(sum) => r.add(&format!("{name}_sum"), sum, part)?,
                None => part,
            });
        }
        r.select_rows("rows", sum.expect("there are some"))
    };
    let rows = record().expect("a valid program");
    let program = std::sync::Arc::new(r.finish(&[(OutputKind::Logits, rows)]));
    let made = Made::new(device, &program, 3);
    let tokens = Random::new(4).tokens(70, 41);
    let (model, reference) = (&*made.tested, &*made.oracle);
    let want = oracle(reference, &tokens, 70);
    for chunk in [70, 40, 9, 1] {
        let found = in_chunks(model, &tokens, chunk);
        assert_close(&found, &want, 1e-9, &format!("keys of {key_dim}, chunks of {chunk}"));
    }
}

/// Keys that lanes have no room for are the processor's.
#[test]
fn keys_that_are_too_long_are_refused_in_a_line() {
    let Some(device) = device() else { return };
    let told = |key_dim: usize| {
        let r = Recorder::new();
        let (name, ty) = ("token_embd.weight".into(), GgmlType::F32);
        let x = r.embed(r.weight(WeightSpec { name, ty, rows: 3, cols: key_dim, start: 0 }));
        let x = x.expect("it embeds");
        let y = r.scan("scan", ScanKind::Lightning { factor: 1.0 }, false, &[x, x, x]);
        let program = r.finish(&[(OutputKind::Rows, y.expect("a valid scan"))]);
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8);
        device.memory(&program, &MemoryOptions { cache, sessions: 1, chunk: 8 })
    };
    assert!(told(1024).is_ok());
    let why = told(1025).expect_err("they are too long").to_string();
    assert!(why.contains("`lightning_attention` with keys of 1025 numbers"), "{why}");
}

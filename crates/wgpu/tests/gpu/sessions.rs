//! Sessions: what is truncated, forked, committed, shared or run together is what the interpreter makes of the same tokens.

use conformance::{Made, Random, assert_close, tiny_config, tiny_model};
use program::{CacheOptions, CacheType, Error, Model, Outputs, Sequence, SessionId, Step, StepOut};
use quant::GgmlType;

use crate::device;

const EXACT: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 1024);
const HALF: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 1024);

pub(crate) fn feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Vec<f32> {
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    out.unwrap_or_else(|e| panic!("a step of {} tokens: {e}", tokens.len())).into_logits().logits
}

/// The logits of all of these tokens, fed to a new session in chunks.
pub(crate) fn in_chunks(model: &dyn Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let session = model.open(&EXACT).expect("a session opens");
    let logits = tokens.chunks(chunk).flat_map(|chunk| feed(model, session, chunk)).collect();
    model.close(session);
    logits
}

/// The logits of the last tokens after all of these.
pub(crate) fn oracle(model: &dyn Model, tokens: &[u32], last: usize) -> Vec<f32> {
    let logits = in_chunks(model, tokens, tokens.len());
    logits[logits.len() / tokens.len() * (tokens.len() - last)..].to_vec()
}

fn made(architecture: &str) -> Option<Made> {
    let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::F32);
    Some(Made::new(device()?, &program, 5))
}

/// Two sessions with a common past go different ways: what one writes, the other does not see. Positions 100 and 150 lie
/// within blocks, which are copied when they are written to.
#[test]
fn forks_and_truncations() {
    for architecture in ["llama", "qwen3", "gemma2", "qwen3moe", "deepseek2"] {
        let Some(made) = made(architecture) else { return };
        let (model, reference) = (&*made.tested, &*made.oracle);
        let [past, one, other] =
            [(1, 150), (2, 40), (3, 40)].map(|(seed, n)| Random::new(seed).tokens(n, 97));
        let a = model.open(&EXACT).expect("a session opens");
        feed(model, a, &past);
        let b = model.fork(a, 100).expect("it holds more");
        assert_eq!((model.len(a), model.len(b)), (Ok(150), Ok(100)));
        for (session, past, tokens, what) in
            [(a, &past[..], &one, "the forked"), (b, &past[..100], &other, "the fork")]
        {
            let found = feed(model, session, tokens);
            let want = oracle(reference, &[past, tokens].concat(), 40);
            assert_close(&found, &want, 1e-9, &format!("{architecture}: {what}"));
        }
        let reached = model.truncate(a, 60).expect("it holds more");
        assert_eq!(reached, 60, "nothing was committed");
        let found = feed(model, a, &other);
        let want = oracle(reference, &[&past[..60], &other].concat(), 40);
        assert_close(&found, &want, 1e-9, &format!("{architecture}: after a truncation"));
        // a fork of what is committed, whose window may have let go of blocks
        let len = model.len(b).expect("it is open");
        model.commit(b, len).expect("it holds that many");
        let c = model.fork(b, len).expect("it holds that many");
        model.close(b);
        let found = feed(model, c, &one);
        let all = [&past[..100], &other, &one].concat();
        let want = oracle(reference, &all, 40);
        assert_close(&found, &want, 1e-9, &format!("{architecture}: after the forked one closed"));
    }
}

/// Rows are selected where products read them: of some sequences all, the last or none, few and many.
#[test]
fn selected_rows_of_several_sequences() {
    let Some(device) = device() else { return };
    for (architecture, ty) in [
        ("qwen2", GgmlType::F32),
        ("qwen2", GgmlType::Q4_0),
        ("gemma2", GgmlType::F32),
        ("qwen2moe", GgmlType::F32),
        ("deepseek2", GgmlType::F32),
    ] {
        let made = Made::new(device, &tiny_model(&tiny_config(architecture, 64, false), ty), 5);
        let (model, reference) = (&*made.tested, &*made.oracle);
        let [none, last, all] = [Outputs::NONE, Outputs::LAST, Outputs::ALL];
        for (case, step) in [
            [(3, none), (2, all), (5, last), (1, last)],
            [(9, last), (1, none), (40, last), (2, last)],
            [(21, none), (33, all), (40, last), (3, all)],
        ]
        .into_iter()
        .enumerate()
        {
            let tokens = step.map(|(n, _)| Random::new(n as u64).tokens(n, 97));
            let sessions = step.map(|_| model.open(&EXACT).expect("a session opens"));
            let sequence = |i: usize| Sequence {
                session: sessions[i],
                tokens: &tokens[i],
                outputs: step[i].1,
                prompt: None,
                rows: &[],
            };
            let sequences = [0, 1, 2, 3].map(sequence);
            let out = model.step(&Step { sequences: &sequences }).expect("a step");
            for (i, rows) in out.sequences.into_iter().enumerate() {
                let n = step[i].1.count(tokens[i].len());
                let found = rows.expect("a sequence").into_logits().logits;
                let want = oracle(reference, &tokens[i], n);
                let what = format!("{architecture}, step {case}, sequence {i}");
                assert_eq!(found.len(), 97 * n, "{what}");
                if n > 0 {
                    assert_close(&found, &want, 1e-9, &what);
                }
                model.close(sessions[i]);
            }
        }
    }
}

/// Sequences of several lengths and kinds of cache in one step, one of which fails.
#[test]
fn together() {
    for architecture in ["qwen2", "qwen2moe", "deepseek2"] {
        let Some(made) = made(architecture) else { return };
        together_of(architecture, &made);
    }
}

fn together_of(architecture: &str, made: &Made) {
    let (model, reference) = (&*made.tested, &*made.oracle);
    let lens = [30, 3, 270, 1, 7];
    let pasts: Vec<_> = lens.iter().map(|n| Random::new(*n as u64).tokens(*n, 97)).collect();
    let sessions: Vec<_> = (pasts.iter().enumerate())
        .map(|(i, past)| {
            let options = if i % 2 == 0 { &EXACT } else { &HALF };
            let session = model.open(options).expect("a session opens");
            feed(model, session, past);
            session
        })
        .collect();
    let more: Vec<_> = (0..5).map(|i| Random::new(50 + i).tokens(1 + 3 * i as usize, 97)).collect();
    let bad = [1, 97];
    let sequence = |i: usize| Sequence {
        session: sessions[i],
        tokens: if i == 1 { &bad } else { &more[i] },
        outputs: Outputs::ALL,
        prompt: None,
        rows: &[],
    };
    let step = [0, 1, 2, 3, 4].map(sequence);
    let out = model.step(&Step { sequences: &step }).expect("a step");
    for (i, rows) in out.sequences.into_iter().enumerate() {
        if i == 1 {
            assert_eq!(rows.err(), Some(Error::Token { token: 97, vocab_size: 97 }));
            assert_eq!(model.len(sessions[1]), Ok(3), "a refused sequence adds no rows");
            continue;
        }
        let found = rows.expect("it can run").into_logits().logits;
        let want = oracle(reference, &[&pasts[i][..], &more[i]].concat(), more[i].len());
        let bound = if i % 2 == 0 { 1e-9 } else { 1e-5 };
        assert_close(&found, &want, bound, &format!("{architecture}: sequence {i}"));
    }
}

/// Prompts and steps of all widths between the kernels' tiles give what one step gives.
#[test]
fn any_cut() {
    if !crate::is_tested("any cut of a prompt") {
        return;
    }
    let models = [("llama", 260), ("qwen2moe", 140), ("deepseek2", 140)];
    for (architecture, n) in testing::cases(&models, 1, "wgpu: any cut of a prompt").iter().copied()
    {
        let Some(made) = made(architecture) else { return };
        let (model, reference) = (&*made.tested, &*made.oracle);
        let tokens = Random::new(9).tokens(n, 97);
        let want = oracle(reference, &tokens, tokens.len());
        for chunk in [1, 4, 5, 33, 128, 259] {
            let found = in_chunks(model, &tokens, chunk);
            assert_close(&found, &want, 1e-9, &format!("{architecture}, chunks of {chunk}"));
        }
    }
}

/// A step that cannot be launched, of a session whose rows had made the caches grow, leaves the others what they hold.
#[test]
fn a_step_that_fails_loses_nothing() {
    let Some(made) = made("llama") else { return };
    let (model, reference) = (&*made.tested, &*made.oracle);
    let long = CacheOptions { capacity: 100_000, ..HALF };
    let [past, more] = [(1, 150), (2, 40)].map(|(seed, n)| Random::new(seed).tokens(n, 97));
    let a = model.open(&EXACT).expect("a session opens");
    feed(model, a, &past);
    // more rows than there may be workgroups in a direction
    let b = model.open(&long).expect("a session opens");
    let tokens = vec![1; 66_000];
    let outputs = Outputs::NONE;
    let sequence = Sequence { session: b, tokens: &tokens, outputs, prompt: None, rows: &[] };
    let refused = model.step(&Step { sequences: &[sequence] }).err();
    let refused = refused.expect("66000 rows at once").to_string();
    assert!(refused.contains("workgroups"), "caches had grown before: {refused}");
    let found = feed(model, a, &more);
    let want = oracle(reference, &[&past[..], &more].concat(), 40);
    assert_close(&found, &want, 1e-9, "after another's step failed");
}

/// What an earlier session left in f32 is no half float of a made-up past.
#[test]
fn made_up_of_what_was_used() {
    let Some(made) = made("llama") else { return };
    let model = &*made.tested;
    let first = model.open(&EXACT).expect("a session opens");
    feed(model, first, &Random::new(4).tokens(700, 97));
    model.close(first);
    let session = model.open(&HALF).expect("a session opens");
    model.make_up(session, 700).expect("there is room");
    assert!(feed(model, session, &[1, 2]).iter().all(|x| x.is_finite()));
}

/// Made-up rows are there and finite; what is beyond the context is refused.
#[test]
fn made_up() {
    let Some(made) = made("qwen2") else { return };
    let model = &*made.tested;
    let session = model.open(&HALF).expect("a session opens");
    model.make_up(session, 700).expect("there is room");
    assert_eq!(model.len(session), Ok(700));
    assert!(feed(model, session, &[1, 2]).iter().all(|x| x.is_finite()));
    let full = model.make_up(session, 1025).err();
    assert!(matches!(full, Some(Error::Length { .. })), "{full:?}");
    let empty = model.open(&HALF).expect("a session opens");
    let full = model.make_up(empty, 1025).err();
    assert_eq!(full, Some(Error::ContextFull { wanted: 1025, capacity: 1024 }));
}

//! Every architecture whose memory recurs, on the CPU: the same bits for any cut of a prompt, after going back, in forks and
//! beside others.

use ::models::GgufWeights;
use conformance::golden::models;
use conformance::{Random, assert_same_bits};
use cpu::{Cpu, Options};
use gguf::Gguf;
use program::{
    CacheKind, CacheOptions, CacheType, Executor, Model, Outputs, Prompt, Sequence, SessionId,
    Step, StepOut,
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
fn every_recurrent_architecture_gives_the_same_bits() {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let mut checked = Vec::new();
    for (name, file) in models() {
        let gguf = Gguf::from_bytes(file).expect("a model that was made");
        let loaded = ::models::load(&gguf).expect("a model that is supported");
        let recurs = |kind: &CacheKind| matches!(kind, CacheKind::State { .. });
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
    assert!(checked.len() >= 22, "{checked:?}");
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

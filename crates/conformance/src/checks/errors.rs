//! What is refused, with the right error, and without a trace in any session.

use program::{CacheOptions, Error, Executor, Model, Outputs, Sequence, SessionId, Step, StepOut};
use quant::GgmlType;

use crate::compare::assert_alike;
use crate::made::{EXACT, all_logits, feed};
use crate::{Made, MemoryWeights, Random, tiny_config, tiny_model};

fn model(executor: &dyn Executor) -> Box<dyn Model> {
    Made::new(executor, &tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F32), 4).tested
}

fn try_step(model: &dyn Model, sequences: &[(SessionId, &[u32])]) -> program::Result<StepOut> {
    let sequences: Vec<_> = sequences
        .iter()
        .map(|&(session, tokens)| Sequence {
            session,
            tokens,
            outputs: Outputs::LAST,
            prompt: None,
            rows: &[],
        })
        .collect();
    model.step(&Step { sequences: &sequences })
}

pub(super) fn step(executor: &dyn Executor) {
    let model = model(executor);
    let prompt = Random::new(40).tokens(10, 97);
    let small = CacheOptions { capacity: 12, ..EXACT };
    let [a, b] = [&EXACT, &small].map(|options| {
        let session = model.open(options).expect("a session opens");
        feed(&*model, session, &prompt, Outputs::NONE);
        session
    });
    let closed = model.open(&EXACT).expect("a session opens");
    model.close(closed);

    let refused =
        |bad: (SessionId, &[u32])| try_step(&*model, &[bad]).and_then(StepOut::single).err();
    let token = refused((b, &[5, 97]));
    assert!(
        matches!(token, Some(Error::Token { token: 97, vocab_size: 97 })),
        "token 97 of 97: {token:?}"
    );
    let token = refused((b, &[u32::MAX]));
    assert!(matches!(token, Some(Error::Token { .. })), "token u32::MAX: {token:?}");
    let full = refused((b, &[1, 2, 3]));
    assert!(
        matches!(full, Some(Error::ContextFull { wanted: 13, capacity: 12 })),
        "13 of 12 positions: {full:?}"
    );
    let unknown = refused((closed, &[1]));
    assert!(
        matches!(unknown, Some(Error::Session(id)) if id == closed.0),
        "a closed session: {unknown:?}"
    );
    // The first sequence is fine each time: it must not have moved either.
    let whole = |bad: (SessionId, &[u32])| try_step(&*model, &[(a, &[1, 2]), bad]).err();
    assert!(whole((b, &[])).is_some(), "a sequence without tokens is accepted");
    assert!(whole((a, &[3])).is_some(), "one session twice in a step is accepted");

    for session in [a, b] {
        assert_eq!(model.len(session).expect("it is open"), 10, "length after refused steps");
        let found = feed(&*model, session, &[7, 8], Outputs::ALL);
        let want = all_logits(&*model, &EXACT, &[&prompt[..], &[7, 8]].concat(), 12);
        assert_alike(executor, &found, &want[10 * 97..], "going on after refused steps");
    }
    assert!(
        try_step(&*model, &[]).is_ok_and(|out| out.sequences.is_empty()),
        "a step without sequences"
    );
}

pub(super) fn session(executor: &dyn Executor) {
    let model = model(executor);
    let session = model.open(&EXACT).expect("a session opens");
    feed(&*model, session, &[1, 2, 3], Outputs::NONE);
    let beyond = [
        model.truncate(session, 4).map(|_| ()),
        model.commit(session, 4),
        model.fork(session, 4).map(|_| ()),
    ];
    for result in beyond {
        assert!(
            matches!(result, Err(Error::Length { len: 3, wanted: 4 })),
            "4 of 3 positions: {result:?}"
        );
    }
    model.close(session);
    model.close(session);
    let gone = [
        model.truncate(session, 0).map(|_| ()),
        model.reuse(session, &[1]).map(|_| ()),
        model.commit(session, 0),
        model.fork(session, 0).map(|_| ()),
        model.len(session).map(|_| ()),
        model.cache_bytes(session).map(|_| ()),
    ];
    for result in gone {
        assert!(
            matches!(result, Err(Error::Session(id)) if id == session.0),
            "a closed session: {result:?}"
        );
    }
}

pub(super) fn non_finite(executor: &dyn Executor) {
    let program = tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F32);
    let mut weights = MemoryWeights::random(&program, 4);
    let table = program.weights.iter().find(|w| w.name == "token_embd.weight").expect("it embeds");
    let mut rows: Vec<f32> = (0..97 * 64).map(|i| (i % 7) as f32 - 3.0).collect();
    rows[5 * 64 + 9] = f32::NAN;
    rows[6 * 64 + 9] = f32::INFINITY;
    weights.set(table, &rows);
    let model = Made::with(executor, &program, &weights).tested;
    let session = model.open(&EXACT).expect("a session opens");
    feed(&*model, session, &[1, 2, 3], Outputs::LAST);
    for token in [5, 6] {
        let error = try_step(&*model, &[(session, &[4, token])]).and_then(StepOut::single).err();
        assert!(
            matches!(error, Some(Error::NonFinite { position: 4 })),
            "NaN or infinity in row {token}: {error:?}"
        );
        assert_eq!(model.len(session).expect("it is open"), 3, "length after non-finite logits");
    }
    let found = feed(&*model, session, &[4], Outputs::ALL);
    let want = all_logits(&*model, &EXACT, &[1, 2, 3, 4], 4);
    assert_alike(executor, &found, &want[3 * 97..], "going on after non-finite logits");
}

pub(super) fn load(executor: &dyn Executor) {
    let program = tiny_model(&tiny_config("qwen2", 64, false), GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 4);
    let mut seen = Vec::new();
    executor.load(program.clone(), &weights, &mut |p| seen.push(p)).map(|_| ()).expect("it loads");
    assert!(seen.is_sorted_by_key(|p| p.done), "progress goes back");
    assert!(
        seen.last().is_some_and(|p| p.done == p.total && p.total > 0),
        "progress ends at {:?}",
        seen.last()
    );

    let mut without = weights;
    without.remove("blk.1.ffn_down.weight");
    let error = executor.load(program, &without, &mut |_| ()).err();
    let named =
        matches!(&error, Some(Error::Weight { name, .. }) if name == "blk.1.ffn_down.weight");
    assert!(named, "a missing tensor: {error:?}");
}

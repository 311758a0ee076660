//! Who waits for a step: nobody but another step, and who changes a session that it uses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use program::{CacheOptions, Error, Executor, Model, Outputs, Sequence, SessionId, Step, StepOut};
use quant::GgmlType;

use crate::made::{EXACT, all_logits, feed};
use crate::{Made, Random, assert_same_bits, tiny_config, tiny_model};

/// A step should take so long that others can be seen to wait or not.
const LONG: Duration = Duration::from_millis(150);
/// Most tokens of a step.
const MOST: usize = 8192;

fn model(executor: &dyn Executor) -> Box<dyn Model> {
    Made::new(executor, &tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F32), 4).tested
}

/// A step of `n` tokens in a session of its own, and the longest of all calls made meanwhile.
fn beside_a_step(model: &dyn Model, n: usize) -> (Duration, Duration) {
    let options = CacheOptions { capacity: MOST, ..EXACT };
    let session = model.open(&options).expect("a session opens");
    let tokens = Random::new(5).tokens(n, 97);
    let sequence =
        Sequence { session, tokens: &tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let running = AtomicBool::new(true);
    let times = std::thread::scope(|scope| {
        let step = scope.spawn(|| {
            let start = Instant::now();
            let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
            running.store(false, Ordering::Release);
            out.expect("a step");
            start.elapsed()
        });
        let mut slowest = Duration::ZERO;
        while running.load(Ordering::Acquire) {
            let calls: [&dyn Fn(); 5] = [
                &|| assert!(model.len(session).is_ok(), "it is open"),
                &|| assert!(model.cache_bytes(session).is_ok(), "it is open"),
                &|| assert!(model.stats().weight_memory > 0, "it has weights"),
                &|| drop(model.phases()),
                &|| model.close(model.open(&options).expect("another session opens")),
            ];
            for call in calls {
                let start = Instant::now();
                call();
                slowest = slowest.max(start.elapsed());
            }
        }
        (step.join().expect("no panic"), slowest)
    });
    model.close(session);
    times
}

pub(super) fn others_do_not_wait(executor: &dyn Executor) {
    let model = &*model(executor);
    let mut n = 256;
    while n < MOST && beside_a_step(model, n).0 < LONG {
        n *= 2;
    }
    // a busy machine may hold up a call by chance, but not each time for as long as a step
    let tries: Vec<_> = (0..5).map(|_| beside_a_step(model, n)).collect();
    assert!(
        tries.iter().any(|(step, slowest)| 3 * *slowest < *step),
        "steps of {n} tokens and the slowest call beside each: {tries:?}"
    );
}

/// What is done to a session while a step uses it takes effect before or after the step, never within.
pub(super) fn changes_in_a_step(executor: &dyn Executor) {
    let model = &*model(executor);
    let (prompt, more) = (Random::new(6).tokens(40, 97), Random::new(7).tokens(200, 97));
    let opened = || {
        let session = model.open(&EXACT).expect("a session opens");
        feed(model, session, &prompt, Outputs::NONE);
        session
    };
    let logits = |start: &[u32]| {
        let all = all_logits(model, &EXACT, &[start, &more].concat(), 240);
        all[start.len() * 97..].to_vec()
    };
    let wants = [logits(&prompt), logits(&prompt[..10])];
    let step_beside = |session: SessionId, change: &(dyn Fn() + Sync)| {
        let sequence =
            Sequence { session, tokens: &more, outputs: Outputs::ALL, prompt: None, rows: &[] };
        std::thread::scope(|scope| {
            let changed = scope.spawn(change);
            let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
            changed.join().expect("no panic");
            out.map(|rows| rows.into_logits().logits)
        })
    };
    for _ in 0..4 {
        let session = opened();
        let found = step_beside(session, &|| {
            assert_eq!(model.truncate(session, 10), Ok(10), "it holds 10");
        });
        let found = found.expect("a step");
        let first = model.len(session).expect("it is open") == 210;
        assert_same_bits(&found, &wants[usize::from(first)], "a step beside a truncation");
        assert!(first || model.len(session) == Ok(10), "length after a truncation");
        model.close(session);

        let session = opened();
        match step_beside(session, &|| model.close(session)) {
            Ok(found) => assert_same_bits(&found, &wants[0], "a step beside a close"),
            Err(error) => assert_eq!(error, Error::Session(session.0), "a step beside a close"),
        }
        assert_eq!(model.len(session), Err(Error::Session(session.0)), "after it was closed");
    }
}

//! What the oracle answers from memory is what the interpreter answers.

use std::sync::Arc;

use conformance::{MemoryWeights, Oracle, Random, tiny_config, tiny_model};
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheType, Executor, Model, Outputs, Result, Sequence, SessionId, Step, StepOut,
};
use quant::GgmlType;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 64);

fn feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Result<Vec<u32>> {
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    Ok(out.into_logits().logits.iter().map(|x| x.to_bits()).collect())
}

/// What comes of some of everything, in an order that `seed` chooses: steps of known and unknown sessions, forks, truncations.
fn history(model: &dyn Model, seed: u64, n: usize) -> Vec<String> {
    let (mut random, mut sessions) = (Random::new(seed), vec![SessionId(9)]);
    let mut told = Vec::new();
    for i in 0..n {
        let id = sessions[random.below(sessions.len())];
        let len = random.below(9);
        told.push(match random.below(8) {
            0 => {
                sessions.extend(model.open(&CACHE));
                format!("{i}: {sessions:?}")
            }
            1 => {
                let fork = model.fork(id, len);
                sessions.extend(fork.clone());
                format!("{i}: fork {fork:?}")
            }
            2 => format!("{i}: truncate {:?}", model.truncate(id, len)),
            3 => format!("{i}: commit {:?}", model.commit(id, len)),
            4 => format!("{i}: {:?} positions", model.len(id)),
            5 => {
                model.close(id);
                format!("{i}: closed")
            }
            _ => format!("{i}: {:?}", feed(model, id, &random.tokens(1 + len, 97))),
        });
    }
    told
}

#[test]
fn it_answers_as_the_interpreter_does() {
    let program = tiny_model(&tiny_config("qwen2", 32, true), GgmlType::F32);
    let load = |executor: &dyn Executor, seed| {
        let weights = MemoryWeights::random(&program, seed);
        executor.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads")
    };
    for seed in 1..9 {
        let want = history(&*load(&Interpreter, 3), seed, 60);
        // at first all is new, then nothing is, then what follows half of it
        for n in [60, 60, 30] {
            let model = load(&Oracle, 3);
            assert_eq!(history(&*model, seed, n), want[..n], "history {seed}");
            let session = model.open(&CACHE).expect("a session opens");
            let reference = load(&Interpreter, 3);
            history(&*reference, seed, n);
            let other = reference.open(&CACHE).expect("a session opens");
            let tokens = Random::new(seed + n as u64).tokens(7, 97);
            assert_eq!(feed(&*model, session, &tokens), feed(&*reference, other, &tokens));
        }
        // another file's answers are not its
        let other = history(&*load(&Oracle, 4), seed, 60);
        assert_eq!(other, history(&*load(&Interpreter, 4), seed, 60));
        assert_ne!(other, want);
    }
}

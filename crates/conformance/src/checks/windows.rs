//! Models whose attention has windows on some layers, end to end.

use program::{Executor, Mask, Outputs};
use quant::GgmlType;

use super::{models, sessions};
use crate::made::{EXACT, all_logits, feed};
use crate::{Family, Made, Random, assert_same_bits, tiny_config, tiny_model};

/// Windows within a block of the cache, of one block, and over several; one position, and more than there are.
pub(super) fn models(executor: &dyn Executor) {
    for architecture in Family::Windows.architectures().iter().copied() {
        for tied in [false, true] {
            models::check(executor, &tiny_config(architecture, 64, tied), GgmlType::F32, 1e-9);
        }
        for window in [1, 7, 32, 33, 500] {
            let mut config = tiny_config(architecture, 64, true);
            config.layers[0].score.mask = Mask::Window(window);
            models::check(executor, &config, GgmlType::F32, 1e-9);
        }
        for (ty, bound) in [(GgmlType::F16, 1e-5), (GgmlType::Q8_0, 1e-3), (GgmlType::Q4_0, 1e-3)] {
            models::check(executor, &tiny_config(architecture, 64, false), ty, bound);
        }
    }
}

pub(super) fn sessions(executor: &dyn Executor) {
    for architecture in Family::Windows.architectures().iter().copied() {
        sessions::chunks_of(executor, architecture);
        sessions::rollback_of(executor, architecture);
        sessions::fork_of(executor, architecture);
        sessions::together_of(executor, architecture);
        sessions::committed_of(executor, architecture);
        sessions::reuse_of(executor, architecture);
    }
}

/// What a window leaves behind when rows are committed changes no logits, and is computed again where it is wanted again.
pub(super) fn left_behind(executor: &dyn Executor) {
    const LEN: usize = 700;
    for architecture in Family::Windows.architectures().iter().copied() {
        let config = tiny_config(architecture, 64, false);
        let model = Made::new(executor, &tiny_model(&config, GgmlType::Q8_0), 4).tested;
        let tokens = Random::new(33).tokens(LEN, config.vocab_size);
        let want = all_logits(&*model, &EXACT, &tokens, LEN);
        let session = model.open(&EXACT).expect("a session opens");
        let mut found = Vec::new();
        for chunk in tokens.chunks(90) {
            found.extend(feed(&*model, session, chunk, Outputs::ALL));
            let len = model.len(session).expect("it is open");
            model.commit(session, len).expect("it holds that many");
        }
        assert_same_bits(&found, &want, &format!("{architecture}, committed chunk by chunk"));
        for keep in [690, 300, 24, 23, 0] {
            let what = format!("{architecture}, {LEN} committed positions truncated to {keep}");
            let fork = model.fork(session, keep).expect("the session holds more");
            let reached = model.len(fork).expect("it is open");
            assert!(reached <= keep, "{what}: a fork at {reached}");
            assert_eq!(model.truncate(session, keep).expect("it holds more"), reached, "{what}");
            for session in [session, fork] {
                let found = feed(&*model, session, &tokens[reached..], Outputs::ALL);
                assert_same_bits(&found, &want[reached * config.vocab_size..], &what);
            }
            model.close(fork);
        }
        model.close(session);
    }
}

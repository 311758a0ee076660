//! Replies of two executors side by side.

use std::sync::Arc;

use conformance::{MemoryWeights, Replies, ReplyRules, tiny_config, tiny_model};
use program::Executor;
use program::interpreter::Interpreter;
use quant::GgmlType;

const RULES: ReplyRules = ReplyRules { prompts: 8, reply: 1, most_nmse: 1e-4 };

/// A judgement that nothing can fail says nothing.
#[test]
fn what_differs_is_told() {
    let good = Replies { prompts: 8, near_ties: 2, wrong: Vec::new(), nmse: 1e-5 };
    assert!(good.agree(&RULES));
    assert!(!Replies { near_ties: 3, ..good.clone() }.agree(&RULES));
    assert!(!Replies { nmse: 1e-3, ..good.clone() }.agree(&RULES));
    assert!(!Replies { nmse: f64::INFINITY, ..good.clone() }.agree(&RULES));
    assert!(!Replies { wrong: vec!["token 1".into()], ..good }.agree(&RULES));
}

#[test]
fn other_weights_make_other_replies() {
    let program = tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F32);
    let load = |seed| {
        let weights = MemoryWeights::random(&program, seed);
        Interpreter.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads")
    };
    let mut same = Replies { prompts: 8, ..Replies::default() };
    let mut other = same.clone();
    for first in 0..8 {
        same.compare([&*load(1), &*load(1)], vec![first, 5], &RULES).expect("it runs");
        other.compare([&*load(2), &*load(1)], vec![first, 5], &RULES).expect("it runs");
    }
    assert!(same.agree(&RULES) && same.near_ties == 0, "{same:?}");
    assert!(other.wrong.len() > 4 && other.nmse > 0.1, "{other:?}");
}

//! The oracle passes its own suite, and agrees with another program's logits.

use conformance::golden::{self, golden_case};
use program::interpreter::Interpreter;

#[test]
fn suite() {
    conformance::run(&Interpreter);
}

#[test]
fn golden_bundled() {
    let cases = golden::bundled();
    assert_eq!(cases.len(), 2);
    for case in &cases {
        golden_case(&Interpreter, case).assert(case);
    }
}

#[test]
fn golden_quantized() {
    match golden::quantized() {
        Err(why) => golden::skipped(&why),
        Ok(cases) => cases.iter().for_each(|case| golden_case(&Interpreter, case).assert(case)),
    }
}

#[test]
fn golden_plain() {
    let cases = match golden::plain() {
        Err(why) => return golden::skipped(&why),
        Ok(cases) => cases,
    };
    let mut architectures = Vec::new();
    for case in &cases {
        let outcome = golden_case(&Interpreter, case);
        outcome.assert(case);
        architectures.push(outcome.architecture);
    }
    for a in models::ARCHITECTURES {
        assert!(
            architectures.iter().any(|name| name == a.name()),
            "no golden case of `{}`",
            a.name()
        );
    }
}

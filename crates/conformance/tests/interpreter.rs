//! The oracle passes its own suite, and agrees with another program's logits.

use conformance::golden::{self, Case, Outcome, golden_case};
use program::interpreter::Interpreter;

#[test]
fn suite() {
    conformance::run(&Interpreter);
}

/// Run the cases and say how close they are (`-- --nocapture` shows it).
fn check(cases: &[Case]) -> Vec<Outcome> {
    let run = |case: &Case| {
        let outcome = golden_case(&Interpreter, case);
        eprintln!("{}: {outcome}", case.name);
        outcome.assert(case);
        outcome
    };
    cases.iter().map(run).collect()
}

#[test]
fn golden_bundled() {
    assert_eq!(check(&golden::bundled()).len(), 2);
}

#[test]
fn golden_quantized() {
    match golden::quantized() {
        Err(why) => golden::skipped(&why),
        Ok(cases) => assert!(!check(&cases).is_empty()),
    }
}

#[test]
fn golden_plain() {
    let outcomes = match golden::plain() {
        Err(why) => return golden::skipped(&why),
        Ok(cases) => check(&cases),
    };
    for a in models::ARCHITECTURES {
        assert!(
            outcomes.iter().any(|o| o.architecture == a.name()),
            "no golden case of `{}`",
            a.name()
        );
    }
}

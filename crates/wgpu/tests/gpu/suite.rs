//! The suite that every executor passes, and agreement with another program's logits.

use conformance::golden::{self, Case, golden_case};
use conformance::{Check, Family, MEANING, SAME_BITS, WINDOWS};
use program::{Error, Executor};

use crate::device;

/// Run these checks, and tell how long each took.
fn run(checks: &[Check]) {
    let Some(device) = device() else { return };
    for check in checks {
        let start = std::time::Instant::now();
        conformance::run(device, &[*check]);
        eprintln!("{}: {:.1} s", check.name, start.elapsed().as_secs_f64());
    }
}

#[test]
fn suite() {
    run(MEANING);
}

#[test]
fn suite_of_same_bits() {
    run(SAME_BITS);
}

#[test]
fn suite_windows() {
    run(WINDOWS);
}

/// Cases whose models have no op that is refused.
fn check_cases(cases: &[Case], bound: f64) {
    let Some(device) = device() else { return };
    for case in cases {
        let outcome = golden_case(device, case);
        eprintln!("{}: {outcome}", case.name);
        assert!(outcome.nmse <= bound, "{}: NMSE {:e}", case.name, outcome.nmse);
    }
}

#[test]
fn golden_quantized() {
    check_cases(&golden::bundled(), 1e-3);
}

#[test]
fn golden_archs() {
    for family in [Family::Dense, Family::Windows] {
        check_cases(&golden::archs(family), 1e-6);
    }
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let Some(device) = device() else { return };
    let config = conformance::tiny_config("qwen3moe", 64, false);
    let program = conformance::tiny_model(&config, quant::GgmlType::F32);
    let weights = conformance::MemoryWeights::random(&program, 1);
    let refused = device.load(program, &weights, &mut |_| ()).err();
    let named = matches!(&refused, Some(Error::Unsupported(what)) if what.contains("`route`"));
    assert!(named, "{refused:?}");
}

//! The CPU passes the suite that every executor passes, and agrees with another program's logits, with the kernels of
//! every instruction set this machine has.

use conformance::golden::{self, Case, golden_case};
use conformance::{
    CONTEXT, EXPERTS, Family, MEANING, PARTS, RECURRENT, SAME_BITS, SELECTION, WINDOWS,
};
use cpu::{Cpu, Options};
use kernels::Isa;
use program::interpreter::Interpreter;

/// Run `test` with each instruction set this CPU has.
fn on_every_isa(test: impl Fn(&Cpu, &str)) {
    for (name, isa) in testing::isas("cpu", Isa::NAMES, |isa| Isa::detect().contains(isa)) {
        test(&Cpu::new(&Options { threads: Some(2), isa: Some(isa), ..Options::default() }), name);
    }
}

#[test]
fn suite() {
    on_every_isa(|cpu, _| conformance::run(cpu, MEANING));
}

#[test]
fn suite_of_same_bits() {
    on_every_isa(|cpu, _| conformance::run(cpu, SAME_BITS));
}

#[test]
fn suite_windows() {
    on_every_isa(|cpu, _| conformance::run(cpu, WINDOWS));
}

#[test]
fn suite_context() {
    on_every_isa(|cpu, _| conformance::run(cpu, CONTEXT));
}

#[test]
fn suite_experts() {
    on_every_isa(|cpu, _| conformance::run(cpu, EXPERTS));
}

#[test]
fn suite_recurrent() {
    on_every_isa(|cpu, _| conformance::run(cpu, RECURRENT));
}

#[test]
fn suite_selection() {
    on_every_isa(|cpu, _| conformance::run(cpu, SELECTION));
}

#[test]
fn suite_parts() {
    on_every_isa(|cpu, _| conformance::run(cpu, PARTS));
}

/// How far the executor may be from the interpreter on the same weights: 8-bit activations are all that differs.
const QUANTIZED_BOUND: f64 = 5e-4;

fn check_quantized(cases: &[Case]) {
    for case in cases {
        let want = golden_case(&Interpreter, case);
        on_every_isa(|cpu, isa| {
            let outcome = golden_case(cpu, case);
            outcome.assert(case);
            let exact = conformance::nmse(&outcome.logits, &want.logits);
            eprintln!(
                "{} {isa}: NMSE {:.2e} beside llama.cpp, {exact:.2e} beside the interpreter",
                case.name, outcome.nmse
            );
            // types with blocks of 256 quantize activations as the other program does: only sums are rounded otherwise
            let alike = ["q2_k", "q3_k_m", "q4_k_m", "q6_k", "iq4_xs", "iq3_s", "tq1_0", "tq2_0"];
            if alike.iter().any(|ty| case.name.ends_with(&format!("tiny-quant.{ty}"))) {
                assert!(outcome.nmse <= 1e-9, "{} {isa}: NMSE {:e}", case.name, outcome.nmse);
            }
            assert!(
                exact <= QUANTIZED_BOUND,
                "{} {isa}: NMSE {exact:e} beside the interpreter",
                case.name
            );
        });
    }
}

#[test]
fn golden_bundled() {
    check_quantized(&golden::bundled());
}

#[test]
fn golden_quantized() {
    match golden::quantized() {
        Err(why) => testing::golden_skipped(&why),
        Ok(cases) => check_quantized(&cases),
    }
}

fn check_plain(family: Family) {
    match golden::plain(family) {
        Err(why) => testing::golden_skipped(&why),
        Ok(cases) => check_cases(&cases),
    }
}

fn check_cases(cases: &[Case]) {
    for case in cases {
        on_every_isa(|cpu, isa| {
            let outcome = golden_case(cpu, case);
            eprintln!("{} {isa}: NMSE {:.2e}", case.name, outcome.nmse);
            outcome.assert(case);
        });
    }
}

#[test]
fn golden_texts() {
    for model in golden::texts() {
        on_every_isa(|cpu, isa| {
            let nmse = model.nmse(cpu);
            eprintln!("{} {isa}: NMSE {nmse:.2e}", model.name);
            assert!(nmse <= 1e-9, "{} {isa}: NMSE {nmse:e}", model.name);
        });
    }
}

#[test]
fn golden_plain() {
    check_plain(Family::Dense);
}

#[test]
fn golden_archs() {
    for family in Family::ALL {
        check_cases(&golden::archs(family));
    }
}

#[test]
fn golden_archs_of_the_shared_folder() {
    for family in Family::ALL {
        match golden::shared_archs(family) {
            Err(why) => testing::golden_skipped(&why),
            Ok(cases) => check_cases(&cases),
        }
    }
}

#[test]
fn golden_experts() {
    check_plain(Family::Experts);
}

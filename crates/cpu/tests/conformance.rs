//! The CPU passes the suite that every executor passes, and agrees with another program's logits, with the kernels of
//! every instruction set this machine has.

use conformance::golden::{self, Case, golden_case};
use conformance::{
    CONTEXT, EXPERTS, Family, MEANING, PARTS, RECURRENT, SAME_BITS, SELECTION, WINDOWS,
};
use cpu::{Cpu, Options};
use kernels::Isa;
use program::interpreter::Interpreter;

/// The instruction sets of this CPU by name: the best one, and the others.
fn isas() -> ((&'static str, Isa), Vec<(&'static str, Isa)>) {
    let mut isas = testing::isas("cpu", Isa::NAMES, |isa| Isa::detect().contains(isa));
    let best = isas.pop().expect("scalar is always there");
    (best, isas)
}

fn executor(isa: Isa) -> Cpu {
    Cpu::new(&Options { threads: Some(2), isa: Some(isa), ..Options::default() })
}

/// Runs `test` with the best instruction set of this CPU, and in `cargo xtask full` with the others too.
///
/// Every kernel of every set gives the bits of the naive one (`kernels/tests`), so that executors on different sets differ
/// in the grouping of work alone. [`the_other_sets`] checks these differences in the gate.
fn on_every_isa(test: impl Fn(&Cpu, &str)) {
    let ((best, isa), others) = isas();
    test(&executor(isa), best);
    let names: Vec<_> = others.iter().map(|(name, _)| *name).collect();
    if !names.is_empty() && testing::full(&format!("cpu: every suite on {}", names.join(", "))) {
        for (name, isa) in others {
            test(&executor(isa), name);
        }
    }
}

/// On the instruction sets that are not the best of this CPU: what two models mean, beside the interpreter, and the
/// logits of golden models of every family, which have the bits of the best set.
#[test]
fn the_other_sets() {
    let ((best, isa), others) = isas();
    if others.is_empty() {
        return testing::skipped("cpu: instruction sets but the best: this CPU has none");
    }
    let models = ["model/plain", "model/quantized"];
    let meaning: Vec<_> =
        MEANING.iter().filter(|check| models.contains(&check.name)).copied().collect();
    assert_eq!(meaning.len(), models.len());
    let mut cases = golden::bundled();
    for family in Family::ALL {
        let of_family = golden::archs(family);
        let step = of_family.len().div_ceil(GOLDEN_OF_A_FAMILY).max(1);
        cases.extend(of_family.into_iter().step_by(step));
    }
    let on_best = executor(isa);
    let others: Vec<_> = others.into_iter().map(|(name, isa)| (name, executor(isa))).collect();
    for (_, cpu) in &others {
        conformance::run(cpu, &meaning);
    }
    for case in &cases {
        let want = golden_case(&on_best, case);
        for (name, cpu) in &others {
            let found = golden_case(cpu, case);
            let what = format!("{}: {name} beside {best}", case.name);
            conformance::assert_same_bits(&found.logits, &want.logits, &what);
            assert_eq!(found.greedy, want.greedy, "{what}");
        }
    }
}

/// Golden models of each family on the sets that are not the best.
const GOLDEN_OF_A_FAMILY: usize = 4;

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

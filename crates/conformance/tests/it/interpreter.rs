//! The oracle passes its own suite, and agrees with another program's logits.

use conformance::golden::{self, Case, Outcome, golden_case};
use conformance::{
    CONTEXT, Check, EVERY_CUT, EXPERTS, Family, LATENT, MEANING, PARTS, RECURRENT, SAME_BITS,
    SELECTION, WINDOWS,
};
use gguf::Gguf;
use program::interpreter::Interpreter;
use program::{CacheOptions, CacheType, Error, Executor, Outputs, Sequence, Step};
use quant::GgmlType;

/// The suite itself, on the executor that is its oracle. What it refuses, who waits for a lock, its memory and the bits of its
/// sessions are the interpreter's own; the checks left to `cargo xtask full` compare it with itself.
#[test]
fn suite() {
    let of_two_models = ["model/plain", "model/quantized"];
    let has_no_oracle = |check: &Check| {
        let about = ["cache/", "lock/", "error/"];
        about.iter().any(|start| check.name.starts_with(start))
            || of_two_models.contains(&check.name)
    };
    run_in_gate(MEANING, has_no_oracle);
    conformance::run(&Interpreter, SAME_BITS);
}

/// The checks of programs of other kinds that are in the gate: of their memory and the bits of their sessions those that take
/// the interpreter seconds. The CPU executor runs all of them in the gate.
const IN_GATE: [&str; 4] =
    ["cache/latent", "session/experts", "session/recurrence", "session/windows_left"];

#[test]
fn suites_of_other_programs() {
    let suites = [WINDOWS, EXPERTS, LATENT, RECURRENT, SELECTION];
    let names: Vec<_> =
        suites.iter().flat_map(|suite| suite.iter().map(|check| check.name)).collect();
    assert!(IN_GATE.iter().all(|name| names.contains(name)), "{IN_GATE:?} of {names:?}");
    for suite in suites {
        run_in_gate(suite, |check| IN_GATE.contains(&check.name));
    }
}

/// The suite of sessions that read few blocks of a long past: in the gate what is refused. The rest takes the interpreter
/// minutes; the CPU executor runs it in the gate.
#[test]
fn suite_of_context() {
    run_in_gate(CONTEXT, |check| check.name.ends_with("refused"));
}

#[test]
fn suite_of_parts() {
    conformance::run(&Interpreter, PARTS);
    conformance::run(&Interpreter, EVERY_CUT);
}

/// Runs the checks that `in_gate` selects, and the others in `cargo xtask full`.
fn run_in_gate(checks: &[Check], in_gate: impl Fn(&Check) -> bool) {
    let (gate, rest): (Vec<Check>, Vec<Check>) = checks.iter().partition(|check| in_gate(check));
    conformance::run(&Interpreter, &gate);
    if !rest.is_empty() && testing::full("interpreter: checks beside itself") {
        conformance::run(&Interpreter, &rest);
    }
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
fn golden_texts() {
    let models = golden::texts();
    assert!(models.len() >= 9, "models that say something of texts");
    for model in models {
        let nmse = model.nmse(&Interpreter);
        eprintln!("{}: NMSE {nmse:.1e}", model.name);
        assert!(nmse <= 1e-11, "{}: NMSE {nmse:e}", model.name);
    }
}

#[test]
fn golden_bundled() {
    assert_eq!(check(&golden::bundled()).len(), 2);
}

#[test]
fn golden_quantized() {
    match golden::quantized() {
        Err(why) => testing::golden_skipped(&why),
        Ok(cases) => assert!(!check(&cases).is_empty()),
    }
}

/// Cases of a family, at least one of each of its architectures. In `cargo xtask full`: the interpreter takes minutes for
/// them, the CPU executor runs them in the gate.
fn golden_plain_of(family: Family) {
    if !testing::full("interpreter: golden cases of shared/golden/logits") {
        return;
    }
    let outcomes = match golden::plain(family) {
        Err(why) => return testing::golden_skipped(&why),
        Ok(cases) => check(&cases),
    };
    // of Phi-3 that folder has none
    for name in family.architectures().iter().filter(|name| **name != "phi3") {
        assert!(outcomes.iter().any(|o| o.architecture == *name), "no golden case of `{name}`");
    }
}

#[test]
fn golden_plain() {
    golden_plain_of(Family::Dense);
}

#[test]
fn golden_experts() {
    golden_plain_of(Family::Experts);
}

#[test]
fn golden_latent() {
    golden_plain_of(Family::Latent);
}

/// One case or more of every architecture, by family.
#[test]
fn golden_archs() {
    let cases = Family::ALL.map(golden::archs);
    let outcomes: Vec<Outcome> = cases.iter().flat_map(|cases| check(cases)).collect();
    let texts = golden::texts();
    let read = |file: &[u8]| models::load(&Gguf::from_bytes(file.to_vec()).ok()?).ok();
    let of_texts: Vec<String> = (texts.iter().filter_map(|model| read(&model.file)))
        .map(|loaded| loaded.config.architecture)
        .collect();
    for architecture in models::ARCHITECTURES {
        let name = architecture.name;
        let found = outcomes.iter().any(|outcome| outcome.architecture == name)
            || of_texts.iter().any(|found| found == name);
        assert!(found, "no golden case of `{name}` in crates/conformance/data");
    }
}

#[test]
fn golden_archs_of_the_shared_folder() {
    for family in Family::ALL {
        match golden::shared_archs(family) {
            Err(why) => return testing::golden_skipped(&why),
            Ok(cases) => assert!(!check(&cases).is_empty(), "no case of {family:?}"),
        }
    }
}

/// Recipes make the files of the other program's cases, also of architectures that are not supported yet.
#[test]
fn recipes_make_every_golden_model() {
    match golden::every_recipe() {
        Err(why) => testing::golden_skipped(&why),
        Ok((differ, same)) => {
            eprintln!("{same} models made, {} differ", differ.len());
            assert!(differ.is_empty() && same > 100, "{same} made; {differ:#?}");
        }
    }
}

/// A trace of several sequences is of all or none: where one fails, no session has grown.
#[test]
fn a_failed_trace_leaves_every_session() {
    let program =
        conformance::tiny_model(&conformance::tiny_config("qwen2", 64, false), GgmlType::F32);
    let weights = conformance::MemoryWeights::random(&program, 1);
    let model = Interpreter.load(program, &weights, &mut |_| {}).expect("it loads");
    let open = |capacity| {
        let (k, v) = (CacheType::F32, CacheType::F32);
        model.open(&CacheOptions::new(k, v, capacity)).expect("a session opens")
    };
    let (roomy, small) = (open(8), open(1));
    let sequence = |session| Sequence {
        session,
        tokens: &[1, 2],
        outputs: Outputs::LAST,
        prompt: None,
        rows: &[],
    };
    let step = [sequence(roomy), sequence(small)];
    let failed = model.trace(&Step { sequences: &step }, &[]).err();
    assert_eq!(failed, Some(Error::ContextFull { wanted: 2, capacity: 1 }));
    assert_eq!((model.len(roomy), model.len(small)), (Ok(0), Ok(0)));
    // what was refused can be done without the other
    let traced = model.trace(&Step { sequences: &step[..1] }, &[]).expect("it has room");
    assert_eq!(traced.out.sequences.len(), 1);
    assert_eq!(model.len(roomy), Ok(2));
}

//! The suite that every executor passes, and agreement with another program's logits.

use conformance::golden::{self, Case, GoldenFile, golden_case};
use conformance::{Check, EXPERTS, Family, LATENT, MEANING, SAME_BITS, SELECTION, WINDOWS};
use gguf::Gguf;
use program::{
    CacheOptions, CacheType, Executor, Gating, KernelShape, KernelTuning, MemoryOptions,
    OutputKind, ProductType, Recorder, Router, Variation, WeightSpec,
};
use quant::GgmlType;

use crate::device;

fn run(checks: &[Check]) {
    let Some(device) = device() else { return };
    conformance::run(device, checks);
}

/// The checks whose names begin with `op/`, or all others.
fn meaning(of_ops: bool) -> Vec<Check> {
    MEANING.iter().filter(|check| check.name.starts_with("op/") == of_ops).copied().collect()
}

#[test]
fn suite_of_ops() {
    if crate::is_tested("the suite of what ops mean") {
        run(&meaning(true));
    }
}

/// On a device of its own: a software device compiles the kernels of one device one after another.
#[test]
fn suite_of_models() {
    if !crate::is_tested("the suite of what models mean") {
        return;
    }
    let Some(device) = crate::open() else { return };
    conformance::run(&device, &meaning(false));
}

/// What rests on the one promise that is made is tested; what is left out is told, and is no more than this.
#[test]
fn suite_of_same_bits() {
    let Some(device) = device() else { return };
    let (kept, left_out): (Vec<&Check>, Vec<&Check>) =
        SAME_BITS.iter().partition(|check| check.is_for(device));
    let names = |checks: &[&Check]| checks.iter().map(|check| check.name).collect::<Vec<_>>();
    assert_eq!(names(&kept), ["session/replay", "result/candidates", "result/rows_beside_logits"]);
    let other = |check: &&&Check| check.relies_on.iter().any(|what| *what != Variation::Again);
    assert_eq!(left_out.iter().filter(other).count(), left_out.len(), "{:?}", names(&left_out));
    run(SAME_BITS);
}

#[test]
fn suite_windows() {
    if testing::full("wgpu: the suite of windows") {
        run(WINDOWS);
    }
}

#[test]
fn suite_experts() {
    if testing::full("wgpu: the suite of experts") {
        run(EXPERTS);
    }
}

#[test]
fn suite_latent() {
    if testing::full("wgpu: the suite of latent") {
        run(LATENT);
    }
}

#[test]
fn suite_selection() {
    if testing::full("wgpu: the suite of selection") {
        run(SELECTION);
    }
}

/// Whether a device takes all ops of a case's model.
fn takes(device: &dyn Executor, case: &Case) -> bool {
    let gguf = match &case.model {
        GoldenFile::Path(path) => Gguf::open(path),
        GoldenFile::Bytes(bytes) => Gguf::from_bytes(bytes.clone()),
    };
    let program = models::load(&gguf.expect("a golden file")).expect("a golden model").program;
    program.nodes.iter().all(|node| {
        let weights = node.op.facts().weights;
        let types: Vec<_> = weights.iter().map(|used| program.weight(used.id).ty).collect();
        device.supports(&node.op, &types).is_ok()
    })
}

/// Cases whose models have no op that is refused; how many there were.
fn check_cases(cases: &[Case], bound: f64) -> usize {
    let Some(device) = device() else { return usize::MAX };
    let (taken, refused): (Vec<_>, Vec<_>) = cases.iter().partition(|case| takes(device, case));
    if !refused.is_empty() {
        let names: Vec<_> = refused.iter().map(|case| case.name.as_str()).collect();
        testing::skipped(&format!("wgpu does not take all ops of {}", names.join(", ")));
    }
    for case in &taken {
        let outcome = golden_case(device, case);
        eprintln!("{}: {outcome}", case.name);
        assert!(outcome.nmse <= bound, "{}: NMSE {:e}", case.name, outcome.nmse);
    }
    taken.len()
}

#[test]
fn golden_quantized() {
    assert!(check_cases(&golden::bundled(), 1e-3) >= 2, "both run");
}

/// The same where products are rounded to f16 or to bytes, as they are where that was measured to be faster.
#[test]
fn golden_quantized_by_rounded_products() {
    let Some(device) = crate::open() else { return };
    // plain types have no such products, and stay as they are
    let types: Vec<_> = quant::FORMATS.iter().map(|format| format.ty()).collect();
    let mut found: Vec<f64> = Vec::new();
    let mut same = 0;
    for product in ProductType::ALL {
        let shape = |(ty, at_once)| {
            let (rows, teams, subgroups) = (2, 2, false);
            KernelShape { ty, at_once, rows, teams, product, subgroups }
        };
        let all = types.iter().flat_map(|ty| [1, 4, 32].map(|at_once| (*ty, at_once)));
        device.set_shapes(&all.map(shape).collect::<Vec<_>>());
        for case in golden::bundled() {
            let outcome = golden_case(&device, &case);
            eprintln!("{} by {}: {outcome}", case.name, product.name());
            assert!(outcome.nmse <= 1e-3, "{} {product:?}: {:e}", case.name, outcome.nmse);
            same += usize::from(found.contains(&outcome.nmse));
            found.push(outcome.nmse);
        }
        // a device without f16 has these as they were
        let without = if product == ProductType::F16 { golden::bundled().len() } else { 0 };
        assert!(same == 0 || same == without, "{product:?} are others: {found:?}");
        same = 0;
    }
}

/// Checks the golden cases of a family, of which there are `least` or more; in the gate five of them.
fn check_family(family: Family, least: usize) {
    let mut cases = golden::archs(family);
    assert!(cases.len() >= least, "{family:?}: {} cases", cases.len());
    if !testing::full(&format!("wgpu: all golden cases of {family:?}")) {
        let step = cases.len().div_ceil(5);
        cases = cases.into_iter().step_by(step).collect();
    }
    let all = cases.len();
    assert!(check_cases(&cases, 1e-6) >= all, "{family:?}: not all cases run");
}

#[test]
fn golden_archs() {
    check_family(Family::Dense, 89);
    check_family(Family::Windows, 22);
}

#[test]
fn golden_experts() {
    check_family(Family::Experts, 59);
}

#[test]
fn golden_latent() {
    check_family(Family::Latent, 10);
}

/// Whatever architectures record, there are kernels for it; what is refused is of a size.
#[test]
fn all_golden_models_run_whole() {
    let Some(device) = device() else { return };
    let cases = Family::ALL.into_iter().flat_map(golden::archs);
    let refused: Vec<_> = cases.filter(|case| !takes(device, case)).map(|case| case.name).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// More experts than a workgroup has memory for are the processor's.
#[test]
fn too_many_experts_are_refused_in_a_line() {
    let Some(device) = device() else { return };
    let memory = |n_experts, n_used| {
        let r = Recorder::new();
        let (name, ty) = ("token_embd.weight".into(), GgmlType::F32);
        let table = r.weight(WeightSpec { name, ty, rows: 3, cols: n_experts, start: 0 });
        let router = Router {
            n_used,
            gating: Gating::Softmax,
            bias: None,
            groups: None,
            normalize: true,
            scale: 1.0,
            factors: None,
            per_chunk: 1,
        };
        let scores = r.embed(table).expect("it embeds");
        let routes = r.route("routes", scores, router).expect("there are so many");
        let program = r.finish(&[(OutputKind::Rows, routes)]);
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8);
        device.memory(&program, &MemoryOptions { cache, sessions: 1, chunk: 8 })
    };
    assert!(memory(1024, 256).is_ok());
    for (n_experts, n_used) in [(1025, 2), (1024, 257)] {
        let told = memory(n_experts, n_used).expect_err("there are too many").to_string();
        let wanted = format!("{n_used} of {n_experts} experts on a GPU: at most 256 of 1024");
        assert!(told.contains(&wanted), "{told}");
    }
}

//! Some layers on a device and the others elsewhere: what it refuses runs all the same, and a step is submitted as often as
//! rows come to it. The interpreter plays the processor.

use std::sync::Arc;

use conformance::golden::{self, Case, GoldenFile, golden_case};
use conformance::{
    Family, MemoryWeights, Random, assert_close, deep_config, tiny_config, tiny_model,
};
use gguf::Gguf;
use gpu::GpuExecutor;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheStorage, CacheType, DeviceLayers, DeviceShare, Division, Error, Executor,
    Hybrid, HybridOptions, MemoryNeeds, MemoryOptions, Model, Op, Outputs, Program, Progress,
    Promises, Result, Sequence, Step, StepOut, ValueId, Wanted, WeightSource,
};
use quant::GgmlType;

use crate::sessions::{feed, oracle};
use crate::{device, open};

const EXACT: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 512);
const SESSIONS: MemoryOptions = MemoryOptions { cache: EXACT, sessions: 1, chunk: 64 };

/// All layers but their experts.
fn apart() -> DeviceShare {
    DeviceShare { apart: usize::MAX, ..DeviceShare::default() }
}

fn hybrid(
    device: &GpuExecutor,
    program: &Program,
    share: impl Into<DeviceShare>,
) -> (Hybrid, Division) {
    let device = device.beside(&CacheStorage::default()).expect("it is shared");
    hybrid_of(device, program, share.into())
}

fn hybrid_of(
    device: Box<dyn Executor>,
    program: &Program,
    share: DeviceShare,
) -> (Hybrid, Division) {
    let division = Division::of(program, &*device, share.clone()).expect("it divides");
    let options = HybridOptions { share, storage: CacheStorage::default(), sessions: SESSIONS };
    (Hybrid::new(Box::new(Interpreter), device, &division, options), division)
}

/// A device that has kernels for less: for no indexer, no rows by hashes and nothing that balances streams.
struct Less(Box<dyn Executor>);

fn is_left(op: &Op) -> Result<()> {
    match op {
        Op::Indexer(_)
        | Op::Shift(_)
        | Op::Softmax
        | Op::Turn
        | Op::Ids
        | Op::Grams { .. }
        | Op::SignedRoot { .. }
        | Op::Sinkhorn { .. } => Err(Error::Unsupported(format!("op `{}` here", op.name()))),
        _ => Ok(()),
    }
}

impl Executor for Less {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        is_left(op).and(self.0.supports(op, types))
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        program.nodes.iter().try_for_each(|node| is_left(&node.op))?;
        self.0.memory(program, options)
    }

    fn promises(&self) -> Promises {
        self.0.promises()
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        self.0.load(program, weights, progress)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn less(device: &GpuExecutor) -> Box<dyn Executor> {
    Box::new(Less(device.beside(&CacheStorage::default()).expect("it is shared")))
}

fn load(
    executor: &dyn Executor,
    program: &Arc<Program>,
    weights: &MemoryWeights,
) -> Box<dyn Model> {
    let loaded = executor.load(Arc::clone(program), weights, &mut |_| ());
    loaded.unwrap_or_else(|e| panic!("{}: {e}", executor.describe()))
}

#[test]
fn any_number_of_layers_with_a_submission_for_each_part() {
    // a device of its own: others count too
    let Some(device) = open() else { return };
    let config = deep_config("qwen2", 64, true, 4);
    let program = tiny_model(&config, GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 3);
    let tokens = Random::new(2).tokens(40, config.vocab_size);
    let want = oracle(&*load(&Interpreter, &program, &weights), &tokens, 40);
    for n in 1..=5 {
        let (hybrid, division) = hybrid(&device, &program, DeviceLayers::Last(n));
        assert_eq!((division.submissions(), division.n_layers()), (1, n - 1));
        assert_eq!(division.crossings(), usize::from(n < 5));
        let model = load(&hybrid, &program, &weights);
        let session = model.open(&EXACT).expect("a session opens");
        let mut found = Vec::new();
        for chunk in [&tokens[..30], &tokens[30..39], &tokens[39..]] {
            let before = device.counts().submissions;
            found.extend(feed(&*model, session, chunk));
            assert_eq!(device.counts().submissions, before + 1, "the last {n}");
        }
        assert_close(&found, &want, 1e-9, &format!("the last {n}"));
        let needs = hybrid.memory(&program, &SESSIONS).expect("it can be told");
        assert_eq!(needs.weights, model.stats().weight_memory, "the last {n}");
    }
}

/// Layers that a device refuses between others that it takes: a submission for each stretch of these.
#[test]
fn layers_by_turns() {
    let Some(device) = open() else { return };
    let gguf = Gguf::from_bytes(golden::model("dots3note")).expect("a model that was made");
    let program = models::load(&gguf).expect("a model that is supported").program;
    let (hybrid, division) = hybrid_of(less(&device), &program, DeviceLayers::All.into());
    let told = hybrid.describe();
    assert!(division.submissions() > 1 && division.refused().is_some(), "{told}");
    assert!(told.contains(&format!("{} submissions a step", division.submissions())), "{told}");
    let model = hybrid.load(Arc::clone(&program), &GgufWeights(&gguf), &mut |_| ());
    let model = model.expect("it loads");
    let session = model.open(&EXACT).expect("a session opens");
    for n in [40, 1] {
        let before = device.counts();
        feed(&*model, session, &Random::new(n).tokens(n as usize, program.vocab_size()));
        let after = device.counts();
        let submissions = (after.submissions - before.submissions) as usize;
        assert_eq!(submissions, division.submissions(), "{told}");
        assert_eq!((after.readbacks - before.readbacks) as usize, submissions, "{told}");
    }
}

/// Attention on the device, experts beside it: a submission before the first, between any two and behind the last, and one for
/// each shared expert.
#[test]
fn experts_apart() {
    let Some(device) = open() else { return };
    for name in ["qwen3moe", "qwen2moe"] {
        let program = tiny_model(&deep_config(name, 64, false, 3), GgmlType::Q8_0);
        let weights = MemoryWeights::random(&program, 3);
        let tokens = Random::new(2).tokens(41, program.vocab_size());
        let want = oracle(&*load(&Interpreter, &program, &weights), &tokens, 41);
        let (hybrid, division) = hybrid(&device, &program, apart());
        let told = hybrid.describe();
        assert_eq!((division.submissions(), division.crossings()), (4 + 3, 6), "{told}");
        assert_eq!(division.refused(), None);
        let model = load(&hybrid, &program, &weights);
        let session = model.open(&EXACT).expect("a session opens");
        let mut found = Vec::new();
        for chunk in [&tokens[..40], &tokens[40..]] {
            let before = device.counts().submissions;
            found.extend(feed(&*model, session, chunk));
            assert_eq!(device.counts().submissions, before + 7, "{told}");
        }
        assert_close(&found, &want, 1e-9, name);
    }
}

/// While the device has a shared expert, which it was handed and was not yet asked for, the processor has the others.
#[test]
fn a_shared_expert_is_under_way_beside_the_others() {
    let Some(device) = open() else { return };
    let program = tiny_model(&deep_config("qwen2moe", 64, false, 2), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 3);
    let (_, division) = hybrid(&device, &program, apart());
    let [first, shared, experts, ..] = division.parts() else { panic!("several parts") };
    let sides = [first, shared, experts].map(Division::is_on_device);
    assert_eq!(sides, [true, true, false]);
    let names = shared.program.weights.iter().map(|spec| &*spec.name);
    assert!(names.clone().all(|name| name.contains("_shexp")), "{:?}", names.collect::<Vec<_>>());
    assert!(experts.inputs.iter().all(|id| !shared.outputs.contains(id)));
    let model = load(&device, &Arc::new(shared.program.clone()), &weights);
    let session = model.open(&EXACT).expect("a session opens");
    let n = |id: &ValueId| 3 * shared.program.value(*id).shape.cols();
    let numbers = |n| (0..n).map(|i| (i as f32).sin()).collect();
    let given: Vec<Vec<f32>> = shared.program.inputs.iter().map(|id| numbers(n(id))).collect();
    let rows: Vec<&[f32]> = given.iter().map(Vec::as_slice).collect();
    let outputs = Outputs { what: Wanted::Rows, ..Outputs::ALL };
    let sequence = Sequence { session, tokens: &[1, 2, 3], outputs, prompt: None, rows: &rows };
    let step = Step { sequences: &[sequence] };
    let before = device.counts();
    let mut meanwhile = None;
    let out = model.step_beside(&step, &|| true, &mut || meanwhile = Some(device.counts()));
    let meanwhile = meanwhile.expect("it is called");
    assert_eq!(meanwhile.submissions - before.submissions, 1);
    assert_eq!(meanwhile.readbacks, before.readbacks, "nobody has waited");
    assert_eq!(device.counts().readbacks - before.readbacks, 1);
    let rows = |out: Result<StepOut>| out.and_then(StepOut::single).expect("it runs");
    let found = rows(out);
    assert_eq!(found, rows(model.step(&step)), "as it is alone");
}

/// Layers with indexers, and with what else a device may have no kernel for, of every architecture: the greedy ids and logits that llama.cpp has.
#[test]
fn what_a_device_refuses_runs_beside_it() {
    let Some(device) = device() else { return };
    let cases = [Family::Dense, Family::Windows, Family::Experts, Family::Latent];
    let mut n = 0;
    for case in cases.into_iter().flat_map(golden::archs) {
        let Case { name, model: GoldenFile::Bytes(bytes), .. } = &case else { continue };
        let gguf = Gguf::from_bytes(bytes.clone()).expect("a golden file");
        let program = models::load(&gguf).expect("a golden model").program;
        let (hybrid, division) = hybrid_of(less(device), &program, DeviceLayers::All.into());
        if division.refused().is_none() {
            continue;
        }
        let outcome = golden_case(&hybrid, &case);
        let why = division.refused().unwrap_or_default();
        let (its, others) = (division.on_device(), division.on_processor());
        eprintln!("{name}: {outcome}: {its}, of {others}: {why}");
        outcome.assert(&case);
        n += 1;
    }
    assert!(n >= 16, "{n} cases have what it refuses");
}

/// What recurs on both sides: rows that come from the other side cannot be computed again, and nobody asks for more than
/// there is a way back to.
#[test]
fn states_on_both_sides() {
    let Some(device) = device() else { return };
    for name in ["lfm2", "mamba2", "qwen35"] {
        let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
        let program = models::load(&gguf).expect("a model that is supported").program;
        let (hybrid, division) = hybrid(device, &program, DeviceLayers::Last(2));
        assert_eq!((division.crossings(), division.refused()), (1, None), "{}", hybrid.describe());
        let load = |executor: &dyn Executor| {
            let loaded = executor.load(Arc::clone(&program), &GgufWeights(&gguf), &mut |_| ());
            loaded.unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let (model, reference) = (&*load(&hybrid), &*load(&Interpreter));
        let vocab = program.vocab_size();
        let tokens = Random::new(6).tokens(160, vocab);
        let want = oracle(reference, &tokens, 160);
        let check = |session, from: usize, to: usize, what: &str| {
            let found = feed(model, session, &tokens[from..to]);
            assert_close(&found, &want[from * vocab..to * vocab], 1e-9, &format!("{name}: {what}"));
        };
        let a = model.open(&EXACT).expect("a session opens");
        check(a, 0, 70, "a prompt");
        check(a, 70, 71, "a step");
        let b = model.fork(a, 71).expect("it holds that many");
        check(b, 71, 160, "a fork");
        check(a, 71, 90, "the forked one");
        for to in [89, 80, 40, 3] {
            let reached = model.truncate(a, to).expect("it holds more");
            assert!(reached <= to, "{name}: {reached} of {to}");
            check(a, reached, 100, &format!("from {reached} on after going back to {to}"));
        }
        let reached = model.truncate(b, 150).expect("it holds more");
        check(b, reached, 160, "the fork again");
    }
}

/// Two sessions with a common past go different ways, on both sides.
#[test]
fn forks_and_truncations() {
    let Some(device) = device() else { return };
    for (architecture, layers) in [
        ("llama", DeviceLayers::Last(2)),
        ("gemma2", DeviceLayers::Last(1)),
        ("qwen3moe", DeviceLayers::Last(2)),
        ("deepseek2", DeviceLayers::Last(2)),
    ] {
        let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::F32);
        let weights = MemoryWeights::random(&program, 5);
        let (hybrid, division) = hybrid(device, &program, layers);
        assert_eq!(division.crossings(), 1, "{}", hybrid.describe());
        let model = &*load(&hybrid, &program, &weights);
        let reference = &*load(&Interpreter, &program, &weights);
        let [past, one, other] =
            [(1, 150), (2, 40), (3, 40)].map(|(seed, n)| Random::new(seed).tokens(n, 97));
        let a = model.open(&EXACT).expect("a session opens");
        feed(model, a, &past);
        let b = model.fork(a, 100).expect("it holds more");
        assert_eq!((model.len(a), model.len(b)), (Ok(150), Ok(100)));
        for (session, past, tokens, what) in
            [(a, &past[..], &one, "the forked"), (b, &past[..100], &other, "the fork")]
        {
            let found = feed(model, session, tokens);
            let want = oracle(reference, &[past, tokens].concat(), 40);
            assert_close(&found, &want, 1e-9, &format!("{architecture}: {what}"));
        }
        // a reply begun anew: the same rows again have the same bits
        model.commit(a, 150).expect("it holds that many");
        let first = feed(model, b, &one);
        assert_eq!(model.truncate(b, 140), Ok(140), "{architecture}");
        assert_eq!(feed(model, b, &one), first, "{architecture}: the same again");
        let reached = model.truncate(a, 60).expect("it holds more");
        assert!(reached == 60 || architecture == "gemma2" && reached == 0, "{reached}");
        let found = feed(model, a, &[&past[reached..60], &other].concat());
        let want = oracle(reference, &[&past[..60], &other].concat(), 40);
        let found = &found[found.len() - want.len()..];
        assert_close(found, &want, 1e-9, &format!("{architecture}: after a truncation"));
    }
}

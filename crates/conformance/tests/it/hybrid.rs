//! A processor and a device together: they are the whole, however layers are divided, and leave sessions as they were.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::models::GgufWeights;
use conformance::golden::models;
use conformance::{MemoryWeights, Picky, Random, deep_config, tiny_model};
use gguf::Gguf;
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheStorage, CacheType, DeviceLayers, DeviceShare, Division, Error, Executor,
    Hybrid, HybridOptions, MemoryOptions, Model, Outputs, Program, Sequence, SessionId, Step,
    StepOut, WeightSource,
};
use quant::GgmlType;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 256);
const SESSIONS: MemoryOptions = MemoryOptions { cache: CACHE, sessions: 1, chunk: 64 };

fn hybrid(device: &Picky, program: &Program, share: impl Into<DeviceShare>) -> (Hybrid, Division) {
    let share = share.into();
    let division = Division::of(program, device, share.clone()).expect("it divides");
    let options = HybridOptions { share, storage: CacheStorage::default(), sessions: SESSIONS };
    let device = Box::new(device.clone());
    (Hybrid::new(Box::new(Interpreter), device, &division, options), division)
}

fn load(
    executor: &dyn Executor,
    program: &Arc<Program>,
    weights: &dyn WeightSource,
) -> Box<dyn Model> {
    let loaded = executor.load(Arc::clone(program), weights, &mut |_| ());
    loaded.unwrap_or_else(|e| panic!("{}: {e}", executor.describe()))
}

fn feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Result<Vec<u32>, Error> {
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    Ok(out.into_logits().logits.iter().map(|x| x.to_bits()).collect())
}

fn bits(model: &dyn Model, tokens: &[u32]) -> Vec<u32> {
    let session = model.open(&CACHE).expect("a session opens");
    let chunks = tokens.chunks(5).map(|chunk| feed(model, session, chunk));
    let bits = chunks.collect::<Result<Vec<_>, _>>().expect("steps run").concat();
    model.close(session);
    bits
}

#[test]
fn any_number_of_layers() {
    let program = tiny_model(&deep_config("qwen2", 32, false, 4), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 3);
    let tokens = Random::new(4).tokens(11, 97);
    let want = bits(&*load(&Interpreter, &program, &weights), &tokens);
    let picky = Picky::as_a_gpu();
    for (n, processor, device, crossings) in [
        (0, "layers 0-3, output", "nothing", 0),
        (1, "layers 0-3", "output", 1),
        (2, "layers 0-2", "layer 3, output", 1),
        (4, "layer 0", "layers 1-3, output", 1),
        (5, "nothing", "layers 0-3, output", 0),
        (99, "nothing", "layers 0-3, output", 0),
    ] {
        let (hybrid, division) = hybrid(&picky, &program, DeviceLayers::Last(n));
        assert_eq!((division.on_processor(), division.on_device()), (processor, device), "{n}");
        assert_eq!((division.crossings(), division.refused()), (crossings, None), "{n}");
        let model = load(&hybrid, &program, &weights);
        assert_eq!(bits(&*model, &tokens), want, "the last {n}");
        // what both sides read is kept twice
        let needs = hybrid.memory(&program, &SESSIONS).expect("it can be told");
        assert_eq!(model.stats().weight_memory, needs.weights, "the last {n}");
        let whole = Interpreter.memory(&program, &SESSIONS).expect("it can be told");
        assert_eq!(needs.cache, whole.cache, "the last {n}");
        assert!((whole.weights..whole.weights + 100).contains(&needs.weights), "the last {n}");
    }
}

/// What a GPU refuses runs on the processor, whatever the architecture.
#[test]
fn every_architecture() {
    let picky = Picky::as_a_gpu();
    let (mut divided, mut refused) = (0, 0);
    for (name, file) in models() {
        let gguf = Gguf::from_bytes(file).expect("a model that was made");
        let program = ::models::load(&gguf).expect("a model that is supported").program;
        if program.check_start(1).is_err() {
            continue;
        }
        let weights = GgufWeights(&gguf);
        let tokens = Random::new(5).tokens(11, program.vocab_size());
        let want = bits(&*load(&Interpreter, &program, &weights), &tokens);
        let all = [DeviceLayers::All, DeviceLayers::Last(2)];
        for layers in all {
            let (hybrid, division) = hybrid(&picky, &program, layers);
            let model = load(&hybrid, &program, &weights);
            assert_eq!(bits(&*model, &tokens), want, "{name}, {}", hybrid.describe());
            divided += usize::from(division.crossings() > 0);
            refused += usize::from(division.refused().is_some());
        }
    }
    assert!(divided > 100 && refused > 50, "{divided} divided, {refused} refused");
}

/// One side is done when the other fails, or nobody wants the step any more: nothing has happened. Of `qwen2moe` the device
/// has a shared expert beside the processor's experts.
#[test]
fn a_step_that_fails_between_both() {
    for name in ["llama", "gemma2", "qwen3moe", "deepseek2", "lfm2", "mamba2", "qwen2moe"] {
        let gguf = Gguf::from_bytes(conformance::golden::model(name)).expect("a model");
        let program = ::models::load(&gguf).expect("a model that is supported").program;
        let picky = Picky::as_a_gpu();
        let share = match name {
            "qwen2moe" => DeviceShare { apart: usize::MAX, ..DeviceShare::default() },
            _ => DeviceLayers::Last(2).into(),
        };
        let (hybrid, division) = hybrid(&picky, &program, share);
        assert!(division.crossings() > 0, "{name}: {}", hybrid.describe());
        let model = load(&hybrid, &program, &GgufWeights(&gguf));
        let tokens = Random::new(6).tokens(150, program.vocab_size());
        let want = {
            let session = model.open(&CACHE).expect("a session opens");
            feed(&*model, session, &tokens[..40]).expect("a step");
            feed(&*model, session, &tokens[40..]).expect("a step")
        };
        let session = model.open(&CACHE).expect("a session opens");
        feed(&*model, session, &tokens[..40]).expect("a step");
        for n in [1, 7, 110] {
            for nth in 1..=division.submissions() {
                picky.fail(nth);
                let failed = feed(&*model, session, &tokens[40..40 + n]).err();
                assert!(matches!(failed, Some(Error::Device { .. })), "{name}: {failed:?}");
                assert_eq!(model.len(session), Ok(40), "{name}, {n} tokens");
            }
            let sequence = Sequence {
                session,
                tokens: &tokens[40..40 + n],
                outputs: Outputs::LAST,
                prompt: None,
                rows: &[],
            };
            let asked = std::sync::atomic::AtomicUsize::new(0);
            // the first part is done
            let go_on = || asked.fetch_add(1, Ordering::Relaxed) == 0;
            let stopped = model.step_while(&Step { sequences: &[sequence] }, &go_on).err();
            assert_eq!(stopped, Some(Error::Cancelled), "{name}, {n} tokens");
            assert_eq!(model.len(session), Ok(40), "{name}, {n} tokens");
        }
        assert_eq!(feed(&*model, session, &tokens[40..]).expect("a step"), want, "{name}");
    }
}

/// One of two sequences fails in some part, also in one that runs beside another: the other one has its bits.
#[test]
fn one_of_two_fails_in_any_part() {
    let picky = Picky::as_a_gpu();
    let program = tiny_model(&deep_config("qwen2moe", 32, false, 2), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 3);
    let share = DeviceShare { apart: usize::MAX, ..DeviceShare::default() };
    let (hybrid, division) = hybrid(&picky, &program, share);
    let model = &*load(&hybrid, &program, &weights);
    let tokens = Random::new(4).tokens(12, 97);
    let feed = |session, tokens: &[u32]| feed(model, session, tokens).expect("a step");
    let want = |first: &[u32], then: &[u32]| {
        let session = model.open(&CACHE).expect("a session opens");
        feed(session, first);
        feed(session, then)
    };
    let [a, b] = [want(&tokens[..4], &tokens[4..7]), want(&tokens[6..9], &tokens[9..])];
    for nth in 1..=division.submissions() {
        let sessions = [(); 2].map(|()| model.open(&CACHE).expect("a session opens"));
        feed(sessions[0], &tokens[..4]);
        feed(sessions[1], &tokens[6..9]);
        picky.refuse_one(nth);
        let sequence = |session, tokens| {
            let outputs = Outputs::ALL;
            Sequence { session, tokens, outputs, prompt: None, rows: &[] }
        };
        let sequences = [sequence(sessions[0], &tokens[4..7]), sequence(sessions[1], &tokens[9..])];
        let out = model.step(&Step { sequences: &sequences }).expect("the step itself runs");
        let [first, second] = <[_; 2]>::try_from(out.sequences).expect("two");
        assert!(matches!(first, Err(Error::Device { .. })), "part {nth}: {first:?}");
        let second = second.expect("nothing was wrong with it").into_logits().logits;
        assert!(second.iter().map(|x| x.to_bits()).eq(b.iter().copied()), "part {nth}");
        assert_eq!(sessions.map(|session| model.len(session)), [Ok(4), Ok(6)], "part {nth}");
        assert_eq!(feed(sessions[0], &tokens[4..7]), a, "part {nth}: as if it had not been asked");
    }
}

/// Experts alone on the processor, of all layers or of the first.
#[test]
fn experts_apart() {
    let picky = Picky::as_a_gpu();
    for name in ["qwen3moe", "qwen2moe"] {
        let program = tiny_model(&deep_config(name, 32, false, 3), GgmlType::F32);
        let weights = MemoryWeights::random(&program, 3);
        let tokens = Random::new(4).tokens(11, 97);
        let want = bits(&*load(&Interpreter, &program, &weights), &tokens);
        for (layers, apart, device, processor, crossings, n_apart) in [
            (DeviceLayers::All, usize::MAX, "layers 0-2, output", "experts of layers 0-2", 6, 3),
            (DeviceLayers::Last(2), 99, "layer 2, output", "layers 0-1, experts of layer 2", 3, 1),
            (DeviceLayers::All, 1, "layer 0, output", "layers 1-2, experts of layer 0", 4, 1),
        ] {
            let share = DeviceShare { layers, apart, ..DeviceShare::default() };
            let (hybrid, division) = hybrid(&picky, &program, share);
            let told = hybrid.describe();
            assert_eq!((division.on_device(), division.on_processor()), (device, processor));
            assert_eq!(division.refused().is_some(), apart == 1, "{name}: {told}");
            assert_eq!(division.crossings(), crossings, "{name}: {told}");
            // a shared expert is a submission of its own, for which the processor does not wait
            assert_eq!(division.submissions(), 1 + crossings / 2 + n_apart, "{name}: {told}");
            let model = load(&hybrid, &program, &weights);
            let before = picky.besides();
            assert_eq!(bits(&*model, &tokens), want, "{name}: {told}");
            assert_eq!(picky.besides() - before, 3 * n_apart, "{name}: three steps of {told}");
        }
    }
}

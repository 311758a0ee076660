//! A step that one part of a model has done and another has not is taken back whole, states on the device too; and what that
//! takes is within a bound on caches.

use std::sync::Arc;

use conformance::{Picky, Random, assert_close, golden};
use gguf::Gguf;
use gpu::GpuExecutor;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheStorage, CacheType, DeviceShare, Division, Error, Executor, Hybrid,
    HybridOptions, MemoryOptions, Model, Outputs, Part, Program, Prompt, Result, Sequence,
    SessionId, Step, StepOut,
};

use crate::device;
use crate::sessions::oracle;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 300);
const SESSIONS: MemoryOptions = MemoryOptions { cache: CACHE, sessions: 1, chunk: 100 };

/// Models whose layers have states and experts.
const MODELS: [&str; 3] = ["lfm2moe", "qwen35moe", "granitehybrid-moe"];

/// All experts on a processor that fails when it is told to, the rest on the device.
struct Apart {
    gguf: Gguf,
    program: Arc<Program>,
    processor: Picky,
}

impl Apart {
    fn new(name: &str) -> Apart {
        let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
        let program = models::load(&gguf).expect("a model that is supported").program;
        let mut processor = Picky::as_a_gpu();
        processor.refuses = |_| false;
        Apart { gguf, program, processor }
    }

    fn hybrid(&self, device: &GpuExecutor, memory: Option<u64>) -> Hybrid {
        let share = DeviceShare { apart: usize::MAX, ..DeviceShare::default() };
        let division = Division::of(&self.program, device, share.clone()).expect("it divides");
        assert!(division.submissions() > 2, "{}", division.on_device());
        let storage = CacheStorage { memory, disk: None };
        let device = device.beside(&CacheStorage::default()).expect("it is shared");
        let options = HybridOptions { share, storage, sessions: SESSIONS };
        Hybrid::new(Box::new(self.processor.clone()), device, &division, options)
    }

    /// The least memory that does for the caches of a session: that of each part alone.
    fn least(&self, device: &GpuExecutor) -> u64 {
        let share = DeviceShare { apart: usize::MAX, ..DeviceShare::default() };
        let division = Division::of(&self.program, device, share.clone()).expect("it divides");
        let least = |part: &Part| {
            let needs = match Division::is_on_device(part) {
                true => device.memory(&part.program, &SESSIONS),
                false => self.processor.memory(&part.program, &SESSIONS),
            };
            needs.expect("it is supported").bounded_cache
        };
        let least = division.parts().iter().map(least).sum();
        let told = self.hybrid(device, None).memory(&self.program, &SESSIONS);
        assert_eq!(
            told.expect("it is supported").bounded_cache,
            least,
            "taking back takes nothing"
        );
        least
    }

    fn load(&self, executor: &dyn Executor) -> Box<dyn Model> {
        let loaded =
            executor.load(Arc::clone(&self.program), &GgufWeights(&self.gguf), &mut |_| ());
        loaded.unwrap_or_else(|e| panic!("{}: {e}", executor.describe()))
    }
}

/// A step, of many tokens a prompt: ways back to its end are kept.
fn try_feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Result<Vec<f32>> {
    let (start, len) = (model.len(session)?, tokens.len());
    let prompt = (len >= 40).then_some(Prompt { start, len });
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    Ok(out.into_logits().logits)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The device is done when the processor fails: the same step again has the bits that it has in a session in which nothing
/// failed.
#[test]
fn steps_that_fail_behind_states() {
    if !crate::is_tested("steps that fail behind states") {
        return;
    }
    let Some(device) = device() else { return };
    for name in testing::cases(&MODELS, 1, "wgpu: steps that fail behind states") {
        let apart = Apart::new(name);
        let model = &*apart.load(&apart.hybrid(device, None));
        let tokens = Random::new(6).tokens(260, apart.program.vocab_size());
        let cuts = [0, 40, 41, 50, 160, 170, 240, 260];
        let fresh = model.open(&CACHE).expect("a session opens");
        let session = model.open(&CACHE).expect("a session opens");
        for (i, cut) in cuts.windows(2).enumerate() {
            let [from, to] = cut else { unreachable!("two") };
            let part = &tokens[*from..*to];
            let want = try_feed(model, fresh, part).expect("nothing fails");
            let recomputed = model.stats().spilled.recomputed;
            for (nth, n) in [(1, part.len()), (2, part.len().min(3)), (2, part.len())] {
                apart.processor.fail(nth);
                let failed = try_feed(model, session, &part[..n]).err();
                assert!(matches!(failed, Some(Error::Device { .. })), "{name}: {failed:?}");
                assert_eq!(model.len(session), Ok(*from), "{name}");
            }
            let found = try_feed(model, session, part).expect("nothing fails");
            assert_eq!(bits(&found), bits(&want), "{name}: {from} to {to}");
            assert_eq!(model.stats().spilled.recomputed, recomputed, "{name}: nothing was lost");
            if i % 2 == 0 {
                for id in [fresh, session] {
                    model.commit(id, *to).expect("it holds that many");
                }
            }
        }
    }
}

/// The least memory that is said to do does, prompt after prompt, and no more is taken.
#[test]
fn states_ahead_of_the_processor_within_a_bound() {
    let Some(device) = device() else { return };
    for name in testing::cases(&MODELS, 1, "wgpu: states within a bound") {
        let apart = Apart::new(name);
        let bound = apart.least(device);
        let model = &*apart.load(&apart.hybrid(device, Some(bound)));
        let (vocab, len) = (apart.program.vocab_size(), 290);
        let tokens = Random::new(3).tokens(len, vocab);
        let want = oracle(&*apart.load(&Interpreter), &tokens, len);
        let session = model.open(&CACHE).expect("the bound is enough");
        let mut at = 0;
        for n in [50, 60, 1, 9, 40, 1, 1, 48, 40, 40] {
            let what = format!("{name}: {n} tokens at {at}");
            let found = try_feed(model, session, &tokens[at..at + n]);
            let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_close(&found, &want[at * vocab..(at + n) * vocab], 1e-9, &what);
            at += n;
            model.commit(session, at).expect("it holds that many");
            let taken = model.stats().spilled.memory;
            assert!(taken <= bound, "{what}: {taken} of {bound} bytes");
        }
        assert_eq!(at, len);
    }
}

/// Another session has the memory: what one part has done before another found none is taken back, and once there is some,
/// the session goes on as if nothing had been.
#[test]
fn a_budget_that_ends_between_parts() {
    let Some(device) = device() else { return };
    for name in testing::cases(&MODELS, 1, "wgpu: budgets that end between parts") {
        let apart = Apart::new(name);
        let bound = apart.least(device);
        let model = &*apart.load(&apart.hybrid(device, Some(bound)));
        let tokens = Random::new(3).tokens(280, apart.program.vocab_size());
        let fresh = model.open(&CACHE).expect("a session opens");
        let parts: Vec<_> = tokens.chunks(35).collect();
        let want: Vec<_> = parts
            .iter()
            .map(|part| bits(&try_feed(model, fresh, part).expect("it has room")))
            .collect();
        model.close(fresh);
        let other = model.open(&CACHE).expect("a session opens");
        try_feed(model, other, &tokens[..150]).expect("it has room");
        let session = model.open(&CACHE).expect("a session opens");
        let (mut failures, mut at) = (0, 0);
        for (part, want) in parts.iter().zip(want) {
            let found = match try_feed(model, session, part) {
                Ok(found) => found,
                Err(why) => {
                    assert!(matches!(why, Error::CacheBudget { .. }), "{name}: {why}");
                    assert_eq!(model.len(session), Ok(at), "{name}");
                    failures += 1;
                    model.close(other);
                    try_feed(model, session, part).unwrap_or_else(|e| panic!("{name}, {at}: {e}"))
                }
            };
            assert_eq!(bits(&found), want, "{name}: at {at}");
            at += part.len();
        }
        assert_eq!(failures, 1, "{name}");
    }
}

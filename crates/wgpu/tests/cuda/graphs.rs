//! Steps that come again are replayed, and compute what they compute otherwise.

use std::sync::Arc;

use conformance::{MemoryWeights, tiny_config, tiny_model};
use gpu::{GpuExecutor, GpuOptions};
use program::{
    CacheOptions, CacheType, Executor, Model, Outputs, Sequence, SessionId, Step, StepOut,
};
use quant::GgmlType;

use crate::options;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 2048);

fn feed(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Vec<f32> {
    let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    out.expect("a step").into_logits().logits
}

/// A model on a device of its own.
fn load(device: &GpuExecutor, architecture: &str) -> Box<dyn Model> {
    let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 3);
    device.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads")
}

/// Of steps of one row the first is told command by command, the second becomes a graph, and all others are one launch, also
/// where buffers grow in between and make other graphs. Bits are those of steps that are never replayed.
#[test]
fn steps_that_come_again_are_replayed() {
    for architecture in ["qwen2", "qwen3moe", "deepseek2"] {
        let plain = GpuOptions { plain_submissions: true, ..options() };
        let devices = [options(), plain]
            .map(|options| GpuExecutor::open(&options).expect("the software device opens"));
        let models = devices.each_ref().map(|device| load(device, architecture));
        let sessions = models.each_ref().map(|model| model.open(&CACHE).expect("it opens"));
        let both = |tokens: &[u32]| {
            let [a, b] = [0, 1].map(|i| feed(&*models[i], sessions[i], tokens));
            assert!(!a.is_empty() && a == b, "{architecture}: {} tokens", tokens.len());
        };
        let counted = || devices.each_ref().map(|device| device.counts());
        both(&[1, 2, 3, 4, 5]);
        for _ in 0..2 {
            both(&[7]);
        }
        let [before, _] = counted();
        for token in 0..10 {
            both(&[token]);
        }
        let [after, never] = counted();
        assert_eq!(after.replays - before.replays, 10, "{architecture}: all are replayed");
        assert_eq!(after.submissions - before.submissions, 10, "{architecture}: one launch each");
        assert_eq!(after.encoding, before.encoding, "{architecture}: nothing is recorded");
        assert_eq!(never.replays, 0, "{architecture}: none where nobody wants it");
        // so many more that every buffer of blocks and lists grows
        both(&[3; 290]);
        for _ in 0..5 {
            both(&[7]);
        }
        let [grown, _] = counted();
        assert!(grown.replays - after.replays >= 2, "{architecture}: replayed again");
    }
}

/// A session that is given up in between, and another one in its place: what is in memory changes, and no address does.
#[test]
fn graphs_serve_any_session() {
    let device = GpuExecutor::open(&options()).expect("the software device opens");
    let model = load(&device, "qwen2");
    let mut alone = Vec::new();
    for prompt in [[5, 6, 7], [8, 9, 10]] {
        let session = model.open(&CACHE).expect("it opens");
        feed(&*model, session, &prompt);
        alone.push([1, 2, 3, 4].map(|token| feed(&*model, session, &[token])));
        model.close(session);
    }
    let before = device.counts();
    let sessions = [[5, 6, 7], [8, 9, 10]].map(|prompt| {
        let session = model.open(&CACHE).expect("it opens");
        feed(&*model, session, &prompt);
        session
    });
    for i in 0..4 {
        for (session, alone) in sessions.iter().zip(&alone) {
            assert_eq!(feed(&*model, *session, &[i as u32 + 1]), alone[i]);
        }
    }
    assert!(device.counts().replays - before.replays >= 6, "the same graphs for both");
}

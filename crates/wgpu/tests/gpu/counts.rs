//! What goes to the device: one submission and one read-back for a step, and few dispatches.

use conformance::{MemoryWeights, Random, tiny_config, tiny_model};
use gpu::DeviceCounts;
use program::{
    CacheOptions, CacheType, Executor, MemoryOptions, OutputRows, Outputs, Sequence, Step, StepOut,
    Wanted,
};
use quant::GgmlType;

use crate::open;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 512);

/// Dispatches of a layer: norm, product, rotation, attention, its join, product, norm, product, product.
const BY_LAYER: u64 = 9;
/// With experts, in place of the last two: their scores, the choice, gate and up, down, the same two products of a shared
/// expert, the sum.
const WITH_EXPERTS: u64 = BY_LAYER + 5;
/// What latent attention has beside: a narrow product and a norm before q, latents and their norm, queries brought to these,
/// values made of what was found.
const OF_LATENTS: u64 = 6;
/// Beside layers: norm and head. The embedding has the first layer's norm with it.
const BESIDE: u64 = 2;

#[test]
fn a_step_is_one_submission_and_one_read_back() {
    // a device of its own: others count too
    let Some(device) = open() else { return };
    for (architecture, by_layer) in [
        ("llama", BY_LAYER),
        ("qwen2", BY_LAYER),
        ("qwen3", BY_LAYER),
        ("qwen3moe", WITH_EXPERTS),
        ("deepseek2", WITH_EXPERTS + OF_LATENTS),
    ] {
        let config = tiny_config(architecture, 64, false);
        let program = tiny_model(&config, GgmlType::Q8_0);
        let weights = MemoryWeights::random(&program, 3);
        let model = device.load(program, &weights, &mut |_| ()).expect("it loads");
        let session = model.open(&CACHE).expect("a session opens");
        let tokens = Random::new(2).tokens(300, config.vocab_size);
        let (prompt, rest) = tokens.split_at(290);
        for (tokens, outputs) in [(prompt, Outputs::NONE), (rest, Outputs::ALL)]
            .into_iter()
            .chain(rest.chunks(1).map(|token| (token, Outputs::LAST)))
        {
            let before = device.counts();
            let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
            let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
            out.expect("a step");
            let after = device.counts();
            let DeviceCounts { submissions, readbacks, dispatches, .. } = before;
            assert_eq!(after.submissions, submissions + 1, "{architecture}: submissions");
            let read = u64::from(outputs != Outputs::NONE);
            assert_eq!(after.readbacks, readbacks + read, "{architecture}: read-backs");
            let dispatches = after.dispatches - dispatches;
            let most = by_layer * config.layers.len() as u64 + BESIDE;
            assert!(dispatches <= most, "{architecture}: {dispatches} dispatches, {most} allowed");
        }
    }
}

/// Who goes by the likeliest tokens alone reads these alone.
#[test]
fn few_tokens_are_few_bytes() {
    let Some(device) = open() else { return };
    let config = tiny_config("qwen2", 64, true);
    let program = tiny_model(&config, GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 3);
    let model = device.load(program, &weights, &mut |_| ()).expect("it loads");
    assert_eq!(model.most_candidates(), 96);
    let session = model.open(&CACHE).expect("a session opens");
    for (k, want) in [(1, 8), (40, 320), (97, 4 * 128)] {
        let before = device.counts();
        let outputs = Outputs { rows: OutputRows::Last, what: Wanted::Candidates { k } };
        let sequence = Sequence { session, tokens: &[3], outputs, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        assert_eq!(out.expect("a step").into_candidates().candidates.len(), k);
        let after = device.counts();
        assert_eq!(after.bytes_read - before.bytes_read, want, "{k} tokens");
        assert_eq!(after.readbacks - before.readbacks, 1, "{k} tokens: read-backs");
        // so short a past is attended whole; the one stretch of logits is searched, unless all are read
        let best = u64::from(k < 97);
        let want = (BY_LAYER - 1) * config.layers.len() as u64 + BESIDE + best;
        assert_eq!(after.dispatches - before.dispatches, want, "{k} tokens: dispatches");
    }
}

/// What is said to be needed is what is taken.
#[test]
fn memory_is_what_was_predicted() {
    if !crate::is_tested("predicted memory") {
        return;
    }
    let Some(device) = open() else { return };
    let all = [
        ("qwen2", GgmlType::Q4_0),
        ("deepseek2", GgmlType::Q8_0),
        ("qwen2moe", GgmlType::Q8_0),
        ("qwen2", GgmlType::F32),
        ("qwen2", GgmlType::Q8_0),
    ];
    for (architecture, ty) in testing::cases(&all, 2, "wgpu: predicted memory").iter().copied() {
        let config = tiny_config(architecture, 256, true);
        let program = tiny_model(&config, ty);
        let options = MemoryOptions { cache: CACHE, sessions: 1, chunk: 64 };
        let needs = device.memory(&program, &options).expect("it is supported");
        let weights = MemoryWeights::random(&program, 3);
        let model = device.load(program, &weights, &mut |_| ()).expect("it loads");
        assert_eq!(needs.weights, model.stats().weight_memory, "{architecture}, {ty}: weights");
        let session = model.open(&CACHE).expect("a session opens");
        for chunk in Random::new(2).tokens(512, config.vocab_size).chunks(64) {
            let outputs = Outputs::NONE;
            let sequence = Sequence { session, tokens: chunk, outputs, prompt: None, rows: &[] };
            let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
            out.expect("a step");
        }
        assert_eq!(
            needs.cache,
            model.cache_bytes(session).expect("it is open"),
            "{architecture}, {ty}: cache"
        );
    }
}

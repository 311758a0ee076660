//! Memory of a model: what runs out, what was predicted.

use std::sync::Arc;

use conformance::{MemoryWeights, Random, golden, tiny_config, tiny_model};
use gguf::Gguf;
use program::{
    CacheOptions, CacheStorage, CacheType, Error, MemoryOptions, Model, Outputs, Program, Result,
    Sequence, SessionId, Step, StepOut, WeightSource,
};
use quant::GgmlType;

use super::{GpuModel, lock};
use crate::caches::CacheNeeds;
use crate::declare::{self, DeviceMemory};
use crate::device::Gpu;
use crate::{GpuOptions, Interface};

const HALF: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 4096);

/// A device of one's own; told as skipped where there is none.
/// Its buffers have `most_bytes`, if that is given.
pub(crate) fn device(most_bytes: Option<u64>) -> Option<Gpu> {
    let is_cuda = std::env::var("ROOFLIGHT_TEST_INTERFACE").is_ok_and(|name| name == "cuda");
    let interface = if is_cuda { Interface::Cuda } else { Interface::Wgpu };
    let wanted = std::env::var("ROOFLIGHT_REQUIRE_DEVICE").ok().filter(|name| !name.is_empty());
    let adapter = wanted.clone().filter(|name| name != "any");
    let options = GpuOptions { interface, adapter, most_bytes, ..GpuOptions::default() };
    match crate::open(&options) {
        Ok(gpu) => Some(gpu),
        Err(why) => {
            assert!(wanted.is_none(), "a device is required, but: {why}");
            testing::skipped(&format!("{interface:?}: {why}"));
            None
        }
    }
}

fn program() -> Arc<Program> {
    program_of("llama")
}

fn program_of(architecture: &str) -> Arc<Program> {
    tiny_model(&tiny_config(architecture, 64, false), GgmlType::F32)
}

fn load(gpu: &Arc<Gpu>, program: &Arc<Program>) -> GpuModel {
    load_with(gpu, program, &MemoryWeights::random(program, 5))
}

fn load_with(gpu: &Arc<Gpu>, program: &Arc<Program>, weights: &dyn WeightSource) -> GpuModel {
    load_within(gpu, program, weights, None)
}

fn load_within(
    gpu: &Arc<Gpu>,
    program: &Arc<Program>,
    weights: &dyn WeightSource,
    memory: Option<u64>,
) -> GpuModel {
    let storage = CacheStorage { memory, disk: None };
    GpuModel::load(gpu, Arc::clone(program), weights, &storage, &mut |_| ()).expect("it loads")
}

fn feed(model: &GpuModel, session: SessionId, tokens: &[u32]) -> Result<Vec<f32>> {
    let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    Ok(out.into_logits().logits)
}

/// A session for which there is no memory does not take the others' with it.
#[test]
fn who_finds_no_memory_leaves_the_others_theirs() {
    let Some(mut gpu) = device(None) else { return };
    // blocks of 8 KiB: 32 for each layer
    gpu.limit_buffers(256 << 10);
    let model = load(&Arc::new(gpu), &program());
    let a = model.open(&HALF).expect("a session opens");
    let tokens = Random::new(1).tokens(100, 97);
    feed(&model, a, &tokens).expect("there is room");
    let mut others = Vec::new();
    for n in 0.. {
        let other = model.open(&HALF).expect("a session opens");
        model.make_up(other, 900).expect("there is room");
        others.push(other);
        if let Err(why) = feed(&model, other, &[1]) {
            assert!(matches!(why, Error::Memory { .. }) && n > 0, "{n}: {why}");
            break;
        }
    }
    model.close(others.pop().expect("one failed"));
    let found = feed(&model, a, &[3]).expect("its blocks are there");
    let alone = model.open(&HALF).expect("a session opens");
    others.into_iter().for_each(|other| model.close(other));
    feed(&model, alone, &tokens).expect("there is room again");
    assert_eq!(found, feed(&model, alone, &[3]).expect("there is room"));
}

/// The caches of a model lie in a buffer for each layer: none bounds them all.
#[test]
fn a_buffer_bounds_the_cache_of_one_layer_alone() {
    let Some(mut gpu) = device(None) else { return };
    gpu.limit_buffers(128 << 10);
    let model = load(&Arc::new(gpu), &program());
    let session = model.open(&HALF).expect("a session opens");
    // 16 blocks of 8 KiB in each of two layers
    model.make_up(session, 1023).expect("there is room");
    feed(&model, session, &[1]).expect("there is room");
}

/// What is predicted of a workspace is what steps take, splits of the past and lists included.
#[test]
fn the_workspace_is_what_was_predicted() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let all = [
        ("lfm2", 64, 2),
        ("llama", 64, 2),
        ("llama", 64, 4),
        ("deepseek2", 64, 4),
        ("llama", 512, 1),
        ("llama", 32, 12),
        ("qwen2moe", 64, 1),
        ("mamba2", 64, 1),
        ("qwen35", 128, 1),
    ];
    for (architecture, chunk, sessions) in testing::cases(&all, 1, "wgpu: predicted workspaces") {
        let (architecture, chunk, sessions) = (*architecture, *chunk, *sessions);
        // what recurs has files
        let file = ["lfm2", "mamba2", "qwen35"]
            .contains(&architecture)
            .then(|| Gguf::from_bytes(golden::model(architecture)).expect("a model that was made"));
        let of_file = |gguf| models::load(gguf).expect("a model that is supported").program;
        let program = file.as_ref().map_or_else(|| program_of(architecture), of_file);
        let cache = CacheOptions { capacity: 2048, ..HALF };
        let options = MemoryOptions { cache, sessions, chunk };
        let device = DeviceMemory {
            most_bytes: gpu.most_bytes(),
            is_card: true,
            bound: None,
            has_wide: gpu.able().has_wide(),
        };
        let needs = declare::memory(&program, &options, device).expect("it is supported");
        let model = match &file {
            Some(gguf) => load_with(&gpu, &program, &models::GgufWeights(gguf)),
            None => load(&gpu, &program),
        };
        let ids: Vec<_> = (0..sessions).map(|_| model.open(&cache).expect("it opens")).collect();
        for id in &ids {
            // steps of a long past are split; the step with most rows comes where the past is longest
            let few = [2, 4, 7, 8, 9, 33, 248].map(|rows: usize| rows.min(chunk));
            let before = cache.capacity - 1 - few.iter().sum::<usize>();
            for part in Random::new(id.0).tokens(before, 97).chunks(chunk) {
                feed(&model, *id, part).expect("a step");
            }
            for rows in few {
                feed(&model, *id, &[1; 248][..rows]).expect("a step");
            }
        }
        let outputs = Outputs::LAST;
        let sequence = |id: &SessionId| Sequence {
            session: *id,
            tokens: &[1],
            outputs,
            prompt: None,
            rows: &[],
        };
        let all: Vec<_> = ids.iter().map(sequence).collect();
        let out = model.step(&Step { sequences: &all }).expect("a step");
        assert!(out.sequences.iter().all(|one| one.is_ok()));
        let caches = CacheNeeds::of(&program, &options).expect("it is supported");
        let cached = lock(&model.workspace).cache_bytes();
        assert!(cached <= needs.cache, "{architecture}: {cached} of {} bytes", needs.cache);
        let taken = lock(&model.workspace).bytes() + caches.largest;
        let near = needs.work.abs_diff(taken) as f64 / taken as f64;
        let what = format!("{architecture}, chunk {chunk}, {sessions} sessions");
        assert!(near <= 0.03, "{what}: {}, took {taken}", needs.work);
    }
}

/// Rows that are lost are computed again in steps of no more rows than the session's own had, which there is memory for.
#[test]
fn what_is_computed_again_takes_no_more_than_steps() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let gguf = Gguf::from_bytes(golden::model("mamba2")).expect("a model that was made");
    let program = models::load(&gguf).expect("a model that is supported").program;
    let model = load_with(&gpu, &program, &models::GgufWeights(&gguf));
    let session = model.open(&CacheOptions { capacity: 2048, ..HALF }).expect("it opens");
    let tokens = Random::new(2).tokens(400, program.vocab_size());
    for part in tokens.chunks(40) {
        feed(&model, session, part).expect("a step");
    }
    let before = lock(&model.workspace).bytes();
    assert_eq!(model.truncate(session, 300), Ok(300), "nothing was committed");
    feed(&model, session, &[1]).expect("a step");
    assert!(model.stats().spilled.recomputed > 100, "{:?}", model.stats().spilled);
    assert_eq!(lock(&model.workspace).bytes(), before);
}

/// Buffers of caches grow ahead of time, but not beyond a bound on all of them.
#[test]
fn buffers_of_caches_stay_within_a_bound() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let all = ["lfm2", "llama", "mamba2", "qwen35"];
    for name in testing::cases(&all, 2, "wgpu: bounds on buffers of caches") {
        let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
        let program = models::load(&gguf).expect("a model that is supported").program;
        let cache = CacheOptions { capacity: 1024, ..HALF };
        let options = MemoryOptions { cache, sessions: 1, chunk: 64 };
        let CacheNeeds { least, most, .. } =
            CacheNeeds::of(&program, &options).expect("it is supported");
        for bound in [least, (least + most) / 2] {
            let weights = models::GgufWeights(&gguf);
            let model = load_within(&gpu, &program, &weights, Some(bound));
            let session = model.open(&cache).expect("the bound is enough");
            for part in Random::new(2).tokens(1000, program.vocab_size()).chunks(64) {
                feed(&model, session, part).expect("a step");
                let len = model.len(session).expect("it is open");
                model.commit(session, len).expect("it holds that many");
                let taken = lock(&model.workspace).cache_bytes();
                assert!(taken <= bound, "{name}, {len} positions: {taken} of {bound} bytes");
            }
        }
    }
}

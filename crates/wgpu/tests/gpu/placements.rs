//! Weights placed by name: whatever of a mixture lies on which side, the greedy ids are the processor's.

use std::collections::BTreeSet;
use std::sync::Arc;

use conformance::{MemoryWeights, Random, deep_config, tiny_model};
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheStorage, CacheType, DeviceShare, Division, Executor, Hybrid, HybridOptions,
    MemoryOptions, Model, Program,
};
use quant::GgmlType;

use crate::device;
use crate::sessions::feed;

const EXACT: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 64);
const SESSIONS: MemoryOptions = MemoryOptions { cache: EXACT, sessions: 1, chunk: 16 };

const LAYERS: u32 = 4;
/// What is placed as one: the embedding, the output, and of each layer the experts and the rest.
const PIECES: u32 = 2 + 2 * LAYERS;

/// Which of these a weight is of.
fn piece(name: &str) -> Option<usize> {
    if let Some(rest) = name.strip_prefix("blk.") {
        let (layer, _) = rest.split_once('.')?;
        return Some(2 + 2 * layer.parse::<usize>().ok()? + usize::from(name.contains("_exps")));
    }
    ["token_embd", "output"].iter().position(|begins| name.starts_with(begins))
}

/// The likeliest tokens of a prompt and of what is chosen after it.
fn greedy(model: &dyn Model, prompt: &[u32]) -> Vec<u32> {
    let vocab = model.program().vocab_size();
    let session = model.open(&EXACT).expect("a session opens");
    let best = |logits: Vec<f32>| {
        let last = logits[logits.len() - vocab..].iter().enumerate();
        last.max_by(|a, b| a.1.total_cmp(b.1)).expect("a vocabulary").0 as u32
    };
    let mut ids = vec![best(feed(model, session, prompt))];
    for _ in 0..2 {
        let last = ids[ids.len() - 1];
        ids.push(best(feed(model, session, &[last])));
    }
    ids
}

fn load(
    executor: &dyn Executor,
    program: &Arc<Program>,
    weights: &MemoryWeights,
) -> Box<dyn Model> {
    executor.load(Arc::clone(program), weights, &mut |_| ()).expect("it loads")
}

/// The placements to try: all of them, or in the gate each piece alone on a side and every 31st of the others.
fn placements() -> Vec<u32> {
    let all = 0..1_u32 << PIECES;
    if testing::full("wgpu: all 1,024 placements of a mixture") {
        return all.collect();
    }
    let apart = |placement: &u32| {
        let on_device = placement.count_ones();
        on_device <= 1 || on_device >= PIECES - 1 || placement % 31 == 13
    };
    all.filter(apart).collect()
}

#[test]
fn every_placement_of_a_mixture() {
    if !crate::is_tested("placements of a mixture") {
        return;
    }
    let Some(device) = device() else { return };
    let name = "qwen2moe";
    let program = tiny_model(&deep_config(name, 64, false, LAYERS), GgmlType::F32);
    let weights = MemoryWeights::random(&program, 3);
    let tokens = Random::new(2).tokens(9, program.vocab_size());
    let want = greedy(&*load(&Interpreter, &program, &weights), &tokens);
    let mut told = BTreeSet::new();
    let placements = placements();
    for placement in &placements {
        // what all layers read when they are loaded is with each of them
        let side = |name: &str| piece(name).is_some_and(|piece| placement >> piece & 1 == 1);
        let names = program.weights.iter().map(|spec| spec.name.clone());
        let named = names.map(|name| (name.clone(), side(&name))).collect();
        let share = DeviceShare { named, ..DeviceShare::default() };
        assert_eq!(share.torn(&program), None);
        let division = Division::of(&program, device, share.clone()).expect("it divides");
        assert_eq!(division.refused(), None, "{name}, {placement:b}");
        // what a side was told to keep it keeps, and no more
        for part in division.parts() {
            let on_device = Division::is_on_device(part);
            let kept = part.program.weights.iter().filter(|spec| piece(&spec.name).is_some());
            for spec in kept {
                assert_eq!(side(&spec.name), on_device, "{name}, {placement:b}: {}", spec.name);
            }
        }
        let options = HybridOptions { share, storage: CacheStorage::default(), sessions: SESSIONS };
        let shared = device.beside(&CacheStorage::default()).expect("it is shared");
        let hybrid = Hybrid::new(Box::new(Interpreter), shared, &division, options);
        told.insert(hybrid.describe());
        let found = greedy(&*load(&hybrid, &program, &weights), &tokens);
        assert_eq!(found, want, "{name}, {placement:b}: {}", hybrid.describe());
    }
    // many placements are described alike: by numbers of layers
    let least = if placements.len() == 1 << PIECES { 40 } else { 10 };
    assert!(told.len() > least, "{name}: {} ways to say it", told.len());
}

//! Products of many rows in larger tiles, which a card's matrices make.

use std::sync::Arc;

use conformance::{MemoryWeights, Random, nmse, tiny_config, tiny_model};
use gpu::GpuExecutor;
use program::{
    CacheOptions, CacheType, Executor, KernelShape, KernelTuning, Model, Outputs, ProductType,
    Sequence, Step, StepOut,
};
use quant::GgmlType;

use crate::options;

/// Most error of f16, normalized and squared, through a model of two layers.
const MOST_ERROR: f64 = 1e-5;

/// Logits of all rows, and how many dispatches they took.
fn logits(device: &GpuExecutor, model: &dyn Model, tokens: &[u32]) -> (Vec<f32>, u64) {
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, 512);
    let session = model.open(&cache).expect("it opens");
    let before = device.counts().dispatches;
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    model.close(session);
    (out.expect("a step").into_logits().logits, device.counts().dispatches - before)
}

/// Whole tiles, one row more, a few rows less, and so few rows that they have no larger tiles; matrices of one tile, of
/// several, and of parts of tiles; with biases, gates and residuals.
#[test]
fn many_rows_in_larger_tiles() {
    for (architecture, ty) in [
        ("llama", GgmlType::Q8_0),
        ("qwen2", GgmlType::Q4K),
        ("gemma2", GgmlType::Q6K),
        ("llama", GgmlType::F16),
    ] {
        let device = GpuExecutor::open(&options()).expect("the software device opens");
        let config = tiny_config(architecture, 256, false);
        let program = tiny_model(&config, ty);
        let weights = MemoryWeights::random(&program, 3);
        let load = || device.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads");
        let exact = load();
        let (rows, teams, subgroups) = (2, 2, true);
        let product = ProductType::F16;
        device.set_shapes(&[KernelShape { ty, at_once: 32, rows, teams, product, subgroups }]);
        let rounded = load();
        for n in [32, 33, 64, 65, 130] {
            let tokens = Random::new(n as u64).tokens(n, config.vocab_size);
            let (want, few) = logits(&device, &*exact, &tokens);
            let (got, more) = logits(&device, &*rounded, &tokens);
            let error = nmse(&got, &want);
            let what = format!("{architecture}, {ty}, {n} rows");
            assert!(error > 0.0 && error < MOST_ERROR, "{what}: {error:e}");
            // rows are rounded before each product that is made so
            assert_eq!(more > few, n > 32, "{what}: {few} dispatches, {more} in tiles");
        }
    }
}

/// The same steps have the same bits again.
#[test]
fn larger_tiles_have_the_same_bits_again() {
    let device = GpuExecutor::open(&options()).expect("the software device opens");
    let config = tiny_config("llama", 256, false);
    let program = tiny_model(&config, GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 3);
    let (at_once, rows, teams, subgroups) = (32, 2, 2, true);
    let (ty, product) = (GgmlType::Q8_0, ProductType::F16);
    device.set_shapes(&[KernelShape { ty, at_once, rows, teams, product, subgroups }]);
    let model = device.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads");
    let tokens = Random::new(5).tokens(70, config.vocab_size);
    let (logits, _) = logits(&device, &*model, &tokens);
    assert!(logits.iter().all(|logit| logit.is_finite()));
    let again = self::logits(&device, &*model, &tokens).0;
    assert_eq!(logits, again, "the same bits again");
}

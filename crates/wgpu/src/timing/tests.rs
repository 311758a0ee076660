use std::sync::Arc;
use std::time::Instant;

use conformance::{MemoryWeights, tiny_config, tiny_model};
use program::{
    CacheOptions, CacheStorage, CacheType, Model, Outputs, Sequence, SessionId, Step, StepOut,
};
use quant::GgmlType;

use super::*;
use crate::formats::device_format;
use crate::model::GpuModel;
use crate::model::tests::device;

#[test]
fn ticks_become_times() {
    let nanos = |stamps: Stamps, ticks: &[u64]| -> Vec<u128> {
        stamps.times(ticks, 2.0).iter().map(Duration::as_nanos).collect()
    };
    assert_eq!(nanos(Stamps::Between, &[5, 7, 7, 17]), [4, 0, 20]);
    assert_eq!(nanos(Stamps::OfPasses, &[5, 7, 8, 18]), [4, 20]);
    assert_eq!(nanos(Stamps::Between, &[7, 5]), [0], "a clock that was set back");
    assert_eq!(nanos(Stamps::Between, &[]), [0; 0]);
    assert_eq!([0, 1, 9].map(|n| Stamps::Between.count(n)), [0, 2, 10]);
    assert_eq!([0, 1, 9].map(|n| Stamps::OfPasses.count(n)), [0, 2, 18]);
}

/// Weights of such a model, which it reads whole for a row.
fn load(gpu: &Arc<Gpu>, architecture: &str) -> GpuModel {
    let program = tiny_model(&tiny_config(architecture, 256, false), GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 5);
    let storage = CacheStorage::default();
    GpuModel::load(gpu, program, &weights, &storage, &mut |_| ()).expect("it loads")
}

fn feed(model: &GpuModel, id: SessionId, tokens: &[u32], outputs: Outputs) -> Vec<f32> {
    let sequence = Sequence { session: id, tokens, outputs, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    if outputs == Outputs::NONE { Vec::new() } else { out.expect("a step").into_logits().logits }
}

/// However a device writes timestamps, all phases of a step have times, which fit in the step, and the bits are those of a
/// step that nobody times, in one submission.
#[test]
fn a_step_tells_where_its_time_went() {
    let Some(gpu) = device(None) else { return };
    let can = gpu.stamps();
    drop(gpu);
    for stamps in [can, can.map(|_| Stamps::OfPasses), None] {
        let Some(mut gpu) = device(None) else { return };
        gpu.limit_stamps(stamps);
        let gpu = Arc::new(gpu);
        let model = load(&gpu, "qwen2");
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 256);
        let [plain, timed] = [0; 2].map(|_| model.open(&cache).expect("a session opens"));
        let prompt: Vec<u32> = (0..70).collect();
        let want = [&prompt[..], &[3], &[4]].map(|t| feed(&model, plain, t, Outputs::LAST));
        assert!(model.phases().is_empty(), "nobody asked");
        model.time_phases(true);
        for (tokens, want) in [&prompt[..], &[3], &[4]].into_iter().zip(want) {
            let (before, begun) = (gpu.counts.submissions.load(Ordering::Relaxed), Instant::now());
            let found = feed(&model, timed, tokens, Outputs::LAST);
            let took = begun.elapsed();
            assert_eq!(found, want, "{stamps:?}");
            assert_eq!(gpu.counts.submissions.load(Ordering::Relaxed), before + 1);
            let phases = model.phases();
            let of = |kind: &str| phases.iter().filter(|phase| phase.kind == kind).count();
            if stamps.is_none() {
                assert!(phases.is_empty(), "an adapter that writes none");
                continue;
            }
            assert_eq!([of("embed"), of("linear"), of("attention")], [1, 9, 2], "{phases:?}");
            let inside: Duration = phases.iter().map(|phase| phase.elapsed).sum();
            assert!(inside > Duration::ZERO && inside <= took, "{inside:?} of {took:?}");
            let names = ["blk.0.ffn_norm.weight", "blk.1.ffn_down.weight", "blk.1.attn"];
            for name in names {
                let named: Vec<_> = phases.iter().filter(|phase| phase.name == name).collect();
                assert_eq!(named.len(), 1, "{name}: {phases:?}");
                assert!(named[0].elapsed > Duration::ZERO, "{stamps:?}: {:?}", named[0]);
            }
        }
        // without results times are all that is read back
        feed(&model, timed, &[5], Outputs::NONE);
        assert_eq!(model.phases().is_empty(), stamps.is_none());
        model.time_phases(false);
        assert!(model.phases().is_empty());
        feed(&model, timed, &[6], Outputs::NONE);
        assert!(model.phases().is_empty(), "nobody asks any more");
    }
}

/// What phases say that they read: of one row all matrices once, of more each as often as kernels read it.
#[test]
fn phases_count_the_weights_they_read() {
    let Some(gpu) = device(None) else { return };
    if gpu.stamps().is_none() {
        return testing::skipped("times of phases: the adapter writes no timestamps");
    }
    let gpu = Arc::new(gpu);
    for architecture in ["qwen2", "qwen3moe", "deepseek2"] {
        let model = load(&gpu, architecture);
        let program = Arc::clone(model.program());
        model.time_phases(true);
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 256);
        let id = model.open(&cache).expect("a session opens");
        let read = |tokens: &[u32]| -> u64 {
            feed(&model, id, tokens, Outputs::ALL);
            let phases = model.phases();
            let matrices = phases.iter().filter(|phase| phase.kind != "embed");
            matrices.map(|phase| phase.weight_bytes).sum()
        };
        let [one, four, five, nine] = [1, 4, 5, 9].map(|n| read(&[1; 9][..n]));
        let all = model.stats().weight_memory;
        assert!(one > 0 && one < all, "{architecture}: {one} of {all}");
        if architecture == "qwen2" {
            let table = program.weights.iter().find(|spec| spec.name == "token_embd.weight");
            let words = device_format(GgmlType::Q8_0).expect("a type").row_words(256);
            let table = table.expect("it embeds").rows * words.bytes();
            // vectors, and what fills buffers up, are little
            let matrices = all - table as u64;
            assert!(one <= matrices && one > matrices * 9 / 10, "{one} of {matrices}");
            assert_eq!([four, five, nine], [one, 2 * one, one], "as often as kernels read them");
        } else {
            assert!(four > one && five > one && nine > one, "{architecture}");
        }
    }
}

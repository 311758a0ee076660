//! Predictions from costs and ceilings.

use std::time::Duration;

use planner::{Cost, CostKind, CostOptions, Load, Machine, Prediction, Resource, Work, share};
use program::{
    Attention, CacheKind, CacheSpec, CacheType, Ceilings, ComputeCeiling, OutputKind, Program,
    ReadCeiling, Recorder, WeightSpec,
};
use quant::GgmlType;

const MACHINE: Machine = Machine {
    bandwidth: 10e9,
    int8_macs: 100e9,
    f16_macs: 40e9,
    bf16_macs: 30e9,
    f32_macs: 20e9,
    barrier: 1e-6,
};

/// `head . (x + wo . attention(x, x, x))`, one layer, heads of 64.
fn program() -> program::Result<Program> {
    let r = Recorder::new();
    let weight = |name: &str, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::Q8_0, rows, cols, start: 0 })
    };
    let x = r.embed(weight("token_embd.weight", 5000, 64))?;
    r.layer(Some(0));
    let cache = r.cache(CacheSpec {
        layer: 0,
        kind: CacheKind::Heads { n_kv_heads: 1, key_dim: 64, value_dim: 64, window: None },
    });
    let a = r.attention("attn", Attention::causal(cache, None, 0.125), &[x, x, x])?;
    let o = r.linear("attn_output", a, weight("blk.0.attn_output.weight", 64, 64))?;
    let x = r.add("attn_residual", x, o)?;
    r.layer(None);
    let x = r.select_rows("rows", x)?;
    let logits = r.linear("output", x, weight("output.weight", 5000, 64))?;
    Ok(r.finish(&[(OutputKind::Logits, logits)]))
}

fn cost_of(past: u64, tokens: u64) -> Load {
    Load { past, tokens, outputs: 1 }
}

/// Neither chunks nor tiles of queries are part of a limit: weights and cache are read once.
#[test]
fn a_prompt_reads_everything_once_at_least() {
    let options = CostOptions { narrow: false, ..CostOptions::default() };
    let cost = Cost::of(&program().unwrap(), &options);
    let (past, n) = (100, 5000);
    let prompt = Prediction::of_prefill(&cost, past..past + n, &MACHINE);
    let weights = n * 68 + 5000 * 68 + 64 * 68;
    let cache = (past + n + n) * 2 * 64 * 2;
    close(prompt.memory, (weights + cache) as f64 / 10e9);
    let chunked = cost.prefill_in_chunks(past..past + n, 64);
    assert!(prompt.memory < Prediction::of_work(&chunked, &MACHINE).memory);
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-12, "{a} vs {b}");
}

#[test]
fn work_takes_as_long_as_what_binds() {
    let work = |weight_bytes, int8_macs, f32_macs| Work {
        weight_bytes,
        int8_macs,
        f32_macs,
        barriers: 1,
        ..Work::default()
    };
    let check = |work: Work, binds: Resource, limit: f64, compute: f64| {
        let p = Prediction::of_work(&work, &MACHINE);
        assert_eq!((p.binds(), p.compute()), (binds, compute));
        close(p.limit(), limit);
    };
    check(work(1_000_000, 0, 0), Resource::Memory, 1e-4, 0.0);
    check(work(1_000_000, 50_000_000, 0), Resource::Int8, 5e-4, 5e-4);
    check(work(1_000_000, 50_000_000, 20_000_000), Resource::F32, 1e-3, 1e-3);
    // waiting is no limit: another program may wait less often
    check(work(1_000, 0, 0), Resource::Memory, 1e-7, 0.0);
    let halves = |f16_macs, bf16_macs| Work { f16_macs, bf16_macs, ..Work::default() };
    check(halves(40_000_000, 0), Resource::F16, 1e-3, 1e-3);
    check(halves(40_000_000, 60_000_000), Resource::Bf16, 2e-3, 2e-3);
}

#[test]
fn steps_and_prompts() {
    let options = CostOptions { query_tile: 1, narrow: false, ..CostOptions::default() };
    let cost = Cost::of(&program().unwrap(), &options);
    let head = 5000 * 68;
    let step = Prediction::of_step(&cost, 1000, &MACHINE);
    // A row of the embedding, the head, the output matrix; 1001 positions read and one written.
    let bytes = 68 + head + 64 * 68 + (1001 + 1) * 2 * 64 * 2;
    close(step.memory, bytes as f64 / 10e9);
    close(step.int8, f64::from(5064 * 64) / 100e9);
    close(step.f16, f64::from(1001 * 128) / 40e9);
    close(step.barriers, 4e-6);
    assert_eq!(step.binds(), Resource::Memory);
    assert!(Prediction::of_step(&cost, 2000, &MACHINE).limit() > step.limit());

    let whole = Prediction::of_prefill(&cost, 0..600, &MACHINE);
    assert_eq!(whole, Prediction::of_pass(&cost, &cost_of(0, 600), &MACHINE));
    assert_eq!(Prediction::of_prefill(&cost, 7..7, &MACHINE), Prediction::default());
    let one = Prediction::of_prefill(&cost, 0..1, &MACHINE);
    assert_eq!(one, Prediction::of_step(&cost, 0, &MACHINE));
}

#[test]
fn parts_of_the_model_add_up() {
    let cost = Cost::of(&program().unwrap(), &CostOptions::default());
    let load = Load { past: 70, tokens: 20, outputs: 1 };
    let parts = CostKind::ALL.map(|kind| Prediction::of_kind(&cost, &load, kind, &MACHINE));
    let sum = parts.iter().fold(Prediction::default(), |all, part| all.plus(part));
    let whole = Prediction::of_pass(&cost, &load, &MACHINE);
    close(sum.memory, whole.memory);
    close(sum.int8, whole.int8);
    close(sum.barriers, whole.barriers);
    close(sum.f16, whole.f16);
    assert!(parts.iter().map(Prediction::limit).sum::<f64>() >= whole.limit());
}

#[test]
fn smaller_caches_read_less() {
    let cost = |kv| {
        let options = CostOptions { k: kv, v: kv, ..CostOptions::default() };
        Prediction::of_step(&Cost::of(&program().unwrap(), &options), 4096, &MACHINE).memory
    };
    assert!(cost(CacheType::Q8_0) < cost(CacheType::F16));
    assert!(cost(CacheType::F16) < cost(CacheType::F32));
}

#[test]
fn shares() {
    assert_eq!(share(3.0, 4.0), Some(0.75));
    assert_eq!(share(5.0, 4.0), Some(1.25), "never hidden");
    assert_eq!(share(1.0, 0.0), None);
    assert_eq!(share(0.0, 1.0), None);
    assert_eq!(share(1.0, f64::NAN), None);
}

#[test]
fn ceilings_by_threads_and_working_set() {
    let read = |threads, working_set, bytes_per_second| ReadCeiling {
        threads,
        working_set,
        bytes_per_second,
    };
    let compute = |threads, rate| ComputeCeiling {
        threads,
        f32_macs_per_second: rate,
        int8_macs_per_second: 4.0 * rate,
    };
    let ceilings = Ceilings {
        read: vec![read(1, 1000, 9e9), read(1, 100_000, 5e9), read(2, 1000, 18e9)],
        compute: vec![compute(1, 1e9), compute(2, 2e9), compute(4, 3e9)],
        barrier: Duration::from_micros(2),
        submission: Duration::ZERO,
    };
    let bandwidth =
        |threads, set| Machine::measured(&ceilings, threads, set).map(|machine| machine.bandwidth);
    assert_eq!(bandwidth(1, 1000), Some(9e9));
    // of a larger working set, caches hold at best as much as their own set
    let two_thirds = bandwidth(1, 3000).expect("measured");
    assert!((two_thirds - 3000.0 / (1000.0 / 9e9 + 2000.0 / 5e9)).abs() < 1.0, "{two_thirds}");
    let memory = bandwidth(1, 1 << 40).expect("measured");
    assert!((memory / 5e9 - 1.0).abs() < 1e-6, "the largest working set is memory: {memory}");
    let falls = (10..40).map(|bits| bandwidth(1, 1 << bits).expect("measured")).collect::<Vec<_>>();
    assert!(falls.is_sorted_by(|a, b| a >= b), "{falls:?}");
    assert_eq!(bandwidth(2, 5000), Some(18e9));
    assert_eq!(bandwidth(4, 1000), None, "not measured");
    assert_eq!(bandwidth(3, 1000), None);
    let machine = Machine::measured(&ceilings, 2, 1 << 30).unwrap();
    assert_eq!((machine.int8_macs, machine.f32_macs, machine.barrier), (8e9, 2e9, 2e-6));
    assert_eq!((machine.f16_macs, machine.bf16_macs), (2e9, 2e9), "halves are widened");
}

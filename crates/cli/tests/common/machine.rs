//! A machine that was measured before: figures that make no sense, but none has to be measured.

#![allow(dead_code, reason = "every test file uses a part of it")]

use executors::{ExecutorKind, ExecutorOptions};
use planner::{Executed, WantedRates};
use program::{CacheType, MlaDims, Program, ScanDims};
use serde_json::{Value, json};

/// The content of `.cache/rooflight/machine.json` with ceilings, and all rates that the model in `gguf` needs, for this
/// machine with one thread and with two.
pub(crate) fn measured(gguf: &[u8]) -> String {
    let gguf = gguf::Gguf::from_bytes(gguf.to_vec()).expect("it opens");
    measured_for(&models::load(&gguf).expect("it loads").program)
}

/// The same for a program.
pub(crate) fn measured_for(program: &Program) -> String {
    let wanted = Executed::of(program, CacheType::F16, CacheType::F16).wanted();
    // and for as many threads as start by default
    measured_as([cpu(1), cpu(2), ExecutorOptions::default()], &wanted)
}

/// The same for the interpreter too, and for a processor without vectors, with the usual rates beside those of the model.
pub(crate) fn measured_everywhere(gguf: &[u8]) -> String {
    let gguf = gguf::Gguf::from_bytes(gguf.to_vec()).expect("it opens");
    let program = models::load(&gguf).expect("it loads").program;
    let mut wanted = WantedRates::usual();
    let own = Executed::of(&program, CacheType::F16, CacheType::F16).wanted();
    wanted.types.extend(own.types.iter().filter(|ty| !WantedRates::usual().types.contains(ty)));
    wanted.attention.extend(own.attention);
    let scalar = |threads| ExecutorOptions { isa: Some(kernels::Isa::NONE), ..cpu(threads) };
    let interpreter = ExecutorOptions { kind: ExecutorKind::Interpreter, ..cpu(1) };
    measured_as([cpu(1), cpu(2), scalar(1), scalar(2), interpreter], &wanted)
}

fn measured_as<const N: usize>(executors: [ExecutorOptions; N], wanted: &WantedRates) -> String {
    let machines: Vec<Value> = executors.map(|executor| machine(&executor, wanted)).into();
    json!({ "version": 7, "machines": machines }).to_string()
}

fn cpu(threads: usize) -> ExecutorOptions {
    ExecutorOptions { threads: Some(threads), ..ExecutorOptions::default() }
}

/// The content of `.cache/rooflight/predictions.json` after two runs of a program with so many threads: prompts were a
/// quarter slower than expected once, steps as expected.
pub(crate) fn predicted(program: &Program, threads: usize) -> String {
    let weights: usize = program.weights.iter().map(|w| w.rows * w.cols).sum();
    let bytes: u64 = program.weights.iter().map(|w| w.bytes()).sum();
    let model = json!({ "machine": name(&cpu(threads)), "build": build(), "weights": weights, "bytes": bytes,
                        "prompts": [1.0, 1.25], "steps": [1.0] });
    json!({ "version": 1, "models": [model] }).to_string()
}

fn build() -> String {
    let debug = if cfg!(debug_assertions) { " debug" } else { "" };
    format!("{}{debug}", env!("CARGO_PKG_VERSION"))
}

fn name(executor: &ExecutorOptions) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!("{cpu}, {}", executor.start().expect("it starts").describe())
}

fn machine(executor: &ExecutorOptions, wanted: &WantedRates) -> Value {
    let threads = executor.n_threads();
    let linear = wanted.types.iter().map(|ty| {
        json!({ "type": ty.name(), "rows": [1, 64, 512], "seconds_per_weight": [1e-10, 1e-9, 8e-9],
                "phase_seconds": 0.0 })
    });
    let attention = wanted.attention.iter().map(|shape| {
        json!({ "n_heads": shape.n_heads, "n_kv_heads": shape.n_kv_heads, "key_dim": shape.key_dim,
                "value_dim": shape.value_dim, "type_k": shape.k.name(), "type_v": shape.v.name(),
                "step_seconds": 1e-6, "position_seconds": 1e-8, "token_seconds": 1e-7, "pair_seconds": 1e-8 })
    });
    let latent = wanted.latent.iter().map(|shape| {
        let MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim } = shape.dims;
        json!({ "n_heads": n_heads, "rank": rank, "nope_dim": nope_dim, "rope_dim": rope_dim,
                "value_dim": value_dim, "type_k": shape.k.name(), "step_seconds": 1e-5,
                "position_seconds": 1e-8, "elided_seconds": 1e-11, "compressed_seconds": 1e-11 })
    });
    let scans = wanted.scans.iter().map(|shape| {
        let ScanDims { n_heads, n_key_heads, key_dim, value_dim, by_turns } = shape.dims;
        json!({ "rule": shape.rule.name(), "n_heads": n_heads, "n_key_heads": n_key_heads,
                "key_dim": key_dim, "value_dim": value_dim, "by_turns": by_turns,
                "by_row": shape.by_row, "step_seconds": 1e-5, "token_seconds": 1e-6 })
    });
    json!({
        "machine": name(executor),
        "build": build(),
        "read": [{ "threads": threads, "working_set_bytes": 1 << 28, "bytes_per_second": 1e9 }],
        "compute": [{ "threads": threads, "f32_macs_per_second": 1e9, "int8_macs_per_second": 1e9 }],
        "barrier_nanoseconds": 1000,
        "rates": { "linear": linear.collect::<Vec<_>>(), "attention": attention.collect::<Vec<_>>(),
                   "latent": latent.collect::<Vec<_>>(), "scans": scans.collect::<Vec<_>>(),
                   "step_seconds": 1e-5, "logit_seconds": 1e-9, "element_seconds": 1e-9 },
    })
}

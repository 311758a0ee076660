//! A machine that was measured before: figures that make no sense, but none has to be measured.

#![allow(dead_code, reason = "every test file uses a part of it")]

use planner::{Executed, WantedRates};
use program::{CacheType, MlaDims, Program};
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
    let machines: Vec<Value> = [1, 2].map(|threads| machine(threads, &wanted)).into();
    json!({ "version": 6, "machines": machines }).to_string()
}

/// The content of `.cache/rooflight/predictions.json` after two runs of a program with so many threads: prompts were a
/// quarter slower than expected once, steps as expected.
pub(crate) fn predicted(program: &Program, threads: usize) -> String {
    let weights: usize = program.weights.iter().map(|w| w.rows * w.cols).sum();
    let bytes: u64 = program.weights.iter().map(|w| w.bytes()).sum();
    let model = json!({ "machine": name(threads), "build": build(), "weights": weights, "bytes": bytes,
                        "prompts": [1.0, 1.25], "steps": [1.0] });
    json!({ "version": 1, "models": [model] }).to_string()
}

fn build() -> String {
    let debug = if cfg!(debug_assertions) { " debug" } else { "" };
    format!("{}{debug}", env!("CARGO_PKG_VERSION"))
}

fn name(threads: usize) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let executor =
        executors::ExecutorOptions { threads: Some(threads), ..Default::default() }.start();
    format!("{cpu}, {}", executor.describe())
}

fn machine(threads: usize, wanted: &WantedRates) -> Value {
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
    json!({
        "machine": name(threads),
        "build": build(),
        "read": [{ "threads": threads, "working_set_bytes": 1 << 28, "bytes_per_second": 1e9 }],
        "compute": [{ "threads": threads, "f32_macs_per_second": 1e9, "int8_macs_per_second": 1e9 }],
        "barrier_nanoseconds": 1000,
        "rates": { "linear": linear.collect::<Vec<_>>(), "attention": attention.collect::<Vec<_>>(),
                   "latent": latent.collect::<Vec<_>>(),
                   "step_seconds": 1e-5, "logit_seconds": 1e-9, "element_seconds": 1e-9 },
    })
}

//! A machine that was measured before: figures that make no sense, but none has to be measured.

use planner::{Executed, WantedRates};
use program::{CacheType, Executor as _};
use serde_json::{Value, json};

/// The content of `.cache/rooflight/machine.json` with ceilings, and all rates that the model in `gguf` needs, for this
/// machine with one thread and with two.
pub(crate) fn measured(gguf: &[u8]) -> String {
    let gguf = gguf::Gguf::from_bytes(gguf.to_vec()).expect("it opens");
    let program = models::load(&gguf).expect("it loads").program;
    let wanted = Executed::of(&program, CacheType::F16, CacheType::F16).wanted();
    let machines: Vec<Value> = [1, 2].map(|threads| machine(threads, &wanted)).into();
    json!({ "version": 6, "machines": machines }).to_string()
}

fn machine(threads: usize, wanted: &WantedRates) -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let executor =
        cpu::Cpu::new(&cpu::Options { threads: Some(threads), ..cpu::Options::default() });
    let debug = if cfg!(debug_assertions) { " debug" } else { "" };
    let linear = wanted.types.iter().map(|ty| {
        json!({ "type": ty.name(), "rows": [1, 64, 512], "seconds_per_weight": [1e-10, 1e-9, 8e-9],
                "phase_seconds": 0.0 })
    });
    let attention = wanted.attention.iter().map(|shape| {
        json!({ "n_heads": shape.n_heads, "n_kv_heads": shape.n_kv_heads, "key_dim": shape.key_dim,
                "value_dim": shape.value_dim, "type_k": shape.k.name(), "type_v": shape.v.name(),
                "step_seconds": 1e-6, "position_seconds": 1e-8, "token_seconds": 1e-7, "pair_seconds": 1e-8 })
    });
    json!({
        "machine": format!("{cpu}, {}", executor.describe()),
        "build": format!("{}{debug}", env!("CARGO_PKG_VERSION")),
        "read": [{ "threads": threads, "working_set_bytes": 1 << 28, "bytes_per_second": 1e9 }],
        "compute": [{ "threads": threads, "f32_macs_per_second": 1e9, "int8_macs_per_second": 1e9 }],
        "barrier_nanoseconds": 1000,
        "rates": { "linear": linear.collect::<Vec<_>>(), "attention": attention.collect::<Vec<_>>(),
                   "step_seconds": 1e-5, "logit_seconds": 1e-9, "element_seconds": 1e-9 },
    })
}

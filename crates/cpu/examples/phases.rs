//! Where a step's time goes: `cargo run --release -p rooflight-cpu --example phases MODEL.gguf [THREADS] [DEPTH]`.

use std::collections::BTreeMap;
use std::time::Duration;

use cpu::{Cpu, Options};
use program::{CacheOptions, CacheType, Executor, Outputs, Sequence, Step, StepOut};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a model");
    let threads = args.next().and_then(|t| t.parse().ok());
    let depth: usize = args.next().and_then(|t| t.parse().ok()).unwrap_or(0);
    let gguf = gguf::Gguf::open(path.as_ref()).expect("a GGUF file");
    let loaded = models::load(&gguf).expect("a model");
    let cpu = Cpu::new(&Options { threads, ..Options::default() });
    let model =
        cpu.load(loaded.program, &models::GgufWeights(&gguf), &mut |_| ()).expect("it loads");
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, depth + 512);
    let session = model.open(&cache).expect("it opens");
    let step = |tokens: &[u32]| {
        let sequences =
            [Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] }];
        model.step(&Step { sequences: &sequences }).and_then(StepOut::all).expect("it fits");
    };
    for _ in 0..depth.div_ceil(512) {
        step(&vec![1; 512]);
    }
    let mut phases: BTreeMap<(String, &'static str), (Vec<Duration>, u64)> = BTreeMap::new();
    for i in 0..96 {
        step(&[i % 100]);
        if i < 32 {
            continue;
        }
        for phase in model.phases() {
            let name: String = phase.name.trim_start_matches(|c: char| !c.is_alphabetic()).into();
            let name =
                name.split('.').filter(|p| p.parse::<u32>().is_err()).collect::<Vec<_>>().join(".");
            let entry = phases.entry((name, phase.kind)).or_default();
            entry.0.push(phase.elapsed);
            entry.1 = phase.weight_bytes;
        }
    }
    let mut total = 0.0;
    let rows: Vec<_> = phases
        .into_iter()
        .map(|(name, (mut times, bytes))| {
            times.sort();
            let median = times[times.len() / 2].as_secs_f64();
            total += median * times.len() as f64 / 64.0;
            (name, median, times.len() as f64 / 64.0, bytes as f64)
        })
        .collect();
    for ((name, kind), median, per_step, bytes) in rows {
        let share = 100.0 * median * per_step / total;
        let (each, rate) = (median * 1e6, bytes / median / 1e9);
        eprintln!("{name:28} {kind:10} {share:5.1} %  {each:8.1} us each  {rate:6.1} GB/s");
    }
    eprintln!("step {:.3} ms by medians, {:.1} per second", total * 1e3, 1.0 / total);
}

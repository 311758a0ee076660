//! Time of a layer of experts by how rows are shared among them:
//! `cargo run --release -p rooflight-cpu --example experts [THREADS]`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cpu::{Cpu, Options};
use program::{
    Act, CacheOptions, CacheType, Executor, ExpertWeights, Gating, Model, OutputKind, Outputs,
    Program, Recorder, Router, Sequence, Step, StepOut, WeightSource, WeightSpec, read_memory,
};
use quant::GgmlType;

/// Rows with scores of their own: a step has up to this many.
const ROWS: usize = 512;

/// `[hidden, width, n_experts, n_used]` of published models, and one expert per row.
const SHAPES: [(&str, [usize; 4]); 3] = [
    ("30B-A3B", [2048, 768, 128, 8]),
    ("V2-Lite, 16 experts", [2048, 1408, 16, 6]),
    ("one of 16", [2048, 768, 16, 1]),
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }
}

/// Random weights.
struct Weights(HashMap<String, Vec<u8>>);

impl Weights {
    /// With scores that give expert 0 this share of the rows.
    fn new(program: &Program, hot: Option<f32>) -> Weights {
        let weights = program.weights.iter();
        Weights(weights.map(|spec| (spec.name.clone(), random_bytes(spec, hot))).collect())
    }
}

impl WeightSource for Weights {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> program::Result<()> {
        read_memory(&self.0[&spec.name], spec, first, out)
    }
}

fn random_bytes(spec: &WeightSpec, hot: Option<f32>) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let len = spec.bytes() as usize;
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    if spec.ty == GgmlType::F32 {
        for i in 0..spec.rows * spec.cols {
            let x = random.unit();
            let x = match hot {
                Some(hot) if spec.name == "scores" && i % spec.cols == 0 => {
                    if x < hot {
                        9.0
                    } else {
                        -9.0
                    }
                }
                _ => x,
            };
            bytes.extend(x.to_le_bytes());
        }
        return bytes;
    }
    while bytes.len() < len {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.truncate(len);
    for block in bytes.chunks_exact_mut(spec.ty.block_bytes()) {
        block[..2].copy_from_slice(&0x2400u16.to_le_bytes());
    }
    bytes
}

fn program([hidden, width, n_experts, n_used]: [usize; 4]) -> Program {
    let r = Recorder::new();
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
    };
    let x = r.embed(weight("x", GgmlType::F32, ROWS, hidden)).expect("a table");
    let scores = r.embed(weight("scores", GgmlType::F32, ROWS, n_experts)).expect("a table");
    let (gating, normalize, scale) = (Gating::Softmax, true, 1.0);
    let router = Router {
        n_used,
        gating,
        bias: None,
        groups: None,
        normalize,
        scale,
        factors: None,
        per_chunk: 1,
    };
    let routes = r.route("routes", scores, router).expect("experts enough");
    let weights = ExpertWeights {
        gate: weight("gate", GgmlType::Q4_0, n_experts * width, hidden),
        up: weight("up", GgmlType::Q4_0, n_experts * width, hidden),
        down: weight("down", GgmlType::Q4_0, n_experts * hidden, width),
        biases: None,
        n_experts,
        weighs_inputs: false,
    };
    let y = r.experts("experts", weights, Act::Silu, x, routes).expect("shapes fit");
    let y = r.add("sum", x, y).expect("shapes fit");
    let rows = r.select_rows("rows", y).expect("tokens");
    r.finish(&[(OutputKind::Logits, rows)])
}

/// Median time of the phase of experts in steps of `n` rows.
fn time(model: &dyn Model, n: usize) -> Duration {
    let (k, v) = (CacheType::F16, CacheType::F16);
    let mut times = Vec::new();
    let mut random = Random(7);
    for _ in 0..if n > 8 { 15 } else { 101 } {
        let session = model.open(&CacheOptions::new(k, v, ROWS)).expect("it opens");
        // steps of few rows use other experts each time
        let first = if n == ROWS { 0 } else { random.next() as usize % (ROWS - n) };
        let tokens: Vec<u32> = (first..first + n).map(|token| token as u32).collect();
        let outputs = Outputs::ALL;
        let sequences = [Sequence { session, tokens: &tokens, outputs, prompt: None, rows: &[] }];
        model.step(&Step { sequences: &sequences }).and_then(StepOut::all).expect("it fits");
        model.close(session);
        let phases = model.phases();
        times.extend(phases.iter().filter(|p| p.kind == "experts").map(|p| p.elapsed));
    }
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|t| t.parse().ok()).unwrap_or(2);
    let cpu = Cpu::new(&Options { threads: Some(threads), ..Options::default() });
    eprintln!("{}; `hot`: one expert takes part in 80 % of the rows", cpu.describe());
    for (name, shape) in SHAPES {
        let [hidden, width, n_experts, n_used] = shape;
        eprintln!("{name}: {n_used} of {n_experts} experts, {hidden} x {width}, Q4_0");
        let program = Arc::new(program(shape));
        let load = |hot| {
            cpu.load(Arc::clone(&program), &Weights::new(&program, hot), &mut |_| ())
                .expect("it loads")
        };
        let (even, hot) = (load(None), load(Some(0.8)));
        for n in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            let [even, hot] = [&even, &hot].map(|model| time(&**model, n).as_secs_f64());
            let per_row = 3.0 * 2.0 * (hidden * width * n_used) as f64;
            let rate = per_row * n as f64 / even / 1e9;
            let bytes = even.recip() * per_row / 2.0 * 18.0 / 32.0 / 1e9;
            eprint!(
                "{n:6} rows: {:9.1} us even, {:9.1} us hot ({:.2})",
                even * 1e6,
                hot * 1e6,
                hot / even
            );
            match n {
                1 => eprintln!(", {bytes:6.1} GB/s"),
                _ => eprintln!(", {rate:6.0} GFLOP/s"),
            }
        }
    }
}

//! What a model's steps are on a device: how often something is submitted and read back, dispatches, time to record them,
//! and how much memory is taken beside what was predicted. `cargo xtask gpu-report` runs it.
//!
//! ```text
//! cargo run --release -p rooflight-wgpu --example report -- MODEL.gguf [ADAPTER]
//! ```

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gguf::Gguf;
use gpu::{GpuExecutor, GpuOptions};
use models::GgufWeights;
use program::{
    CacheOptions, CacheType, Executor, MemoryOptions, Model, OutputRows, Outputs, Sequence,
    SessionId, Step, StepOut, Wanted,
};

/// So long that the past is attended in parts, which takes a dispatch a layer more.
const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 512);
const PROMPT: usize = 32;
const STEPS: u64 = 16;
/// Of the dispatches of a step, and of the time to record them.
const MOST_DISPATCHES: u64 = 220;
const MOST_ENCODING: Duration = Duration::from_micros(600);
/// Of the memory that is taken.
const MOST_AMISS: f64 = 0.03;

fn main() -> ExitCode {
    match report() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn step(
    model: &dyn Model,
    session: SessionId,
    tokens: &[u32],
    outputs: Outputs,
) -> Result<Option<u32>, Box<dyn Error>> {
    let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    let candidates = out.into_candidates();
    Ok(candidates.candidates.first().map(|best| best.token))
}

/// Whether all is as it should be.
fn report() -> Result<bool, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which model? report MODEL.gguf [ADAPTER]")?;
    let device = GpuExecutor::open(&GpuOptions { adapter: args.next(), ..GpuOptions::default() })?;
    let gguf = Gguf::open(path.as_ref())?;
    let program = models::load(&gguf)?.program;
    let before = device.allocated();
    let options = MemoryOptions { cache: CACHE, sessions: 1, chunk: PROMPT };
    let needs = device.memory(&program, &options)?;
    let n_layers = program.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |n| n + 1);
    let model = device.load(program, &GgufWeights(&gguf), &mut |_| ())?;
    let session = model.open(&CACHE)?;
    let greedy = Outputs { rows: OutputRows::Last, what: Wanted::Candidates { k: 1 } };
    let prompt: Vec<u32> = (0..PROMPT as u32).collect();
    let mut token = step(&*model, session, &prompt, greedy)?;
    // the cache is filled, so that all that was predicted is taken
    let mut held = PROMPT;
    while held + PROMPT < CACHE.capacity - STEPS as usize {
        step(&*model, session, &prompt, Outputs { rows: OutputRows::None, ..greedy })?;
        held += PROMPT;
    }
    // pipelines of steps are made with the first
    token = step(&*model, session, &[token.unwrap_or(0)], greedy)?;
    let (start, begun) = (device.counts(), Instant::now());
    for _ in 0..STEPS {
        token = step(&*model, session, &[token.unwrap_or(0)], greedy)?;
    }
    let (end, took) = (device.counts(), begun.elapsed());
    let each = |of: fn(&gpu::DeviceCounts) -> u64| (of(&end) - of(&start)) as f64 / STEPS as f64;
    let submissions = each(|counts| counts.submissions);
    let readbacks = each(|counts| counts.readbacks);
    let bytes = each(|counts| counts.bytes_read);
    let dispatches = each(|counts| counts.dispatches);
    let encoding = (end.encoding - start.encoding) / STEPS as u32;
    println!("device       {}", device.describe());
    println!("step         {:.2} ms", 1e3 * took.as_secs_f64() / STEPS as f64);
    println!("submissions  {submissions} a step; read-backs {readbacks}, of {bytes} bytes");
    println!(
        "dispatches   {dispatches} a step, at most {MOST_DISPATCHES}; {:.1} for each of {n_layers} layers",
        dispatches / n_layers.max(1) as f64
    );
    println!(
        "recorded in  {:.3} ms a step, at most {:.1}",
        1e3 * encoding.as_secs_f64(),
        1e3 * MOST_ENCODING.as_secs_f64()
    );
    let predicted = needs.weights + needs.cache + needs.work;
    let memory = match before.zip(device.allocated()) {
        Some((before, after)) => {
            let taken = after.saturating_sub(before);
            let amiss = predicted as f64 / taken as f64 - 1.0;
            println!(
                "memory       {taken} bytes taken, {predicted} predicted: {:+.2} %, at most {:.0} %",
                100.0 * amiss,
                100.0 * MOST_AMISS
            );
            amiss.abs() <= MOST_AMISS
        }
        None => {
            println!(
                "memory       {predicted} bytes predicted; the driver does not tell what is taken"
            );
            true
        }
    };
    Ok(memory
        && submissions == 1.0
        && readbacks == 1.0
        && dispatches <= MOST_DISPATCHES as f64
        && encoding <= MOST_ENCODING)
}

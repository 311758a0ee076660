//! What each dispatch of a step must move, beside what it moves: tables of published shapes, from their numbers alone.
//! `cargo xtask gpu-report` prints them; no device is needed.
//!
//! ```text
//! cargo run --release -p rooflight-wgpu --example bytes [-- SHAPE TYPE [DEPTH]]
//! ```

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::error::Error;
use std::process::ExitCode;

use gpu::DispatchBytes;
use quant::GgmlType;

/// The shapes that are told of by default.
const SHAPES: [(&str, GgmlType); 3] = [
    ("qwen2.5-0.5b", GgmlType::Q4_0),
    ("qwen2.5-7b", GgmlType::Q8_0),
    ("qwen2.5-7b", GgmlType::Q4K),
];
/// Tokens before the step.
const DEPTH: usize = 1024;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args[..] {
        [] => SHAPES.into_iter().try_for_each(|(shape, ty)| table(shape, ty, DEPTH)),
        [shape, ty, depth @ ..] if depth.len() < 2 => asked(shape, ty, depth.first()),
        _ => Err("which shape, of which type? bytes [SHAPE TYPE [DEPTH]]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn asked(shape: &str, ty: &str, depth: Option<&String>) -> Result<(), Box<dyn Error>> {
    let ty = GgmlType::from_name(ty).filter(|ty| quant::format(*ty).is_some());
    let ty = ty.ok_or("no such type of weights")?;
    table(shape, ty, depth.map_or(Ok(DEPTH), |depth| depth.parse())?)
}

/// A name without its layer: `blk.3.attn_q.weight` is `attn_q`.
fn short(name: &str) -> &str {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        Some((_, name)) => name,
        None => name,
    }
}

/// Dispatches of one kernel with one name, of all layers.
struct Line {
    kernel: &'static str,
    name: String,
    n: usize,
    bytes: [u64; 3],
}

fn table(shape: &str, ty: GgmlType, depth: usize) -> Result<(), Box<dyn Error>> {
    let config = models::find_published(shape).ok_or("no such published shape")?;
    let choose = |name: &str, dims: &[u64]| {
        // biases and norms are vectors; heads that a published model shares with its table have no tensor
        let shared = name == "output.weight" && config.tied_embeddings;
        (!shared).then_some(if dims.len() == 1 { GgmlType::F32 } else { ty })
    };
    let program = models::from_config(&config, &choose)?.program;
    let dispatches = gpu::step_bytes(&program, depth)?;
    let mut lines: Vec<Line> = Vec::new();
    for DispatchBytes { name, kernel, must, moved, again } in &dispatches {
        let (name, bytes) = (short(name), [*must, *moved, *again]);
        match lines.iter_mut().find(|line| (line.kernel, &*line.name) == (*kernel, name)) {
            Some(line) => {
                line.n += 1;
                (0..3).for_each(|i| line.bytes[i] += bytes[i]);
            }
            None => lines.push(Line { kernel, name: name.to_owned(), n: 1, bytes }),
        }
    }
    println!("{shape}, {ty}, a step after {depth} tokens:\n");
    println!("| kernel | of | a step has | must move, kB | moves, kB | more | reads again, kB |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for Line { kernel, name, n, bytes } in &lines {
        // of one dispatch
        print_line(&format!("| `{kernel}` | {name} | {n} "), bytes.map(|b| b / *n as u64));
    }
    let sum = |i: usize| lines.iter().map(|line| line.bytes[i]).sum();
    print_line(&format!("| all | | {} ", dispatches.len()), [0, 1, 2].map(sum));
    println!();
    Ok(())
}

fn print_line(head: &str, [must, moved, again]: [u64; 3]) {
    let kb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e3);
    let more = 100.0 * (moved as f64 / must.max(1) as f64 - 1.0);
    println!("{head}| {} | {} | {more:+.1} % | {} |", kb(must), kb(moved), kb(again));
}

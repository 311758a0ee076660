//! What a server adds to the engine: the same texts by `batch`, one after another, and by a client of the server.
//! `cargo xtask load --overhead` runs it, on a machine that does nothing else.

use std::io::BufRead;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{percentile, variable};
use crate::common::Place;
use crate::serving::{Serving, threads_of};

/// Tokens of each text.
const TOKENS: usize = 200;

fn requests(n: usize) -> Vec<Value> {
    // each begins with other words, so that nothing is found again
    let body = |i: usize| {
        json!({
            "prompt": format!("{i} is the number of a tale that begins with {} of the sea:", i * 7919),
            "max_tokens": TOKENS, "ignore_eos": true, "temperature": 0.8, "seed": i,
        })
    };
    (0..n).map(body).collect()
}

/// Milliseconds until the first token, and from each to the next, in the middle; tokens per second of the engine's thread.
#[derive(Debug)]
struct Measured {
    first: f64,
    between: f64,
    /// How much longer both are for a client than the engine says that it took.
    added: (f64, f64),
    rate: f64,
}

/// What the engine says of a reply: until its first token, and from each to the next.
fn told(timings: &Value) -> (f64, f64) {
    let of = |name: &str| timings[name].as_f64().unwrap_or_else(|| panic!("{timings}"));
    let between = 1e3 / of("predicted_per_second");
    // from the end of the prompt to the last token, less the steps behind the first
    let first = of("prompt_ms") + of("predicted_ms") - between * (of("predicted_n") - 1.0);
    (first, between)
}

pub(crate) fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    percentile(&times, 0.5)
}

/// Seconds of the CPU that a thread had.
pub(crate) fn cpu(process: u32, thread: u64) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"));
    let nanos = text.ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanos.unwrap_or(0.0) * 1e-9
}

/// By `batch`, whose lines say how long they took.
fn by_batch(place: &Place, n: usize) -> Measured {
    let lines: Vec<String> = requests(n).iter().map(Value::to_string).collect();
    place.write("requests.jsonl", lines.join("\n"));
    let model =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../demo-model/assets/rooflight-demo-5m-q8_0.gguf");
    let built = std::env::var("ROOFLIGHT_SERVED_BINARY");
    let mut command = Command::new(built.as_deref().unwrap_or(env!("CARGO_BIN_EXE_rooflight")));
    command.args([
        "batch",
        "-m",
        model,
        "-np",
        "1",
        "-t",
        "1",
        "requests.jsonl",
        "-o",
        "results.jsonl",
    ]);
    command.current_dir(place.path(".")).env_clear().env("HOME", place.path("."));
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let done = || {
        let file = std::fs::File::open(place.path("results.jsonl"));
        file.map_or(0, |file| std::io::BufReader::new(file).lines().count())
    };
    // the thread of the command computes; what it did before the first results is not counted
    let mut marks = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let lines = done();
        let wanted = if marks.is_empty() { n / 10 } else { n * 9 / 10 };
        if marks.len() < 2 && lines >= wanted {
            marks.push((cpu(id, command_thread(id)), lines));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let [(start, before), (end, after)] = marks[..] else { panic!("it ended too soon: {marks:?}") };
    let results = String::from_utf8(place.read("results.jsonl")).unwrap();
    let timings: Vec<Value> = results
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["timings"].take())
        .collect();
    Measured {
        first: middle(timings.iter().map(|t| told(t).0).collect()),
        between: middle(timings.iter().map(|t| told(t).1).collect()),
        added: (0.0, 0.0),
        rate: ((after - before) * TOKENS) as f64 / (end - start),
    }
}

/// The thread that runs the command of a process: the first one has the same name, and waits for it.
fn command_thread(process: u32) -> u64 {
    let is_it = |(name, id): &(String, u64)| name == "rooflight" && *id != u64::from(process);
    threads_of(process).into_iter().filter(is_it).map(|(_, id)| id).min().unwrap()
}

/// By a client of the server.
fn by_server(place: &Place, n: usize) -> Measured {
    let serving = Serving::start(place, &["-np", "1", "-t", "1"]);
    let engine = serving.engine();
    let mut connection = serving.connect();
    let (mut first, mut between) = (Vec::new(), Vec::new());
    let mut before = 0.0;
    let mut tokens = 0;
    for (i, mut body) in requests(n).into_iter().enumerate() {
        if i == n / 10 {
            (before, tokens) = (cpu(serving.child.id(), engine), 0);
        }
        body["stream"] = json!(true);
        let text = body.to_string();
        let start = Instant::now();
        connection.send("POST", "/v1/completions", "", &text);
        assert_eq!(connection.head().unwrap().0, 200);
        let (mut times, mut pieces) = (Vec::new(), Vec::new());
        loop {
            let piece = connection.piece().unwrap();
            if piece.is_empty() {
                break;
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
            pieces.push(piece);
        }
        tokens += TOKENS;
        // what follows the last token: how it ended, and that it did
        let [.., ended, _] = &pieces[..] else { panic!("a reply has an end") };
        let ended = crate::common::text(ended);
        let ended = ended.trim().strip_prefix("data: ").unwrap();
        let ended: Value = serde_json::from_str(ended).unwrap();
        let by_engine = told(&ended["timings"]);
        let each = (times[times.len() - 3] - times[0]) / (TOKENS - 1) as f64;
        first.push((times[0], times[0] - by_engine.0));
        between.push((each, each - by_engine.1));
    }
    let spent = cpu(serving.child.id(), engine) - before;
    serving.ended();
    let of =
        |all: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| middle(all.iter().map(which).collect());
    Measured {
        first: of(&first, |t| t.0),
        between: of(&between, |t| t.0),
        added: (of(&first, |t| t.1), of(&between, |t| t.1)),
        rate: tokens as f64 / spent,
    }
}

#[test]
#[ignore = "a measurement: cargo xtask load --overhead"]
fn what_a_server_adds() {
    let place = Place::new();
    let n = variable("ROOFLIGHT_LOAD_TEXTS", 400);
    let mut ratios = Vec::new();
    for round in 0..variable("ROOFLIGHT_LOAD_ROUNDS", 3) {
        let _ = std::fs::remove_file(place.path("results.jsonl"));
        let library = by_batch(&place, n);
        let server = by_server(&place, n);
        let (first, between) = server.added;
        let rate = server.rate / library.rate;
        eprintln!(
            "overhead {round}: first token {:.3} ms, {first:+.3} to what the engine took (goal 2; by batch, whose sessions are new, \
             {:.3}); between tokens {:.4} ms, {between:+.4} (goal 0.1; by batch {:.4}); {:.0} and {:.0} tokens per CPU second of the \
             engine's thread by batch and server: {rate:.3} (goal 0.97)",
            server.first, library.first, server.between, library.between, library.rate, server.rate,
        );
        ratios.push((first, between, rate));
    }
    let best = |of: fn(&(f64, f64, f64)) -> f64| middle(ratios.iter().map(of).collect());
    let (first, between, rate) = (best(|r| r.0), best(|r| r.1), best(|r| r.2));
    eprintln!(
        "overhead: first token {first:+.3} ms, each {between:+.4} ms, {rate:.3} of the tokens per CPU second"
    );
    assert!(first <= 2.0 && between <= 0.1 && rate >= 0.97);
}

//! What a client that reads a byte a second costs another one: the same texts beside it and without it, in turn.
//! `cargo xtask load --slow` runs it, on a machine that does nothing else.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::json;

use super::overhead::{cpu, middle};
use super::variable;
use crate::common::Place;
use crate::serving::{Connection, Serving};

/// A long reply of large pieces, of which little is read: who makes it has it rest before it ends.
fn slow_reader(serving: &Serving, engine: u64) -> Connection {
    let mut connection = serving.connect();
    // it takes little, so that the system holds little for it
    set_socket_recv_buffer_size(connection.0.get_ref(), 4096).unwrap();
    let body = json!({
        "messages": [{ "role": "user", "content": "go on" }], "max_tokens": 3000, "ignore_eos": true, "stream": true,
        "logprobs": true, "top_logprobs": 20,
    });
    connection.send("POST", "/v1/chat/completions", "", &body.to_string());
    let start = Instant::now();
    loop {
        let before = cpu(serving.child.id(), engine);
        std::thread::sleep(Duration::from_millis(300));
        if start.elapsed() > Duration::from_secs(1)
            && cpu(serving.child.id(), engine) - before < 0.003
        {
            return connection;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it never rests");
    }
}

/// Tokens per second of a client that reads at once, over so long; meanwhile the other one reads a byte a second.
fn rate(serving: &Serving, mut slow: Option<Connection>, seconds: f64) -> f64 {
    let (start, mut read, mut tokens) = (Instant::now(), 0, 0);
    while start.elapsed().as_secs_f64() < seconds {
        let body = json!({
            "prompt": format!("Tale number {tokens}: there was once a"), "max_tokens": 200, "ignore_eos": true, "temperature": 0,
        });
        let answer = serving.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        tokens += 200;
        if let Some(slow) = slow.as_mut().filter(|_| start.elapsed().as_secs() >= read) {
            read += 1;
            slow.0.read_exact(&mut [0]).expect("it is still served");
        }
    }
    f64::from(tokens) / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement: cargo xtask load --slow"]
fn what_a_slow_reader_costs_others() {
    let place = Place::new();
    let serving = Serving::start(&place, &["-np", "2", "-t", "1", "-c", "4096"]);
    let engine = serving.engine();
    rate(&serving, None, 2.0);
    let mut ratios = Vec::new();
    for round in 0..variable("ROOFLIGHT_LOAD_ROUNDS", 7) {
        let beside = || {
            let told = rate(&serving, Some(slow_reader(&serving, engine)), 6.0);
            // it has left
            std::thread::sleep(Duration::from_millis(500));
            told
        };
        let alone = || rate(&serving, None, 6.0);
        let (beside, alone) = match round % 2 {
            0 => (beside(), alone()),
            _ => {
                let alone = alone();
                (beside(), alone)
            }
        };
        eprintln!(
            "slow {round}: {beside:.0} tokens/s beside it, {alone:.0} alone: {:.3}",
            beside / alone
        );
        ratios.push(beside / alone);
    }
    let ratio = middle(ratios);
    eprintln!("slow: {ratio:.3} of the rate without it (goal 0.98)");
    assert!(ratio >= 0.98);
    serving.ended();
}

//! Conversations of made-up tokens with a server, and what of its answers must be the same whatever was in which cache.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::BufReader;
use std::net::TcpStream;

use serde_json::{Value, json};
use testing::Dice;

use crate::serving::{Connection, Serving};

/// Tokens of a conversation, the same for each seed.
pub(crate) fn tokens(seed: u64, n: usize) -> Vec<u64> {
    let mut dice = Dice::new(seed);
    (0..n).map(|_| 40 + dice.bits() % 200).collect()
}

/// Status and object that a request is answered with; `None` of a server that is gone by then.
pub(crate) fn try_ask(
    serving: &Serving,
    path: &str,
    body: &Value,
    headers: &str,
) -> Option<(u16, Value)> {
    let stream = TcpStream::connect(format!("127.0.0.1:{}", serving.port)).ok()?;
    let mut connection = Connection(BufReader::new(stream));
    connection.send("POST", path, headers, &body.to_string());
    let answer = connection.answer().ok()?;
    Some((answer.status, answer.json()))
}

/// The same of one that is there.
pub(crate) fn post(serving: &Serving, path: &str, body: &Value) -> (u16, Value) {
    try_ask(serving, path, body, "").unwrap()
}

/// What a server that is asked to end has said of conversations.
pub(crate) fn told(serving: Serving) -> String {
    let lines = serving.ended();
    assert!(!lines.contains("panic"), "{lines}");
    let lines = lines
        .lines()
        .filter(|line| line.contains("conversation is") || line.contains("conversation on"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What goes on after some tokens, most likely first, with how likely each token was.
pub(crate) fn ask(serving: &Serving, prompt: &[u64]) -> Value {
    let (status, answer) = post(serving, "/completion", &request(prompt));
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The body that it asks with.
pub(crate) fn request(prompt: &[u64]) -> Value {
    json!({
        "prompt": prompt, "n_predict": 6, "temperature": 0, "ignore_eos": true,
        "return_tokens": true, "n_probs": 3,
    })
}

/// All that must be the same whatever was in which cache.
pub(crate) fn said(answer: &Value) -> Value {
    json!([answer["tokens"], answer["content"], answer["completion_probabilities"]])
}

/// Tokens that it found in a cache.
pub(crate) fn cached(answer: &Value) -> usize {
    answer["timings"]["cache_n"].as_u64().unwrap() as usize
}

/// The next prompt: what was said, and more.
pub(crate) fn next(prompt: &[u64], answer: &Value, more: u64) -> Vec<u64> {
    let reply = answer["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap());
    prompt.iter().copied().chain(reply).chain(tokens(more, 20)).collect()
}

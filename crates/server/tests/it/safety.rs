//! Rules of docs/safety.md, by their numbers there, that no other file proves.

use std::io::Read;
use std::time::{Duration, Instant};

use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Served, head, post};

const CHAT: &str = "/v1/chat/completions";

fn body(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn endless() -> Value {
    body(&json!({ "max_tokens": 800, "ignore_eos": true, "stream": true }))
}

/// A value of `/metrics`.
fn counted(served: &Served, name: &str) -> String {
    let text = served.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(&format!("rooflight:{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// Every test that the table names is there.
#[test]
fn every_rule_names_tests_that_are_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let table = std::fs::read_to_string(format!("{root}docs/safety.md")).unwrap();
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        for (file, test) in words.iter().zip(words.iter().skip(1)) {
            if !file.ends_with(".rs") {
                continue;
            }
            let source = std::fs::read_to_string(format!("{root}{file}"));
            let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(source.contains(&format!("fn {test}(")), "{file} has no {test}");
            named += 1;
        }
    }
    assert!(named > 35, "{named} tests are named");
}

#[test]
fn h2_a_page_costs_nothing() {
    let served = Served::new();
    let said = body(&json!({})).to_string();
    for page in [
        "Origin: https://evil.com\r\nContent-Type: text/plain\r\n",
        "Origin: null\r\nContent-Type: application/json\r\n",
        "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
    ] {
        let headers = format!("{page}Content-Length: {}\r\n", said.len());
        let answer = served.send((head("POST", CHAT, &headers) + &said).as_bytes());
        assert_eq!(answer.status, 403, "{page}");
        // nor is a body waited for
        let waits = format!("{page}Content-Length: 1000\r\n");
        assert_eq!(served.send(head("POST", CHAT, &waits).as_bytes()).status, 403, "{page}");
    }
    assert_eq!(counted(&served, "prompt_tokens_total"), "0");
    assert_eq!(served.post(CHAT, &body(&json!({}))).status, 200);
    assert_ne!(counted(&served, "prompt_tokens_total"), "0");
}

#[test]
fn h3_no_preflight_is_answered() {
    let served = Served::new();
    for path in [CHAT, "/v1/messages", "/api/chat", "/completion", "/health", "/nothing"] {
        for more in ["", "Access-Control-Request-Private-Network: true\r\n"] {
            let headers = format!(
                "Origin: https://evil.com\r\nAccess-Control-Request-Method: POST\r\n\
                 Access-Control-Request-Headers: content-type\r\n{more}"
            );
            let answer = served.send(head("OPTIONS", path, &headers).as_bytes());
            assert_eq!(answer.status, 403, "{path}");
            for leave in ["origin", "methods", "headers", "credentials", "private-network"] {
                assert_eq!(answer.header(&format!("access-control-allow-{leave}")), None, "{path}");
            }
        }
        let plain = served.send(head("OPTIONS", path, "").as_bytes());
        assert!(matches!(plain.status, 404 | 405), "{path}: {plain:?}");
    }
}

#[test]
fn c2_who_leaves_the_queue_touches_nobody() {
    let served = Served::with(1, 4, Access::new(&[], Some(Vec::new())));
    let text = |stream: &str| -> Vec<Value> {
        let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| event.pointer("/choices/0/delta/content").cloned()).collect()
    };
    // a reply that has begun, and all of it
    let begun = || {
        let mut connection = served.open(&post(CHAT, &endless()));
        let mut first = vec![0; 200];
        connection.read_exact(&mut first).unwrap();
        (connection, first)
    };
    let read = |(mut connection, mut all): (std::net::TcpStream, Vec<u8>)| {
        connection.read_to_end(&mut all).unwrap();
        text(&String::from_utf8(all).unwrap())
    };
    let alone = read(begun());
    assert!(alone.len() > 10, "{alone:?}");
    let mut rounds = 0;
    std::thread::scope(|scope| {
        // it has its place before anybody waits for one
        let connection = begun();
        let running = scope.spawn(|| read(connection));
        while !running.is_finished() {
            let mut waiting = body(&json!({}));
            waiting["messages"][0]["content"] = json!(format!("number {rounds}"));
            drop(served.open(&post(CHAT, &waiting)));
            rounds += 1;
        }
        assert_eq!(running.join().unwrap(), alone);
    });
    assert!(rounds > 10, "{rounds} left");
    let start = Instant::now();
    while served.post(CHAT, &body(&json!({}))).status != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "their places are never free");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `ROOFLIGHT_CYCLES=10000` makes more of it.
#[test]
fn c3_coming_and_leaving_leaves_nothing() {
    let cycles = std::env::var("ROOFLIGHT_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let served = Served::with(2, 4, Access::new(&[], Some(Vec::new())));
    let first = served.post(CHAT, &body(&json!({}))).json();
    for i in 0..cycles {
        let request = post(CHAT, &endless());
        // in the head, in the body, when it was sent, when it is answered
        let cut = [10, request.len() - 5, request.len(), request.len()][i % 4];
        let mut connection = served.open(&request[..cut]);
        if i % 4 == 3 {
            let _ = connection.read(&mut [0; 64]);
        }
    }
    let start = Instant::now();
    loop {
        let again = served.post(CHAT, &body(&json!({})));
        if again.status == 200 {
            assert_eq!(again.json()["choices"], first["choices"]);
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "places were lost");
        std::thread::sleep(Duration::from_millis(10));
    }
    let idle = || {
        served
            .get("/slots")
            .json()
            .as_array()
            .unwrap()
            .iter()
            .all(|slot| slot["is_processing"] == false)
    };
    while !idle() {
        assert!(start.elapsed() < Duration::from_secs(20), "replies go on for nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
    // it is counted when the thread that computes looks again
    while counted(&served, "num_requests_waiting") != "0" {
        assert!(start.elapsed() < Duration::from_secs(20), "somebody waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn q3_health_waits_for_nobody() {
    let served = Served::with(2, 4, Access::new(&[], Some(Vec::new())));
    let running: Vec<_> = (0..2).map(|_| served.open(&post(CHAT, &endless()))).collect();
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(served.get("/health").status, 200);
            start.elapsed()
        })
        .collect();
    times.sort();
    // the computing of both takes seconds; other tests run beside this one
    assert!(times[50] < Duration::from_millis(500), "{:?}", times[50]);
    drop(running);
}

#[test]
fn p2_no_request_names_a_file_or_an_address() {
    let served = Served::new();
    for url in ["file:///etc/passwd", "http://169.254.169.254/", "/etc/passwd", "../x.gguf"] {
        let image = json!([{ "type": "image_url", "image_url": { "url": url } }]);
        let said = json!({ "messages": [{ "role": "user", "content": image }] });
        assert_eq!(served.post(CHAT, &said).status, 400, "{url}");
        assert_eq!(served.post(CHAT, &body(&json!({ "model": url }))).status, 404, "{url}");
        let text = json!({ "model": url, "prompt": "x" });
        assert_eq!(served.post("/api/generate", &text).status, 404, "{url}");
        let images = json!({ "model": "demo", "prompt": "x", "images": [url] });
        assert_eq!(served.post("/api/generate", &images).status, 400, "{url}");
        let schema = json!({ "json_schema": { "$ref": url } });
        assert_eq!(served.post(CHAT, &body(&schema)).status, 400, "{url}");
    }
}

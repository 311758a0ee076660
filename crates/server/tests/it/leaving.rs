//! Clients that leave, and more of them than there is room for.

use std::io::Read;
use std::time::{Duration, Instant};

use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Served, post};

const CHAT: &str = "/v1/chat/completions";

fn endless(stream: bool) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "go on" }],
        "max_tokens": 800,
        "ignore_eos": true,
        "stream": stream,
    })
}

fn short() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 })
}

/// How long it takes until there is room again.
fn until_there_is_room(served: &Served) -> Duration {
    let start = Instant::now();
    loop {
        let answer = served.post(CHAT, &short());
        match answer.status {
            200 => return start.elapsed(),
            503 => assert!(start.elapsed() < Duration::from_secs(20), "the place is never free"),
            _ => panic!("{answer:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_leaves_makes_room() {
    let served = Served::with(1, 0, Access::new(&[], Some(Vec::new())));
    let start = Instant::now();
    assert_eq!(served.post(CHAT, &endless(false)).status, 200);
    let whole = start.elapsed();
    for stream in [true, false] {
        let mut connection = served.open(&post(CHAT, &endless(stream)));
        // it is being made
        if stream {
            connection.read_exact(&mut [0; 200]).unwrap();
        } else {
            let start = Instant::now();
            while served.get("/slots").json()[0]["is_processing"] == json!(false) {
                assert!(start.elapsed() < Duration::from_secs(20), "it never begins");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let full = served.post(CHAT, &short());
        assert_eq!(full.status, 503, "{full:?}");
        assert_eq!(full.header("retry-after"), Some("1"));
        assert_eq!(full.json()["error"]["type"], "unavailable_error");
        assert_eq!(served.get("/health").status, 200);
        drop(connection);
        let took = until_there_is_room(&served);
        assert!(took < whole / 3, "{took:?} of {whole:?}");
        assert_eq!(served.get("/slots").json()[0]["is_processing"], json!(false));
    }
}

/// A full queue says so before it does any work: what is wrong with a request would show only then.
#[test]
fn a_full_queue_is_told_before_any_work() {
    let served = Served::with(1, 0, Access::new(&[], Some(Vec::new())));
    let mut impossible = short();
    impossible["json_schema"] = json!({ "type": "object", "minProperties": 2, "maxProperties": 1 });
    assert_eq!(served.post(CHAT, &impossible).status, 400, "it cannot be compiled");
    let mut running = served.open(&post(CHAT, &endless(true)));
    running.read_exact(&mut [0; 200]).unwrap();
    let full = served.post(CHAT, &impossible);
    assert_eq!(full.status, 503, "{full:?}");
    drop(running);
    until_there_is_room(&served);
    // what was refused holds no place
    assert_eq!(served.post(CHAT, &impossible).status, 400);
    assert_eq!(served.post(CHAT, &short()).status, 200);
}

#[test]
fn who_waits_is_answered_in_turn() {
    let served = Served::with(1, 3, Access::new(&[], Some(Vec::new())));
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| served.post(CHAT, &short()));
        let asked: Vec<_> = (0..4).map(|_| ask()).collect();
        asked.into_iter().map(|thread| thread.join().unwrap().json()).collect()
    });
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert!(answers.iter().all(|answer| text(answer) == text(&answers[0])), "{answers:?}");
    assert!(!text(&answers[0]).is_null());
}

//! What one request breaks, or one key says, is nobody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use engine::{Watch, Watched};
use program::{SessionId, Step, StepOut};
use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Served, head};

const CHAT: &str = "/v1/chat/completions";

/// As what sends a key.
fn ask(served: &Served, key: &str, text: &str) -> Value {
    ask_more(served, key, text, &json!({ "max_tokens": 4 }))
}

/// The same with more fields.
fn ask_more(served: &Served, key: &str, text: &str, fields: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": text }] });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let body = body.to_string();
    let headers = format!(
        "Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    served.send((head("POST", CHAT, &headers) + &body).as_bytes()).json()
}

/// P3: equal beginnings are found again by the key that said them, and by no other.
#[test]
fn keys_share_nothing() {
    let keys = ["one".to_owned(), "two".to_owned()];
    let served = Served::with(4, 4, Access::new(&keys, Some(Vec::new())));
    let text = "a long tale of the sea and what it did";
    let cached = |key| ask(&served, key, text)["timings"]["cache_n"].as_u64().unwrap();
    assert_eq!(cached("one"), 0);
    assert!(cached("one") > 0);
    assert_eq!(cached("two"), 0, "another's prompt was found");
    assert!(cached("two") > 0);
}

/// Passes take the same time for any number of rows, so that drafts always pay.
struct Flat;

impl Watch for Flat {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// P3: replies of one key are drafts for that key only: the same request of another key is not answered faster.
#[test]
fn keys_share_no_drafts() {
    let keys = ["one".to_owned(), "two".to_owned()];
    let access = Access::new(&keys, Some(Vec::new()));
    let served = Served::made(2, 4, access, |model| Arc::new(Watched::new(model, Flat)));
    // of high temperature: what follows is found in no other text than the same reply
    let chosen = json!({ "temperature": 1.5, "seed": 11, "max_tokens": 40, "ignore_eos": true });
    let kept = |key| -> u64 {
        let answer = ask_more(&served, key, "a tale that nobody told before", &chosen);
        answer["timings"]["draft_n_accepted"].as_u64().unwrap_or(0)
    };
    let (first, again, other) = (kept("one"), kept("one"), kept("two"));
    eprintln!("tokens drafted rightly: {first}, again {again}, for another key {other}");
    assert!(again > first + 10, "{first}, {again}: a reply that was given before is drafted");
    assert!(other < first + 5, "{first}, {again}, {other}: drafts of another key's reply");
}

#[test]
fn errors_have_the_shape_of_their_api_wherever_they_come_from() {
    let keys = ["secret".to_owned()];
    let served = Served::with(1, 0, Access::new(&keys, Some(Vec::new())));
    let refused = served.get("/v1/models").json();
    assert_eq!(refused["error"]["type"], "authentication_error");
    let anthropic = served.post("/v1/messages", &json!({}));
    assert_eq!(anthropic.status, 401);
    assert_eq!(anthropic.header("content-type"), Some("application/json"));
    assert_eq!(anthropic.json()["type"], "error");
    let ollama = served.post("/api/chat", &json!({}));
    assert_eq!(ollama.status, 401);
    assert!(ollama.json()["error"].is_string(), "{ollama:?}");
    let open = Served::new();
    assert!(open.get("/api/nothing").json()["error"].is_string());
    let typed = open.send(head("POST", "/v1/messages", "Content-Type: text/plain\r\n").as_bytes());
    assert_eq!((typed.status, &typed.json()["type"]), (415, &json!("error")));
    let long = open.get(&format!("/v1/models?{}", "x".repeat(9000)));
    assert_eq!(long.status, 414, "{long:?}");
}

/// Breaks where no step is made.
struct Breaks(Arc<AtomicBool>);

impl Watch for Breaks {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {}

    fn opening(&self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "something is broken");
    }
}

/// X1: one request's failure is its own.
#[test]
fn a_panic_ends_one_request_and_not_the_server() {
    let now = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&now);
    let served = Served::of_model(|model| Arc::new(Watched::new(model, Breaks(flag))));
    let body =
        |text: &str| json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 3 });
    let fine = served.post(
        CHAT,
        &body("a long tale of the sea and of those who went there, told by one who did"),
    );
    assert_eq!(fine.status, 200);
    for round in 0..3 {
        now.store(true, Ordering::SeqCst);
        let broken = served.post(CHAT, &body(&format!("{round} others")));
        assert_eq!(broken.status, 500, "{broken:?}");
        assert_eq!(broken.header("x-should-retry"), Some("false"));
        let again = served.post(
            CHAT,
            &body("a long tale of the sea and of those who went there, told by one who did"),
        );
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(again.json()["choices"], fine.json()["choices"]);
    }
}

/// Breaks when a point is passed for the so-manieth time from now.
struct BreaksAt(Arc<AtomicUsize>);

impl BreaksAt {
    fn passed(&self) {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert_ne!(left, Ok(1), "something is broken");
    }
}

impl Watch for BreaksAt {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {
        self.passed();
    }

    fn opening(&self) {
        self.passed();
    }

    fn truncated(&self, _: SessionId, _: usize) {
        self.passed();
    }
}

/// A reply that fails after its stream has begun ends with an error in the format of its API, and nothing says that it is complete or
/// was cut off by its length.
#[test]
fn a_reply_that_fails_in_a_stream_is_an_error_in_every_api() {
    let left = Arc::<AtomicUsize>::default();
    let at = Arc::clone(&left);
    let served = Served::of_model(|model| Arc::new(Watched::new(model, BreaksAt(at))));
    let messages = json!([{ "role": "user", "content": "hello there" }]);
    let options = json!({ "num_predict": 40, "temperature": 1.5, "seed": 3 });
    for (path, mut body, text) in [
        (CHAT, json!({ "messages": messages, "max_tokens": 40 }), "/choices/0/delta/content"),
        ("/v1/completions", json!({ "prompt": "hello", "max_tokens": 40 }), "/choices/0/text"),
        ("/v1/responses", json!({ "input": "hello there", "max_output_tokens": 40 }), "/delta"),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 40 }), "/delta/text"),
        (
            "/api/chat",
            json!({ "model": "demo", "messages": messages, "options": options }),
            "/message/content",
        ),
        ("/completion", json!({ "prompt": "hello", "n_predict": 40 }), "/content"),
    ] {
        body["stream"] = json!(true);
        // fails in the middle of the reply: its prompt takes few steps, and a step may yield several tokens
        let mut found = None;
        for steps in [8, 6, 10, 4, 3, 12] {
            left.store(steps, Ordering::SeqCst);
            let answer = served.post(path, &body);
            left.store(0, Ordering::SeqCst);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let lines = answer.body.lines();
            let events: Vec<Value> = lines
                .map(|line| line.strip_prefix("data: ").unwrap_or(line))
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            let said = |event: &Value| {
                event.pointer(text).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
            };
            let has_failed =
                events.iter().any(|event| event.to_string().contains("the reply failed"));
            if has_failed && events.iter().any(said) {
                found = Some((answer, events));
                break;
            }
        }
        let (answer, events) =
            found.unwrap_or_else(|| panic!("{path}: nothing fails amid a reply"));
        for end in [
            "[DONE]",
            "\"length\"",
            "max_tokens",
            "message_stop",
            "response.incomplete",
            "response.completed",
            "\"done\":true",
            "\"stop\":true",
        ] {
            assert!(!answer.body.contains(end), "{path}: {end} in {answer:?}");
        }
        let last = events.last().unwrap();
        match path {
            "/api/chat" => assert!(last["error"].is_string(), "{last}"),
            "/v1/messages" => {
                assert_eq!(
                    (&last["type"], &last["error"]["type"]),
                    (&json!("error"), &json!("api_error"))
                );
                assert!(answer.body.contains("event: error\n"), "{answer:?}");
            }
            "/v1/responses" => {
                assert_eq!(
                    (&last["type"], &last["response"]["status"]),
                    (&json!("response.failed"), &json!("failed"))
                );
                assert!(last["response"]["error"]["message"].is_string(), "{last}");
                let output = last["response"]["output"].as_array().unwrap();
                assert!(output.iter().all(|item| item["status"] == "incomplete"), "{last}");
                let error = &events[events.len() - 2];
                assert_eq!(
                    (&error["type"], &error["code"]),
                    (&json!("error"), &json!("api_error"))
                );
                let numbers = events.iter().map(|event| event["sequence_number"].as_u64().unwrap());
                assert!(numbers.eq(0..events.len() as u64), "{answer:?}");
            }
            _ => assert_eq!(last["error"]["type"], "api_error", "{last}"),
        }
    }
}

/// X1: wherever it breaks, who was there is told, whole or in a stream, and who asks next has what it always has.
/// `ROOFLIGHT_PANICS=2000` has it break more often.
#[test]
fn x1_a_panic_at_any_point_is_told_and_over() {
    let rounds: usize = std::env::var("ROOFLIGHT_PANICS").ok().map_or(48, |n| n.parse().unwrap());
    let left = Arc::<AtomicUsize>::default();
    let at = Arc::clone(&left);
    let served = Served::of_model(|model| Arc::new(Watched::new(model, BreaksAt(at))));
    let body = |text: &str, stream: bool| json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 36, "stream": stream });
    // what is drafted, and taken back
    let text = "again and again and again and again and again";
    let fine = served.post(CHAT, &body(text, false)).json();
    let mut broken = 0;
    for round in 0..rounds {
        left.store(round % 24 + 1, Ordering::SeqCst);
        let stream = round % 2 == 1;
        let answer = served.post(CHAT, &body(&format!("{round} {text}"), stream));
        left.store(0, Ordering::SeqCst);
        match (answer.status, stream) {
            (500, _) => broken += 1,
            (200, true) => {
                let (events, done) = answer.events();
                let failed = events.iter().any(|event| event["error"]["type"] == "api_error");
                assert_ne!(failed, done, "{answer:?}");
                broken += usize::from(failed);
            }
            (status, _) => assert_eq!(status, 200, "{answer:?}"),
        }
        let again = served.post(CHAT, &body(text, false));
        assert_eq!(again.status, 200, "{round}: {again:?}");
        assert_eq!(again.json()["choices"], fine["choices"], "{round}");
    }
    assert!(broken > rounds / 3, "{broken} of {rounds} broke");
}

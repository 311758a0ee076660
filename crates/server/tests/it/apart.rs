//! What one request breaks, or one key says, is nobody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Watch, Watched};
use program::{Step, StepOut};
use rooflight_server::Access;
use serde_json::json;

use crate::client::{Served, head};

const CHAT: &str = "/v1/chat/completions";

/// As what sends a key.
fn ask(served: &Served, key: &str, text: &str) -> serde_json::Value {
    let body = json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 4 });
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

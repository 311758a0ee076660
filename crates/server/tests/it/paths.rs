//! Paths: every form of a client's base URL reaches the same endpoint, and errors for unknown paths suggest one.

use serde_json::json;

use crate::client::{Served, head};

/// Every endpoint of every API also answers with a slash at the end and with extra slashes, and those under `/v1` without `/v1`, too.
#[test]
fn every_endpoint_has_the_paths_that_clients_make_of_it() {
    let served = Served::new();
    let document = served.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let mut versioned = 0;
    for (path, methods) in paths {
        // another endpoint has that path: llama.cpp's own completions
        let short = path.strip_prefix("/v1").filter(|_| path != "/v1/completions");
        versioned += usize::from(short.is_some());
        let same = [Some(format!("{path}/")), Some(format!("/{path}")), short.map(str::to_owned)];
        let short_slash = short.map(|short| format!("/{short}/"));
        for other in same.into_iter().chain([short_slash]).flatten() {
            let (path, other) = (path.replace("{id}", "demo"), other.replace("{id}", "demo"));
            if methods["get"].is_object() {
                let (one, two) = (served.get(&path), served.get(&other));
                assert_eq!((one.status, two.status), (200, 200), "{path} {other}");
                if path.contains("/models") {
                    assert_eq!(one.body, two.body, "{path} {other}");
                }
            }
            if methods["post"].is_object() {
                // an empty request is refused in the format of its API
                let (one, two) = (served.post(&path, &json!({})), served.post(&other, &json!({})));
                assert_eq!((one.status, &one.body), (two.status, &two.body), "{path} {other}");
                assert_ne!(one.status, 404, "{path}: {one:?}");
            }
        }
    }
    assert!(versioned > 8, "{versioned}");
    let messages = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
    for path in ["/chat/completions", "/v1/chat/completions/", "//v1//chat/completions"] {
        let answer = served.post(path, &messages);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.json()["object"], "chat.completion");
    }
    let answer = served.post("/messages/", &messages);
    assert_eq!((answer.status, &answer.json()["type"]), (200, &json!("message")));
    assert!(answer.header("request-id").is_some(), "{answer:?}");
}

#[test]
fn an_unknown_path_is_told_the_nearest() {
    let served = Served::new();
    for (path, told) in [
        ("/v1/v1/chat/completions", "did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("/v1/api/tags", "did you mean /api/tags?"),
        ("/v1", "did you mean /v1/"),
        ("/nope", "/openapi.json lists the endpoints"),
    ] {
        let answer = served.get(path);
        let error = answer.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(answer.status, 404, "{answer:?}");
        assert!(message.contains(path) && message.contains(told), "{path}: {message}");
    }
    // in the format of the API that was probably meant
    assert_eq!(served.get("/v1/v1/messages").json()["error"]["type"], "not_found_error");
    assert_eq!(served.get("/v1/v1/messages").json()["type"], "error");
    assert!(served.get("/api/chats").json()["error"].as_str().unwrap().contains("/api/chat?"));
    let long = served.get(&format!("/{}", "x".repeat(5000)));
    assert!(long.status == 404 && long.body.len() < 400, "{long:?}");
    let refused = served.get("/chat/completions");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("post")), "{refused:?}");
    let message = refused.json()["error"]["message"].clone();
    assert_eq!(message, "method GET is not allowed for /chat/completions: use POST");
    assert_eq!(served.send(head("PUT", "/v1/models", "").as_bytes()).status, 405);
}

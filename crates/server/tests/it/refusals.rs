//! What is refused: with which status, by which name, and before anything is computed.

use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served, head, post};

const CHAT: &str = "/v1/chat/completions";

fn with(name: &str, value: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
    body[name] = value;
    body
}

#[test]
fn a_field_that_cannot_be_obeyed_is_named() {
    let served = Served::new();
    for (name, value, problem) in [
        ("temperature", json!("hot"), "expected a number"),
        ("top_p", json!(7), "0 to 1"),
        ("n", json!(9), "from 1 to 8"),
        ("n", json!(0), "from 1 to 8"),
        ("max_tokens", json!(0), "1 or more"),
        ("stop", json!([1]), "a text or up to 16"),
        ("stop", json!(vec!["x"; 17]), "up to 16"),
        ("stop", json!("x".repeat(300)), "256 bytes"),
        ("seed", json!(0.5), "an integer"),
        ("stream", json!("yes"), "true or false"),
        ("logit_bias", json!({ "x": 1 }), "by token id"),
        ("logprobs", json!(3), "true or false"),
        ("top_logprobs", json!(21), "from 0 to 20"),
        ("stop_token_ids", json!(["x"]), "token ids"),
        ("stop_token_ids", json!([4_000_000]), "no token 4000000"),
        ("functions", json!([{ "name": "f" }]), "only [] is supported"),
        ("modalities", json!(["audio"]), "only [\"text\"] is supported"),
        ("tools", json!([{}]), "tools[0].type: expected"),
        ("tool_choice", json!("required"), "no tools"),
        ("logit_bias", json!({ "4000000": 1 }), "no token 4000000"),
        ("stream_options", json!(3), "an object"),
        ("response_format", json!({ "type": "yaml" }), "json_schema"),
        ("reasoning_effort", json!("some"), "expected none"),
        ("messages", json!([]), "at least one"),
        ("messages", json!("hi"), "a list"),
    ] {
        let answer = served.post(CHAT, &with(name, value.clone()));
        assert_eq!(answer.status, 400, "{name} {value}: {answer:?}");
        let error = &answer.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(problem), "{name} {value}: {message}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["param"].as_str().is_some_and(|param| param.starts_with(name)), "{error}");
    }
    let impossible = json!({ "type": "object", "minProperties": 2, "maxProperties": 1 });
    let answer = served.post(CHAT, &with("json_schema", impossible));
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = served.post(CHAT, &with("model", json!("gpt-9")));
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].as_str()),
        (404, Some("not_found_error"))
    );
}

/// Two fields for one thing: none of them is lost in silence.
#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let served = Served::new();
    for (path, one, other) in [
        ("/v1/completions", "n_predict", "max_tokens"),
        (CHAT, "max_tokens", "max_completion_tokens"),
        ("/completion", "n_predict", "max_tokens"),
    ] {
        let ask = |lengths: [i64; 2]| {
            let mut body = json!({ "prompt": "once" });
            if path == CHAT {
                body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
            }
            (body[one], body[other]) = (json!(lengths[0]), json!(lengths[1]));
            served.post(path, &body)
        };
        let answer = ask([3, 5]);
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["param"], other, "{error}");
        assert!(error["message"].as_str().unwrap().contains(one), "{error}");
        assert_eq!(ask([3, 3]).status, 200, "{path}: they say the same");
    }
    let endless = json!({ "prompt": "once", "n_predict": -1, "max_tokens": 3 });
    assert_eq!(served.post("/completion", &endless).status, 400);
}

/// Settings have the ranges that each API documents.
#[test]
fn settings_are_within_the_ranges_of_their_api() {
    let served = Served::new();
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let chat = json!({ "messages": messages, "max_tokens": 1 });
    let options = json!({ "model": "demo", "prompt": "x", "stream": false });
    for (path, body, ranges) in [
        (CHAT, chat.clone(), &[("temperature", 0.0, 2.0), ("presence_penalty", -2.0, 2.0)][..]),
        (
            "/v1/completions",
            json!({ "prompt": "x", "max_tokens": 1 }),
            &[("temperature", 0.0, 2.0), ("frequency_penalty", -2.0, 2.0)],
        ),
        (
            "/v1/responses",
            json!({ "input": "x", "max_output_tokens": 1 }),
            &[("temperature", 0.0, 2.0), ("presence_penalty", -2.0, 2.0)],
        ),
        ("/v1/messages", chat, &[("temperature", 0.0, 1.0)]),
        ("/api/generate", options, &[("temperature", 0.0, 9.0)]),
    ] {
        let ask = |name: &str, value: f64| {
            let mut body = body.clone();
            match path {
                "/api/generate" => body["options"] = json!({ name: value, "num_predict": 1 }),
                _ => body[name] = json!(value),
            }
            served.post(path, &body)
        };
        for (name, least, most) in ranges {
            for fits in [*least, *most] {
                assert_eq!(ask(name, fits).status, 200, "{path} {name} {fits}");
            }
            let below = ask(name, least - 0.5);
            assert_eq!(below.status, 400, "{path} {name}: {below:?}");
            let told = match most {
                9.0 => format!("{name}: expected 0 or more, found -0.5"),
                most => format!("{name}: expected {least} to {most}, found {}", least - 0.5),
            };
            assert!(below.body.contains(&told), "{path}: {below:?}");
            let above = ask(name, if *most == 9.0 { 1e99 } else { most + 0.5 });
            assert_eq!(above.status, 400, "{path} {name}: {above:?}");
        }
    }
    // llama.cpp's API has no range: with 0 or less the likeliest token is chosen
    let ask = |temperature: f64| {
        let body = json!({ "prompt": "once", "n_predict": 6, "temperature": temperature, "ignore_eos": true });
        served.post("/completion", &body)
    };
    let greedy = ask(0.0).json()["content"].clone();
    for negative in [-0.5, -1.0, -100.0] {
        assert_eq!(ask(negative).json()["content"], greedy, "{negative}");
    }
    assert_eq!(ask(1e99).status, 400);
}

/// What cannot be read as a request is refused in the shape of its API, too.
#[test]
fn requests_that_cannot_be_read_are_refused_in_a_shape() {
    let served = Served::new();
    let garbage = served.send(b"GARBAGE\r\n\r\n");
    assert_eq!((garbage.status, garbage.header("content-type")), (400, Some("application/json")));
    assert_eq!(garbage.json()["error"]["type"], "invalid_request_error");
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    let refused = |path: &str| served.send(head("GET", path, &many).as_bytes());
    let openai = refused("/v1/models");
    assert_eq!(
        (openai.status, &openai.json()["error"]["type"]),
        (431, &json!("invalid_request_error"))
    );
    assert!(openai.json()["error"]["message"].as_str().unwrap().contains("headers"), "{openai:?}");
    assert!(refused("/api/tags").json()["error"].is_string());
    assert_eq!(refused("/v1/messages").json()["type"], "error");
    // what comes later may look like the beginning of a request
    let long = format!("X: {}\r\n", "Y".repeat(40_000));
    let long = served.send(head("GET", "/api/tags", &long).as_bytes());
    assert_eq!((long.status, long.json()["error"].is_string()), (431, true));
    assert_eq!(served.get("/health").status, 200);
}

#[test]
fn a_prompt_that_does_not_fit_is_told_with_its_length() {
    let served = Served::new();
    for more in [json!({}), json!({ "stream": true })] {
        let mut body =
            json!({ "messages": [{ "role": "user", "content": "hi ".repeat(CONTEXT) }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = served.post(CHAT, &body);
        assert_eq!(answer.status, 400, "{answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        assert!(error["message"].as_str().unwrap().contains(&CONTEXT.to_string()), "{error}");
    }
}

#[test]
fn requests_that_are_none_get_their_status() {
    let served = Served::new();
    let typed = |kind: &str, body: &str| {
        let headers = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        served.send((head("POST", CHAT, &headers) + body).as_bytes())
    };
    assert_eq!(typed("text/plain", "{}").status, 415);
    // what `curl -d` sends
    let messages = r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}"#;
    assert_eq!(typed("application/x-www-form-urlencoded", messages).status, 200);
    assert_eq!(typed("multipart/form-data; boundary=x", messages).status, 415);
    assert_eq!(typed("application/json", "{").status, 400);
    assert_eq!(typed("application/json; charset=utf-8", "[]").status, 400);
    assert_eq!(typed("application/json", &"[".repeat(100_000)).status, 400);
    assert_eq!(typed("application/json", r#"{"n": 1, "n": 2}"#).status, 400);
    assert_eq!(served.get(CHAT).status, 405);
    assert_eq!(served.get("/v2/chat").status, 404);
    assert_eq!(served.send(b"GARBAGE\r\n\r\n").status, 400);
    let huge = "Content-Type: application/json\r\nContent-Length: 999999999\r\n";
    let large = [head("POST", CHAT, huge).into_bytes(), vec![b' '; 9 << 20]].concat();
    assert_eq!(served.send(&large).status, 413);
    let many: String = (0..200).map(|i| format!("x-{i}: 1\r\n")).collect();
    assert_eq!(served.send(head("GET", "/health", &many).as_bytes()).status, 431);
    assert_eq!(served.get("/health").json(), json!({ "status": "ok" }));
}

/// H4: clients send no media type, another one for JSON, compressed bodies, or a byte order mark first.
#[test]
fn h4_json_is_read_however_it_is_sent() {
    use std::io::Write;
    let served = Served::new();
    let send = |path: &str, headers: &str, body: &[u8]| {
        let headers = format!("{headers}Content-Length: {}\r\n", body.len());
        served.send(&[head("POST", path, &headers).as_bytes(), body].concat())
    };
    let text = with("n", json!(1)).to_string();
    for headers in [
        "",
        "Content-Type:\r\n",
        "Content-Type: application/octet-stream\r\n",
        "Content-Type: application/vnd.api+json\r\n",
        "Content-Type: Application/JSON;charset=UTF-8\r\n",
        "Content-Encoding: identity\r\n",
    ] {
        let answer = send(CHAT, headers, text.as_bytes());
        assert_eq!(answer.status, 200, "{headers}: {answer:?}");
    }
    for (path, body) in [
        (
            "/api/chat",
            json!({ "model": "demo", "messages": [{ "role": "user", "content": "x" }], "stream": false }),
        ),
        ("/api/generate", json!({ "model": "demo", "prompt": "x", "stream": false })),
        ("/completion", json!({ "prompt": "x", "n_predict": 1 })),
        ("/tokenize", json!({ "content": "x" })),
    ] {
        assert_eq!(send(path, "", body.to_string().as_bytes()).status, 200, "{path}");
    }
    assert_eq!(send(CHAT, "", &[b"\xef\xbb\xbf", text.as_bytes()].concat()).status, 200);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zipped = "Content-Encoding: gzip\r\n";
    assert_eq!(send(CHAT, zipped, &gzip(text.as_bytes())).status, 200);
    let bomb = send(CHAT, zipped, &gzip(&vec![b' '; 9 << 20]));
    assert_eq!(bomb.status, 413, "{bomb:?}");
    let torn = send(CHAT, zipped, &gzip(text.as_bytes())[..20]);
    assert!(torn.status == 400 && torn.body.contains("as gzip"), "{torn:?}");
    let other = send(CHAT, "Content-Encoding: br\r\n", text.as_bytes());
    assert!(other.status == 415 && other.body.contains("br is not supported"), "{other:?}");
    assert_eq!(other.header("accept-encoding"), Some("gzip, deflate"));
    let empty = send(CHAT, "", b"");
    assert!(empty.status == 400 && empty.body.contains("the body is empty"), "{empty:?}");
}

#[test]
fn pages_and_strangers_are_refused_before_any_work() {
    let keys = ["secret".to_owned()];
    let served = Served::with(1, 0, Access::new(&keys, Some(Vec::new())));
    let ask = |headers: &str| {
        let body = String::from_utf8(post(CHAT, &with("n", json!(1)))).unwrap();
        served.send(body.replacen("Host: localhost\r\n", headers, 1).as_bytes())
    };
    let key = "Authorization: Bearer secret\r\n";
    assert_eq!(ask(&format!("Host: localhost\r\n{key}")).status, 200);
    assert_eq!(ask("Host: localhost\r\n").status, 401);
    assert_eq!(ask("Host: localhost\r\nAuthorization: Bearer other\r\n").status, 401);
    for page in ["Host: evil.com\r\n", "Host: localhost\r\nOrigin: https://evil.com\r\n"] {
        let answer = ask(&format!("{page}{key}"));
        assert_eq!(answer.status, 403, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    assert_eq!(served.get("/health").status, 200);
    assert_eq!(served.get("/v1/models").status, 401);
}

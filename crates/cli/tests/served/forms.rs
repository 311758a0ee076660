//! Forms that would end a server or leave work in it, by every API, through the real program.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::common::Place;
use crate::serving::Serving;

/// A schema in which each of `n` definitions refers to the next.
fn chain(n: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut all: Map<String, Value> = (0..n)
        .map(|i| (format!("d{i}"), link(json!({ "$ref": format!("#/$defs/d{}", i + 1) }))))
        .collect();
    all.insert(format!("d{n}"), json!({ "type": "null" }));
    json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": all })
}

fn rules(n: usize, head: &str, sign: &str, letter: &str) -> String {
    let links = (0..n).map(|i| format!("{letter}{i} {sign} {letter}{}\n", i + 1));
    format!("{head} {sign} {letter}0\n{}{letter}{n} {sign} \"x\"\n", links.collect::<String>())
}

/// G1: the server refuses each of these, keeps no work of them, and answers the next request.
#[cfg(target_os = "linux")]
#[test]
fn g1_no_form_ends_the_server() {
    const CHAT: &str = "/v1/chat/completions";
    let place = Place::new();
    let serving = Serving::start(&place, &["demo.gguf", "-t", "1"]);
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let with = |key: &str, value: Value| {
        let mut body = json!({ "messages": messages, "max_tokens": 3 });
        body[key] = value;
        (CHAT, body)
    };
    let properties = |inner: Value| json!({ "type": "object", "properties": { "a": inner } });
    let multiples: Vec<Value> =
        [7, 11, 13, 17, 19, 23].map(|n| json!({ "type": "number", "multipleOf": n })).into();
    let tools: Vec<Value> = (0..12)
        .map(|i| {
            let parameters = json!({ "type": "object", "properties": { "x": { "allOf": multiples } } });
            json!({ "type": "function", "function": { "name": format!("f{i}"), "strict": true, "parameters": parameters } })
        })
        .collect();
    let nested = (0..8).fold(json!({ "type": "object" }), |inner, _| {
        json!({ "type": "object", "additionalProperties": inner, "anyOf": vec![json!({ "minProperties": 0 }); 8] })
    });
    let deep = chain(2600, properties);
    let tool = |schema: &Value| json!([{ "name": "f", "strict": true, "input_schema": schema }]);
    let format = json!({ "format": { "type": "json_schema", "schema": deep } });
    let requests = [
        with("json_schema", chain(7000, |inner| inner)),
        with("json_schema", chain(2600, |inner| json!({ "items": inner }))),
        with("json_schema", chain(3000, |inner| json!({ "anyOf": [inner, { "type": "null" }] }))),
        with("json_schema", deep.clone()),
        with("json_schema", json!({ "type": "integer", "multipleOf": 99_999_989 })),
        with("json_schema", nested),
        with("grammar", rules(6000, "start", ":", "r").into()),
        with("grammar", rules(9100, "start", ":", "T").into()),
        with("grammar", rules(10_000, "root", "::=", "g").into()),
        with("grammar", "start: %json {\"type\":\"integer\",\"multipleOf\":99999989}".into()),
        with("grammar", format!("start: /{}/", "a?".repeat(100_000)).into()),
        with("tools", tools.into()),
        with("tools", tool(&deep)),
        ("/v1/responses", json!({ "input": "x", "text": format })),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 2, "output_config": format })),
        (
            "/api/chat",
            json!({ "model": "demo", "messages": messages, "stream": false, "format": deep }),
        ),
    ];
    let start = Instant::now();
    for (path, body) in &requests {
        let answer = serving.post(path, body);
        let shown: String = body.to_string().chars().take(120).collect();
        assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.body);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let compiling = || serving.threads().iter().filter(|(name, _)| name == "compile").count();
    let end = Instant::now() + Duration::from_secs(2);
    while compiling() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(compiling(), 0, "{:?}", serving.threads());
    assert!(serving.own_memory() < 400 << 20, "{} MB", serving.own_memory() >> 20);
    let (path, good) =
        with("json_schema", json!({ "allOf": [{ "type": "string" }, { "maxLength": 3 }] }));
    let answer = serving.post(path, &good);
    assert_eq!(answer.status, 200, "{}", answer.body);
    serving.ended();
}

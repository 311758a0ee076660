//! Calls of tools: held to their schemas, told whole or in pieces, and their results taken.

use serde_json::{Value, json};

use crate::client::Served;

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"],
        "additionalProperties": false,
    });
    json!([{ "type": "function", "function": { "name": "count", "parameters": parameters } }])
}

fn ask(more: &Value) -> Value {
    let mut body = json!({
        "model": "demo",
        "messages": [{ "role": "user", "content": "count" }],
        "tools": tools(),
        "tool_choice": "required",
        "parallel_tool_calls": false,
        "max_tokens": 200,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_call_that_must_be_is_made_and_its_result_taken() {
    let served = Served::new();
    let whole = served.post("/v1/chat/completions", &ask(&json!({})));
    assert_eq!(whole.status, 200, "{whole:?}");
    let whole = whole.json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("count")));
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!((0..10).contains(&arguments["n"].as_i64().unwrap()), "{arguments}");

    let (events, done) =
        served.post("/v1/chat/completions", &ask(&json!({ "stream": true }))).events();
    assert!(done);
    let deltas: Vec<&Value> =
        events.iter().filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0")).collect();
    assert!(deltas.len() > 2 && deltas.iter().all(|delta| delta["index"] == 0), "{events:?}");
    assert_eq!(deltas[0]["function"], json!({ "name": "count", "arguments": "" }));
    assert!(deltas[0]["id"].is_string() && deltas[0]["type"] == "function", "{events:?}");
    let pieces: String =
        deltas.iter().map(|delta| delta["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(pieces, call["function"]["arguments"].as_str().unwrap());
    let reason =
        events.iter().rev().find_map(|event| event["choices"][0]["finish_reason"].as_str());
    assert_eq!(reason, Some("tool_calls"));

    let messages = json!([
        { "role": "user", "content": "count" },
        choice["message"],
        { "role": "tool", "tool_call_id": call["id"], "content": "seven" },
    ]);
    let more = json!({ "messages": messages, "tool_choice": "auto", "max_tokens": 5 });
    let next = served.post("/v1/chat/completions", &ask(&more));
    assert_eq!(next.status, 200, "{next:?}");
}

#[test]
fn ollamas_calls_have_objects() {
    let served = Served::new();
    let body = json!({
        "model": "demo",
        "messages": [{ "role": "user", "content": "count" }],
        "tools": tools(),
        "options": { "num_predict": 40 },
        "stream": false,
    });
    let answer = served.post("/api/chat", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let messages = json!([
        { "role": "user", "content": "count" },
        { "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "count", "arguments": { "n": 3 } } }] },
        { "role": "tool", "tool_name": "count", "content": "three" },
    ]);
    let mut body = body;
    body["messages"] = messages;
    assert_eq!(served.post("/api/chat", &body).status, 200);
}

#[test]
fn tools_that_cannot_be_had_are_named() {
    let served = Served::new();
    let unknown = json!({ "type": "function", "function": { "name": "other" } });
    for (more, problem) in [
        (json!({ "tool_choice": unknown }), "other"),
        (json!({ "tool_choice": 3 }), "auto, none, required"),
        (
            json!({ "tools": [{ "type": "function", "function": {} }] }),
            "tools[0].function.name: expected",
        ),
    ] {
        let answer = served.post("/v1/chat/completions", &ask(&more));
        assert_eq!(answer.status, 400, "{answer:?}");
        let error = answer.json();
        assert!(error["error"]["message"].as_str().unwrap().contains(problem), "{error}");
    }
}

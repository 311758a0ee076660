//! Anthropic's API: the same replies, in blocks.

use serde_json::{Value, json};

use crate::client::Served;

#[test]
fn a_message_says_what_it_says_in_openais_words() {
    let served = Served::new();
    let messages = json!([{ "role": "user", "content": "hello there" }]);
    let theirs = json!({
        "messages": [{ "role": "system", "content": "be kind" }, messages[0]], "max_tokens": 20,
    });
    let theirs = served.post("/v1/chat/completions", &theirs).json();
    let want = &theirs["choices"][0]["message"]["content"];
    let mut body =
        json!({ "model": "demo", "system": "be kind", "messages": messages, "max_tokens": 20 });
    let whole = served.post("/v1/messages", &body).json();
    assert_eq!(whole["content"][0]["text"], *want, "{whole}");
    let counted = served.post("/v1/messages/count_tokens", &json!({
        "model": "demo", "system": [{ "type": "text", "text": "be kind" }], "messages": messages,
    }));
    assert_eq!(counted.json()["input_tokens"], theirs["usage"]["prompt_tokens"]);
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().unwrap()
        + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(json!(read), theirs["usage"]["prompt_tokens"]);

    body["stream"] = json!(true);
    let streamed = served.post("/v1/messages", &body);
    let names: Vec<&str> =
        streamed.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let (events, done) = streamed.events();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(!done && names == types, "{names:?}");
    named_before_data(&streamed.body);
    assert_eq!(types[..2], ["message_start", "content_block_start"]);
    assert_eq!(types[types.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let text: String =
        events.iter().filter_map(|event| event.pointer("/delta/text")?.as_str()).collect();
    assert_eq!(text, *want);
    let delta = &events[events.len() - 2]["delta"];
    assert_eq!(delta["stop_reason"], whole["stop_reason"]);
}

/// Checks that each event's name comes before its data: some clients read line by line.
pub(crate) fn named_before_data(stream: &str) {
    let events: Vec<&str> = stream.split("\n\n").filter(|event| event.contains("data: ")).collect();
    for event in &events {
        assert!(event.starts_with("event: ") && event.contains("\ndata: "), "{event}");
    }
    assert!(events.len() > 4, "{stream}");
}

#[test]
fn texts_that_end_it_are_named() {
    let served = Served::new();
    let ask = |stops: Value| {
        let messages = json!([{ "role": "user", "content": "hello there" }]);
        let body = json!({ "messages": messages, "max_tokens": 30, "stop_sequences": stops });
        served.post("/v1/messages", &body).json()
    };
    let whole = ask(json!([]));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let middle = text.chars().nth(text.chars().count() / 2).unwrap().to_string();
    let stopped = ask(json!([middle]));
    assert_eq!(stopped["stop_reason"], "stop_sequence", "{stopped}");
    assert_eq!(stopped["stop_sequence"], middle);
    let start = stopped["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(start) && !start.contains(&middle), "{start:?} of {text:?}");
}

#[test]
fn what_cannot_be_obeyed_is_told_in_their_shape() {
    let served = Served::new();
    let ask = |more: Value| {
        let mut body =
            json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/v1/messages", &body)
    };
    assert_eq!(ask(json!({})).status, 200);
    for (more, status, kind, problem) in [
        (json!({ "max_tokens": null }), 400, "invalid_request_error", "max_tokens"),
        (json!({ "temperature": "hot" }), 400, "invalid_request_error", "temperature"),
        (json!({ "model": "other" }), 404, "not_found_error", "other"),
        (json!({ "tools": [{}] }), 400, "invalid_request_error", "tools"),
        (json!({ "thinking": { "type": "often" } }), 400, "invalid_request_error", "thinking"),
    ] {
        let answer = ask(more);
        assert_eq!(answer.status, status, "{answer:?}");
        let error = answer.json();
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(kind)));
        assert!(error["error"]["message"].as_str().unwrap().contains(problem), "{error}");
    }
}

#[test]
fn tools_are_called_in_blocks() {
    let served = Served::new();
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"], "additionalProperties": false,
    });
    let ask = |messages: &Value, stream: bool, choice: &str| {
        let body = json!({
            "model": "demo", "messages": messages, "max_tokens": 200, "stream": stream,
            "tools": [{ "name": "count", "description": "Counts.", "input_schema": schema }],
            "tool_choice": { "type": choice, "disable_parallel_tool_use": true },
        });
        served.post("/v1/messages", &body)
    };
    let messages = json!([{ "role": "user", "content": "count" }]);
    let whole = ask(&messages, false, "any").json();
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    let blocks = whole["content"].as_array().unwrap();
    let call = blocks.last().unwrap();
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("count")));
    assert!((0..10).contains(&call["input"]["n"].as_i64().unwrap()), "{call}");

    let (events, _) = ask(&messages, true, "any").events();
    let start = events.iter().find(|event| event["content_block"]["type"] == "tool_use").unwrap();
    let index = &start["index"];
    assert_eq!(
        (&start["content_block"]["name"], &start["content_block"]["input"]),
        (&json!("count"), &json!({}))
    );
    let pieces: Vec<&str> = events
        .iter()
        .filter(|event| event["index"] == *index)
        .filter_map(|event| event.pointer("/delta/partial_json")?.as_str())
        .collect();
    assert!(pieces.len() > 1, "{pieces:?}");
    let input: Value = serde_json::from_str(&pieces.concat()).unwrap();
    assert_eq!(input, call["input"]);
    assert!(
        events
            .iter()
            .any(|event| event["type"] == "content_block_stop" && event["index"] == *index)
    );
    let last = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(last["delta"]["stop_reason"], "tool_use");

    let messages = json!([
        messages[0],
        { "role": "assistant", "content": blocks },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": call["id"], "content": "seven" }] },
    ]);
    let next = ask(&messages, false, "auto");
    assert_eq!(next.status, 200, "{next:?}");
}

//! OpenAI's newer API: the same replies, as items.

use serde_json::{Value, json};

use crate::client::Served;

const PATH: &str = "/v1/responses";

#[test]
fn a_response_says_what_a_chat_says() {
    let served = Served::new();
    let theirs = json!({
        "messages": [{ "role": "system", "content": "be kind" }, { "role": "user", "content": "hello there" }],
        "max_tokens": 20,
    });
    let theirs = served.post("/v1/chat/completions", &theirs).json();
    let want = theirs["choices"][0]["message"]["content"].as_str().unwrap();
    let mut body =
        json!({ "instructions": "be kind", "input": "hello there", "max_output_tokens": 20 });
    let whole = served.post(PATH, &body).json();
    assert_eq!(whole["object"], "response", "{whole}");
    let message = &whole["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"][0]["text"], want);
    assert_eq!(whole["usage"]["input_tokens"], theirs["usage"]["prompt_tokens"]);
    let cut = theirs["choices"][0]["finish_reason"] == "length";
    assert_eq!(whole["status"], if cut { "incomplete" } else { "completed" });
    assert_eq!(whole["instructions"], "be kind");

    body["stream"] = json!(true);
    let streamed = served.post(PATH, &body);
    crate::anthropic::named_before_data(&streamed.body);
    let (events, done) = streamed.events();
    assert!(!done);
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    let numbers: Vec<u64> =
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, want);
    let last = events.last().unwrap();
    assert!(
        ["response.completed", "response.incomplete"].contains(&last["type"].as_str().unwrap())
    );
    assert_eq!(last["response"]["output"][0]["content"], message["content"]);
}

/// The item in which a reply was cut is incomplete, as its response is: in the response and in the events of a stream.
#[test]
fn the_last_item_of_a_reply_that_was_cut_is_incomplete() {
    let served = Served::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "string", "minLength": 400 } },
                         "required": ["n"], "additionalProperties": false });
    let tool = json!({ "type": "function", "name": "count", "parameters": schema });
    for (more, kind, cut) in [
        (json!({ "max_output_tokens": 3, "ignore_eos": true }), "message", true),
        (
            json!({ "tools": [tool], "tool_choice": "required", "max_output_tokens": 40 }),
            "function_call",
            true,
        ),
        (
            json!({ "text": { "format": { "type": "json_schema", "schema": { "const": 1 } } } }),
            "message",
            false,
        ),
    ] {
        let mut body = json!({ "input": "hello there" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let status = json!(if cut { "incomplete" } else { "completed" });
        let whole = served.post(PATH, &body).json();
        let last = whole["output"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&whole["status"], &last["status"]), (&status, &status), "{whole}");
        assert_eq!(last["type"], kind, "{whole}");
        body["stream"] = json!(true);
        let (events, _) = served.post(PATH, &body).events();
        let done = events.iter().rfind(|event| event["type"] == "response.output_item.done");
        assert_eq!(done.unwrap()["item"]["status"], status, "{events:?}");
        let response = &events.last().unwrap()["response"];
        let last = response["output"].as_array().unwrap().last().unwrap();
        assert_eq!((&response["status"], &last["status"]), (&status, &status), "{response}");
    }
}

#[test]
fn calls_are_items_and_so_are_their_results() {
    let served = Served::new();
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"], "additionalProperties": false,
    });
    let tool = json!({ "type": "function", "name": "count", "parameters": schema, "strict": true });
    let ask = |input: &Value, stream: bool, choice: &str| {
        let body = json!({
            "input": input, "tools": [tool], "tool_choice": choice, "parallel_tool_calls": false,
            "max_output_tokens": 200, "stream": stream,
        });
        served.post(PATH, &body)
    };
    let input = json!([{ "role": "user", "content": "count" }]);
    let whole = ask(&input, false, "required").json();
    let output = whole["output"].as_array().unwrap();
    let call = output.iter().find(|item| item["type"] == "function_call").unwrap();
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!((0..10).contains(&arguments["n"].as_i64().unwrap()), "{call}");
    let (events, _) = ask(&input, true, "required").events();
    let pieces: String = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(pieces, call["arguments"].as_str().unwrap());
    let next = json!([
        input[0], call,
        { "type": "function_call_output", "call_id": call["call_id"], "output": "seven" },
    ]);
    let next = ask(&next, false, "auto");
    assert_eq!(next.status, 200, "{next:?}");
    let form = json!({ "type": "json_schema", "name": "n", "schema": schema });
    let body = json!({ "input": "a number", "text": { "format": form }, "max_output_tokens": 100 });
    let formed = served.post(PATH, &body).json();
    let text = formed["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["n"].is_i64(), "{text}");
    let stored = json!({ "input": "x", "max_output_tokens": 1, "store": true });
    let stored = served.post(PATH, &stored).json();
    let told = "store: ignored: responses are not stored: send the whole conversation in `input`";
    assert_eq!((&stored["warnings"], &stored["store"]), (&json!([told]), &json!(false)));
    let ephemeral = json!({ "input": "x", "max_output_tokens": 1, "store": false });
    assert_eq!(served.post(PATH, &ephemeral).json().get("warnings"), None);
    for (more, problem) in [
        (json!({ "previous_response_id": "resp_1" }), "previous_response_id"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "tools": [{ "type": "function", "name": "a b" }] }), "tools"),
        (json!({ "background": true }), "background"),
    ] {
        let mut body = json!({ "input": "x" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = served.post(PATH, &body);
        assert_eq!(refused.status, 400, "{refused:?}");
        let error = refused.json()["error"].clone();
        let is_stored = ["previous_response_id", "conversation"].contains(&problem);
        assert_eq!(error["message"].as_str().unwrap().contains("in `input`"), is_stored, "{error}");
        let param = error["param"].as_str().unwrap().to_owned();
        assert!(param.starts_with(problem), "{refused:?}");
    }
}

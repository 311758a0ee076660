//! Chats and texts: the replies that the engine makes, in every form they can be asked in.

use std::sync::Arc;

use engine::{ChatFormat, Message, PromptOptions, Request, Sampler, SamplerOptions, Session, Turn};
use program::{CacheOptions, CacheType};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served};

/// What the engine says by itself.
fn alone(served: &Served, prompt: &[u32], max: usize, options: SamplerOptions) -> String {
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, CONTEXT);
    let session = Session::new(Arc::clone(&served.model), cache, 64).unwrap();
    let request = Request {
        prompt,
        max_tokens: Some(max),
        stop: &[],
        ignore_eog: false,
        split_thoughts: true,
        cancel: &Arc::default(),
    };
    let sampler = Sampler::new(options).unwrap().with_vocabulary(&*served.format);
    Turn::new(session, sampler, &*served.format, &request).alone(&mut |_| ()).unwrap().text
}

fn prompt(served: &Served, text: &str) -> Vec<u32> {
    let messages = [Message::new("user", text)];
    let spans =
        served.format.render(&messages, &PromptOptions::default(), &Arc::default()).unwrap();
    served.format.encode(&spans, true).unwrap()
}

fn chat(text: &str, more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 30 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_chat_is_what_the_engine_says_whole_or_in_pieces() {
    let served = Served::new();
    let tokens = prompt(&served, "hello there");
    let sampler =
        SamplerOptions { temperature: 1.3, top_k: 20, seed: Some(5), ..SamplerOptions::greedy() };
    let want = alone(&served, &tokens, 30, sampler);
    let settings =
        json!({ "temperature": 1.3, "top_k": 20, "seed": 5, "model": "demo", "user": "me" });
    let whole = served.post("/v1/chat/completions", &chat("hello there", &settings));
    assert_eq!(whole.status, 200, "{whole:?}");
    let whole = whole.json();
    assert_eq!(whole["choices"][0]["message"]["content"], want);
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["usage"]["prompt_tokens"], tokens.len());
    assert!(whole["timings"]["predicted_n"].as_u64().unwrap() > 0);

    let mut settings = settings;
    settings["stream"] = json!(true);
    settings["stream_options"] = json!({ "include_usage": true });
    settings["return_progress"] = json!(true);
    let streamed = served.post("/v1/chat/completions", &chat("hello there", &settings));
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    let (events, done) = streamed.events();
    assert!(done);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str())
        .collect();
    assert_eq!(text, want);
    let reasons: Vec<&Value> =
        events.iter().filter_map(|event| event.pointer("/choices/0/finish_reason")).collect();
    let (last, before) = reasons.split_last().unwrap();
    assert_eq!(**last, whole["choices"][0]["finish_reason"]);
    assert!(before.iter().all(|reason| reason.is_null()));
    let ids: std::collections::HashSet<&str> =
        events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 1, "one reply has one id");
    assert!(events.iter().any(|event| event["prompt_progress"]["processed"] == tokens.len()));
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
}

#[test]
fn a_text_is_continued_as_it_is() {
    let served = Served::new();
    let text = "once upon";
    let tokens = served.format.tokenizer().encode_prompt(text).unwrap();
    let want = alone(&served, &tokens, 12, SamplerOptions::greedy());
    for prompt in [json!(text), json!(tokens), json!([text])] {
        let body = json!({ "prompt": prompt, "max_tokens": 12 });
        let answer = served.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        assert_eq!(answer["choices"][0]["text"], want);
        assert_eq!(answer["object"], "text_completion");
    }
    let two = json!({ "prompt": [text, "hello"], "max_tokens": 12, "stream": true });
    let (events, done) = served.post("/v1/completions", &two).events();
    assert!(done);
    let of = |index: u64| -> String {
        let choice = |event: &Value| {
            let choice = event["choices"].get(0)?;
            (choice["index"] == index).then(|| choice["text"].as_str().unwrap().to_owned())
        };
        events.iter().filter_map(choice).collect()
    };
    assert_eq!(of(0), want);
    let other = served.format.tokenizer().encode_prompt("hello").unwrap();
    assert_eq!(of(1), alone(&served, &other, 12, SamplerOptions::greedy()));
}

#[test]
fn several_choices_have_seeds_of_their_own() {
    let served = Served::new();
    let body = chat("hi", &json!({ "n": 3, "seed": 11, "temperature": 1.5 }));
    let answer = served.post("/v1/chat/completions", &body).json();
    let texts: Vec<&str> =
        (0..3).map(|i| answer["choices"][i]["message"]["content"].as_str().unwrap()).collect();
    let tokens = prompt(&served, "hi");
    assert_eq!(answer["usage"]["prompt_tokens"], tokens.len(), "one prompt");
    for (i, text) in texts.iter().enumerate() {
        let options = SamplerOptions {
            temperature: 1.5,
            seed: Some(11 + i as u64),
            ..SamplerOptions::greedy()
        };
        assert_eq!(*text, alone(&served, &tokens, 30, options), "choice {i}");
    }
}

#[test]
fn the_next_message_computes_only_what_is_new() {
    let served = Served::new();
    let first = chat("tell me of the sea and of all the ships on it", &json!({ "max_tokens": 8 }));
    let reply = served.post("/v1/chat/completions", &first).json();
    let said = reply["choices"][0]["message"]["content"].clone();
    // once more, in another conversation
    let again = served.post("/v1/chat/completions", &first).json();
    assert_eq!(again["choices"][0]["message"], reply["choices"][0]["message"]);
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached + 1, again["usage"]["prompt_tokens"].as_u64().unwrap());
    let mut second = first.clone();
    let more = [
        json!({ "role": "assistant", "content": said }),
        json!({ "role": "user", "content": "more" }),
    ];
    second["messages"].as_array_mut().unwrap().extend(more);
    let usage = served.post("/v1/chat/completions", &second).json()["usage"].clone();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached + 2 >= reply["usage"]["prompt_tokens"].as_u64().unwrap(), "{usage}");
}

#[test]
fn replies_have_the_form_that_was_asked_for() {
    let served = Served::new();
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"],
        "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    for more in [json!({ "response_format": format }), json!({ "json_schema": schema })] {
        let mut more = more;
        more["max_tokens"] = json!(200);
        let answer = served.post("/v1/chat/completions", &chat("a number", &more));
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!((0..10).contains(&value["n"].as_i64().unwrap()), "{value}");
    }
}

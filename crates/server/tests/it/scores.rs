//! How likely tokens were: the same whole and in pieces, in both endpoints' shapes.

use rooflight_server::{Access, Server, ServerLimits};
use serde_json::{Value, json};

use crate::client::{Served, demo};

#[test]
fn scores_stand_beside_their_tokens() {
    let served = Served::new();
    let body = json!({
        "messages": [{ "role": "user", "content": "hello there" }],
        "max_tokens": 12, "logprobs": true, "top_logprobs": 3, "temperature": 1.1, "seed": 5,
    });
    let whole = served.post("/v1/chat/completions", &body).json();
    let choice = &whole["choices"][0];
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(json!(content.len()), whole["usage"]["completion_tokens"]);
    let text: Vec<u8> = content
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect();
    assert_eq!(String::from_utf8_lossy(&text), choice["message"]["content"].as_str().unwrap());
    for token in content {
        let own = token["logprob"].as_f64().unwrap();
        let top: Vec<f64> = token["top_logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|top| top["logprob"].as_f64().unwrap())
            .collect();
        assert_eq!(top.len(), 3);
        assert!(own <= top[0] && top.is_sorted_by(|a, b| a >= b) && top[0] <= 0.0, "{token}");
    }
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (events, _) = served.post("/v1/chat/completions", &streamed).events();
    let pieces: Vec<Value> = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/logprobs/content")?.as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(pieces, *content);

    let body = json!({ "prompt": "once", "max_tokens": 6, "logprobs": 2, "n": 2, "seed": 5 });
    let whole = served.post("/v1/completions", &body).json();
    for choice in whole["choices"].as_array().unwrap() {
        let scores = &choice["logprobs"];
        let tokens = scores["tokens"].as_array().unwrap();
        let joined: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
        assert_eq!(joined, choice["text"].as_str().unwrap());
        assert_eq!(scores["token_logprobs"].as_array().unwrap().len(), tokens.len());
        assert_eq!(scores["top_logprobs"][0].as_object().unwrap().len(), 2);
        assert_eq!(scores["text_offset"][0], 0);
    }
}

/// Evaluation harnesses score answers by the log probabilities of a prompt's own tokens.
#[test]
fn prompts_are_scored_with_their_replies() {
    let served = Served::new();
    let ids = served.format.tokenizer().encode("once the end of it is the thing").unwrap();
    let n = ids.len();
    let body = json!({ "prompt": ids, "max_tokens": 1, "echo": true, "logprobs": 2 });
    let whole = served.post("/v1/completions", &body);
    assert_eq!(whole.status, 200, "{whole:?}");
    // the text of the tokens may be much longer than the request: their number is checked before the text is built
    let long = json!({ "prompt": vec![ids[0]; 100_000], "max_tokens": 1, "echo": true });
    let refused = served.post("/v1/completions", &long);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    let whole = whole.json();
    assert_eq!(whole["usage"]["prompt_tokens"], n);
    let list = |whole: &Value, name: &str| {
        whole["choices"][0]["logprobs"][name].as_array().unwrap().clone()
    };
    let own = list(&whole, "token_logprobs");
    assert_eq!((own.len(), &own[0]), (n + 1, &Value::Null), "the first token follows nothing");
    assert_eq!(list(&whole, "top_logprobs")[0], Value::Null);
    let texts = list(&whole, "tokens");
    let joined: String = texts.iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(joined, whole["choices"][0]["text"].as_str().unwrap());
    let mut offset = 0;
    for (text, at) in texts.iter().zip(list(&whole, "text_offset")) {
        assert_eq!(at, offset, "{whole}");
        offset += text.as_str().unwrap().chars().count();
    }
    // compare with the score of the same token in a reply that is forced to have it
    for (i, id) in ids.iter().enumerate().skip(1) {
        let forced = json!({ "prompt": ids[..i], "max_tokens": 1, "logprobs": 2,
                             "logit_bias": { id.to_string(): 100 } });
        let forced = served.post("/v1/completions", &forced).json();
        assert_eq!(list(&forced, "tokens")[0], texts[i]);
        let (a, b) =
            (own[i].as_f64().unwrap(), list(&forced, "token_logprobs")[0].as_f64().unwrap());
        assert!((a - b).abs() < 1e-4, "token {i}: {a} in the prompt, {b} as a reply");
        assert_eq!(list(&forced, "top_logprobs")[0].as_object().unwrap().len(), 2);
    }
    // the scores are the same for a cached beginning, in a stream, without a reply, and for several prompts
    assert_eq!(list(&served.post("/v1/completions", &body).json(), "token_logprobs"), own);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (events, _) = served.post("/v1/completions", &streamed).events();
    let pieces: Vec<Value> = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/logprobs/token_logprobs")?.as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(pieces, own);
    let text: String =
        events.iter().filter_map(|event| event.pointer("/choices/0/text")?.as_str()).collect();
    assert_eq!(text, joined);
    let none = json!({ "prompt": [ids, ids], "max_tokens": 0, "echo": true, "logprobs": 0 });
    let none = served.post("/v1/completions", &none).json();
    for choice in none["choices"].as_array().unwrap() {
        assert_eq!(choice["logprobs"]["token_logprobs"].as_array().unwrap()[..], own[..n]);
        assert_eq!(choice["finish_reason"], "length");
    }
    let silent = json!({ "prompt": "once", "max_tokens": 0 });
    let silent = served.post("/v1/completions", &silent).json();
    assert_eq!(
        (&silent["choices"][0]["text"], &silent["usage"]["completion_tokens"]),
        (&json!(""), &json!(0))
    );
}

/// The scores of a long prompt are streamed in chunks, and equal those of a response that is not streamed.
#[test]
fn scores_of_long_prompts_are_streamed_in_chunks() {
    let served = Served::new();
    let tokenizer = served.format.tokenizer();
    let ids: Vec<u32> = tokenizer.encode("once the end of it ").unwrap();
    let ids: Vec<u32> = ids.into_iter().cycle().take(600).collect();
    let mut body = json!({ "prompt": ids, "max_tokens": 1, "echo": true, "logprobs": 1 });
    let whole = served.post("/v1/completions", &body);
    assert_eq!(whole.header("content-type"), Some("application/json"), "{whole:?}");
    let whole = whole.json();
    body["stream"] = json!(true);
    let (events, done) = served.post("/v1/completions", &body).events();
    assert!(done);
    let lists = |name: &str| -> Vec<Vec<Value>> {
        let at = format!("/choices/0/logprobs/{name}");
        events.iter().filter_map(|event| event.pointer(&at)?.as_array().cloned()).collect()
    };
    let lengths: Vec<usize> = lists("tokens").iter().map(Vec::len).collect();
    assert_eq!(lengths[..3], [257, 256, 87], "{lengths:?}");
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(json!(lists(name).concat()), whole["choices"][0]["logprobs"][name], "{name}");
    }
    let text: String =
        events.iter().filter_map(|event| event.pointer("/choices/0/text")?.as_str()).collect();
    assert_eq!(json!(text), whole["choices"][0]["text"]);
}

/// A response that can never fit into the memory for requests is refused before anything is computed.
#[test]
fn scores_that_do_not_fit_are_refused() {
    let limits = ServerLimits { body_memory: 4 << 20, ..ServerLimits::default() };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server =
        Server::start_within(limits, listener, Access::new(&[], Some(Vec::new()))).unwrap();
    server.provide(demo("demo", |model| model)).unwrap();
    let served = Served::of(server);
    let ask = |top: usize| {
        let body =
            json!({ "prompt": vec![7; 400], "max_tokens": 0, "echo": true, "logprobs": top });
        served.post("/v1/completions", &body)
    };
    assert_eq!(ask(0).status, 200);
    let refused = ask(20);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.body.contains("more than 1048576 bytes of memory"), "{refused:?}");
    assert_eq!(ask(0).status, 200, "nothing of it is kept");
    // the same for the scores of replies, whose number is known at their end
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let chat = |top: usize| json!({ "messages": messages, "max_tokens": 340, "ignore_eos": true, "logprobs": true, "top_logprobs": top });
    let text = |top: usize| json!({ "prompt": "hi", "n_predict": 340, "ignore_eos": true, "n_probs": top });
    let ollama = |top: usize| {
        json!({ "model": "demo", "messages": messages, "stream": false, "logprobs": true, "top_logprobs": top,
                "format": { "type": "string", "minLength": 5000 }, "options": { "num_predict": 340 } })
    };
    for (path, body) in [
        ("/v1/chat/completions", &chat as &dyn Fn(usize) -> Value),
        ("/completion", &text),
        ("/api/chat", &ollama),
    ] {
        assert_eq!(served.post(path, &body(1)).status, 200, "{path}");
        let refused = served.post(path, &body(20));
        assert_eq!(refused.status, 413, "{path}: {refused:?}");
        assert!(refused.body.contains("of memory"), "{path}: {refused:?}");
    }
}

/// `best_of`: more replies are generated than returned, and the likeliest are returned.
#[test]
fn the_likeliest_replies_are_returned() {
    let served = Served::new();
    let ask = |more: Value| {
        let mut body = json!({ "prompt": "once", "max_tokens": 6, "temperature": 1.5, "seed": 9, "logprobs": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/v1/completions", &body).json()
    };
    let mean = |choice: &Value| {
        let all = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        all.iter().map(|x| x.as_f64().unwrap()).sum::<f64>() / all.len() as f64
    };
    let all = ask(json!({ "n": 4 }));
    let mut made = all["choices"].as_array().unwrap().clone();
    made.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let best = ask(json!({ "best_of": 4, "n": 2 }));
    let texts =
        |choices: &[Value]| choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>();
    assert_eq!(texts(best["choices"].as_array().unwrap()), texts(&made[..2]));
    let made_tokens = |reply: &Value| reply["usage"]["completion_tokens"].clone();
    assert_eq!(made_tokens(&best), made_tokens(&all), "all that were made count");
    let silent = ask(json!({ "best_of": 4, "logprobs": null }));
    assert_eq!(
        (&silent["choices"][0]["text"], &silent["choices"][0]["logprobs"]),
        (&made[0]["text"], &Value::Null)
    );
}

#[test]
fn a_prompt_is_echoed_before_its_reply() {
    let served = Served::new();
    let mut body = json!({ "prompt": ["once", "twice"], "max_tokens": 4 });
    let plain = served.post("/v1/completions", &body).json();
    body["echo"] = json!(true);
    let echoed = served.post("/v1/completions", &body).json();
    for (i, prompt) in ["once", "twice"].into_iter().enumerate() {
        let text = plain["choices"][i]["text"].as_str().unwrap();
        assert_eq!(echoed["choices"][i]["text"], format!("{prompt}{text}"));
    }
    body["stream"] = json!(true);
    let (events, _) = served.post("/v1/completions", &body).events();
    let text: String = events
        .iter()
        .filter(|event| event["choices"][0]["index"] == 1)
        .map(|event| event["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, echoed["choices"][1]["text"].as_str().unwrap());
    let hole = json!({ "prompt": "a", "suffix": "b" });
    let refused = served.post("/v1/completions", &hole);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("suffix")));
}

#[test]
fn a_reply_tells_what_became_of_its_context() {
    let served = Served::new();
    let ask = |text: &str| {
        let body = json!({
            "messages": [{ "role": "user", "content": text }], "max_tokens": 3, "ignore_eos": true,
        });
        served.post("/v1/chat/completions", &body).json()
    };
    let first = ask("a long tale of the sea");
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    let context = &first["context_ledger"];
    assert_eq!((&context["reused"], &context["dropped"]), (&json!([]), &json!([])));
    assert_eq!(context["kept"], json!([[0, prompt + 2]]), "the last token is not computed");
    assert_eq!(context["computed"], json!([[0, prompt + 2]]));
    let again = ask("a long tale of the sea");
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{again}");
    assert_eq!(again["context_ledger"]["reused"], json!([[0, cached]]));
}

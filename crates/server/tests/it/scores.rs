//! How likely tokens were: the same whole and in pieces, in both endpoints' shapes.

use serde_json::{Value, json};

use crate::client::Served;

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

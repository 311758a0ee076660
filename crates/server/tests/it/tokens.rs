//! What is served, tokens and templates.

use rooflight_server::{Access, Server};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served};

#[test]
fn what_is_not_loaded_yet_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, Access::new(&[], Some(Vec::new()))).unwrap();
    let served = Served::of(server);
    for path in ["/health", "/v1/models"] {
        let answer = served.get(path);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.json()["error"]["type"], "unavailable_error");
    }
    assert_eq!(served.get("/nothing").status, 404);
}

#[test]
fn the_model_is_listed_and_described() {
    let served = Served::new();
    let list = served.get("/v1/models").json();
    let model = &list["data"][0];
    assert_eq!(
        (&model["id"], &model["object"], &model["created"]),
        (&json!("demo"), &json!("model"), &json!(7))
    );
    assert_eq!(served.get("/v1/models/demo").json(), *model);
    assert_eq!(served.get("/v1/models/other/one").status, 404);
    let props = served.get("/props").json();
    assert_eq!(props["default_generation_settings"]["n_ctx"], CONTEXT);
    assert_eq!(props["default_generation_settings"]["params"]["temperature"], 0);
    assert_eq!(served.get("/slots").json().as_array().unwrap().len(), 2);
}

#[test]
fn texts_become_tokens_and_texts_again() {
    let served = Served::new();
    let text = "hello <|im_end|> there";
    let tokens = |more: Value| {
        let mut body = json!({ "content": text });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/tokenize", &body).json()["tokens"].clone()
    };
    let tokenizer = served.format.tokenizer();
    let (plain, special) = (tokens(json!({ "parse_special": false })), tokens(json!({})));
    assert_eq!(plain, json!(tokenizer.encode(text).unwrap()), "control tokens may be text");
    assert_eq!(special, json!(tokenizer.encode_special(text).unwrap()));
    assert_ne!(special, plain);
    assert_eq!(tokens(json!({ "parse_special": true })), special);
    // as many tokens as in a prompt of the same text
    let read = served.post("/completion", &json!({ "prompt": text, "n_predict": 1 })).json();
    assert_eq!(read["tokens_evaluated"], special.as_array().unwrap().len());
    for ids in [plain, special] {
        let back = served.post("/detokenize", &json!({ "tokens": ids })).json();
        assert_eq!(back["content"], text);
    }
    let pieces = served.post("/tokenize", &json!({ "content": "hi", "with_pieces": true })).json();
    assert!(pieces["tokens"][0]["piece"].is_string(), "{pieces}");
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let prompt = |more: Value| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = served.post("/apply-template", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["prompt"].as_str().unwrap().to_owned()
    };
    let plain = prompt(json!({}));
    assert!(plain.contains("hi"), "{plain}");
    // the prompt equals that of a chat request with this body
    let ids = served.post("/tokenize", &json!({ "content": plain })).json()["tokens"].clone();
    let mut chat = body.clone();
    chat["max_tokens"] = json!(1);
    let usage = served.post("/v1/chat/completions", &chat).json()["usage"].clone();
    assert_eq!(usage["prompt_tokens"], ids.as_array().unwrap().len());
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let tool =
        json!({ "type": "function", "function": { "name": "add_up", "parameters": parameters } });
    assert!(prompt(json!({ "tools": [tool] })).contains("add_up"));
    for more in [
        json!({ "chat_template_kwargs": { "enable_thinking": false } }),
        json!({ "temperature": 0, "stream": true, "model": "demo", "tools": [] }),
    ] {
        assert_eq!(prompt(more), plain);
    }
    assert_eq!(served.post("/tokenize", &json!({ "content": 3 })).status, 400);
    assert_eq!(served.post("/detokenize", &json!({ "tokens": [-1] })).status, 400);
}

/// An id outside the vocabulary has no text: it is refused, with the size of the vocabulary.
#[test]
fn ids_outside_the_vocabulary_are_refused() {
    let served = Served::new();
    let n = served.format.tokenizer().vocab_size();
    let last = json!({ "tokens": [0, n - 1] });
    assert_eq!(served.post("/detokenize", &last).status, 200);
    // a long list is stored apart from short ones
    for tokens in [json!([0, n]), json!(vec![n; 5_000])] {
        let refused = served.post("/detokenize", &json!({ "tokens": tokens }));
        assert_eq!(refused.status, 400, "{refused:?}");
        let error = &refused.json()["error"];
        let told = format!("tokens: the model has no token {n}: its vocabulary has {n} tokens");
        assert_eq!((&error["message"], &error["param"]), (&json!(told), &json!("tokens")));
    }
}

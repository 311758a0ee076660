//! What is served, tokens and templates.

use rooflight_server::{Access, Server};
use serde_json::json;

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
    let plain = served.post("/tokenize", &json!({ "content": text })).json();
    let tokens = served.format.tokenizer().encode(text).unwrap();
    assert_eq!(plain["tokens"], json!(tokens));
    let special =
        served.post("/tokenize", &json!({ "content": text, "parse_special": true })).json();
    assert_ne!(special, plain, "only who asks for control tokens gets them");
    let back = served.post("/detokenize", &json!({ "tokens": tokens })).json();
    assert_eq!(back["content"], text);
    let pieces = served.post("/tokenize", &json!({ "content": "hi", "with_pieces": true })).json();
    assert!(pieces["tokens"][0]["piece"].is_string(), "{pieces}");
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let prompt = served.post("/apply-template", &body).json();
    assert!(prompt["prompt"].as_str().unwrap().contains("hi"), "{prompt}");
    assert_eq!(served.post("/tokenize", &json!({ "content": 3 })).status, 400);
    assert_eq!(served.post("/detokenize", &json!({ "tokens": [-1] })).status, 400);
}

//! Ollama's API: the same replies, a line each.

use std::sync::Arc;

use rooflight_server::{ModelDetails, ServedModel};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served, demo};

fn lines(body: &str) -> Vec<Value> {
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_chat_says_what_it_says_in_openais_words() {
    let served = Served::new();
    let messages = json!([{ "role": "user", "content": "hello there" }]);
    let theirs = json!({ "messages": messages, "max_tokens": 20, "temperature": 1.2, "seed": 4 });
    let theirs = served.post("/v1/chat/completions", &theirs).json();
    let want = &theirs["choices"][0]["message"]["content"];
    let options = json!({ "num_predict": 20, "temperature": 1.2, "seed": 4, "num_ctx": CONTEXT });
    let mut body = json!({ "model": "demo:latest", "messages": messages, "options": options });
    let streamed = served.post("/api/chat", &body);
    assert_eq!(streamed.header("content-type"), Some("application/x-ndjson"), "{streamed:?}");
    let pieces = lines(&streamed.body);
    let text: String =
        pieces.iter().map(|piece| piece["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, *want);
    let (last, before) = pieces.split_last().unwrap();
    assert!(before.iter().all(|piece| piece["done"] == false) && last["done"] == true);
    assert_eq!(last["eval_count"], theirs["usage"]["completion_tokens"]);
    assert_eq!(last["done_reason"], theirs["choices"][0]["finish_reason"]);
    body["stream"] = json!(false);
    let whole = served.post("/api/chat", &body).json();
    assert_eq!(whole["message"]["content"], *want);
    assert_eq!(whole["done"], true);
}

#[test]
fn a_text_goes_through_the_template_unless_it_is_raw() {
    let served = Served::new();
    let ask = |more: Value| {
        let mut body = json!({ "model": "demo", "prompt": "once", "stream": false });
        body["options"] = json!({ "num_predict": 8 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/api/generate", &body)
    };
    let count = |answer: &Value| answer["prompt_eval_count"].as_u64().unwrap();
    let (raw, chat) = (ask(json!({ "raw": true })).json(), ask(json!({})).json());
    let told = ask(json!({ "system": "be brief" })).json();
    assert!(count(&raw) < count(&chat) && count(&chat) < count(&told), "{raw} {chat} {told}");
    let texts = json!({ "prompt": "once", "max_tokens": 8 });
    let texts = served.post("/v1/completions", &texts).json();
    assert_eq!(raw["response"], texts["choices"][0]["text"]);
    let same = ask(json!({ "raw": true, "system": "", "think": false })).json();
    assert_eq!(same["response"], raw["response"], "what asks for nothing may stand beside it");
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": 3 });
    let schema = json!({ "type": "object", "properties": { "n": schema }, "required": ["n"] });
    let formed = ask(json!({ "format": schema, "options": { "num_predict": -1 } }));
    assert_eq!(formed.status, 200, "{formed:?}");
    for (more, status, problem) in [
        (json!({ "model": "other" }), 404, "not found"),
        (json!({ "images": ["iVBORw0"] }), 400, "images: this model takes no images"),
        (json!({ "context": [1, 2] }), 400, "context: only [] is supported"),
        (json!({ "format": "yaml" }), 400, "format"),
        (json!({ "think": "deeply" }), 400, "think"),
        (json!({ "raw": true, "system": "be brief" }), 400, "system: it needs the template"),
        (json!({ "raw": true, "think": true }), 400, "think"),
        (json!({ "suffix": "x", "system": "be brief" }), 400, "beside suffix"),
        (json!({ "suffix": "x", "think": "high" }), 400, "think"),
        (json!({ "prompt": "", "suffix": "x" }), 400, "no marks"),
    ] {
        let answer = ask(more);
        assert_eq!(answer.status, status, "{answer:?}");
        let error = answer.json();
        assert!(error["error"].as_str().unwrap().contains(problem), "{error}");
    }
}

/// Clients send a context size with each request. A larger one than the loaded context causes a warning; a prompt that does not fit is
/// still refused.
#[test]
fn a_larger_context_is_told_and_the_reply_is_made() {
    let (served, strict) = (Served::new(), Served::strict());
    let told = "options.num_ctx: ignored: the model is loaded with a context of 1000 tokens: \
                `rooflight serve -c 1000000` sets it";
    for (path, text) in [("/api/generate", json!("once")), ("/api/chat", json!(null))] {
        let ask = |served: &Served, num_ctx: usize| {
            let messages = json!([{ "role": "user", "content": "once" }]);
            let options = json!({ "num_predict": 2, "num_ctx": num_ctx });
            let body = json!({ "model": "demo", "prompt": text, "messages": messages,
                               "options": options, "stream": false });
            let mut body = body.as_object().unwrap().clone();
            body.remove(if path == "/api/chat" { "prompt" } else { "messages" });
            served.post(path, &Value::Object(body))
        };
        let larger = ask(&served, 1_000_000);
        assert_eq!((larger.status, &larger.json()["warnings"]), (200, &json!([told])), "{path}");
        for fits in [0, 100, CONTEXT] {
            assert_eq!(ask(&served, fits).json().get("warnings"), None, "{path} {fits}");
            assert_eq!(ask(&strict, fits).status, 200, "{path} {fits}");
        }
        let refused = ask(&strict, 1_000_000);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("options.num_ctx: the model is loaded with"), "{refused:?}");
    }
    let long = json!({ "model": "demo", "prompt": "once ".repeat(2 * CONTEXT), "stream": false,
                       "options": { "num_ctx": 1_000_000 } });
    let refused = served.post("/api/generate", &long);
    assert!(refused.status == 400 && refused.body.contains("the context holds"), "{refused:?}");
}

/// Clients that decode responses into types list no models if a field is missing.
#[test]
fn all_fields_of_models_are_there() {
    let template = "{% if enable_thinking %}{% endif %}";
    let details = ModelDetails {
        parameters: 134_515_008,
        quantization: "Q4_1".into(),
        template: template.into(),
        license: "apache-2.0".into(),
        settings: vec![("temperature".into(), "0.6".into())],
        thinks: true,
        fills_holes: true,
        metadata: json!({ "qwen2.block_count": 2, "qwen2.context_length": 32768 })
            .as_object()
            .unwrap()
            .clone(),
    };
    let served = Served::providing(ServedModel {
        details: Arc::new(details),
        ..demo("demo", |model| model)
    });
    let details = json!({
        "parent_model": "", "format": "gguf", "family": "qwen2", "families": ["qwen2"],
        "parameter_size": "134.52M", "quantization_level": "Q4_1",
    });
    for list in ["/api/tags", "/api/ps"] {
        let model = &served.get(list).json()["models"][0];
        assert_eq!(model["details"], details, "{list}");
        for name in ["name", "model", "size", "digest"] {
            assert!(!model[name].is_null(), "{list}: {name}");
        }
    }
    let show = served.post("/api/show", &json!({ "model": "demo" })).json();
    assert_eq!(show["details"], details);
    assert_eq!(show["capabilities"], json!(["completion", "tools", "insert", "thinking"]));
    assert_eq!((&show["template"], &show["license"]), (&json!(template), &json!("apache-2.0")));
    assert!(show["parameters"].as_str().unwrap().starts_with("temperature "), "{show}");
    assert!(show["modelfile"].as_str().unwrap().contains("FROM demo"), "{show}");
    assert_eq!(show["modified_at"], "1970-01-01T00:00:07Z");
    let info = &show["model_info"];
    assert_eq!(info["qwen2.block_count"], 2);
    assert_eq!(info["general.parameter_count"], 134_515_008);
    assert_eq!(info["qwen2.context_length"], CONTEXT, "what conversations have here");
}

#[test]
fn what_there_is_is_listed() {
    let served = Served::new();
    let tags = served.get("/api/tags").json();
    assert_eq!(tags["models"][0]["name"], "demo");
    assert_eq!(tags["models"][0]["modified_at"], "1970-01-01T00:00:07Z");
    let loaded = served.get("/api/ps").json();
    assert_eq!(loaded["models"][0]["context_length"], CONTEXT);
    assert_eq!(loaded["models"][0]["expires_at"], "9999-12-31T23:59:59Z", "it stays");
    let show = served.post("/api/show", &json!({ "model": "demo" })).json();
    assert_eq!(show["model_info"]["general.architecture"], "qwen2");
    assert_eq!(show["capabilities"], json!(["completion", "tools"]));
    assert_eq!(tags["models"][0]["digest"].as_str().unwrap().len(), 64);
    assert_eq!(served.get("/").body, "Ollama is running");
    for body in [json!({ "model": "demo" }), json!({ "model": "demo", "keep_alive": 0 })] {
        assert_eq!(served.post("/api/generate", &body).json()["done_reason"], "load");
        assert_eq!(served.post("/api/chat", &body).json()["done_reason"], "load");
    }
    // VS Code requires at least 0.6.4, and reads digits and dots
    let version = served.get("/api/version").json()["version"].clone();
    let numbers: Vec<u32> =
        version.as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    assert!(numbers >= vec![0, 6, 4], "{version}");
    assert_eq!(served.post("/api/show", &json!({ "model": "x" })).status, 404);
}

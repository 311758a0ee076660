//! `/openapi.json`: what it says is what is done.

use serde_json::{Value, json};

use crate::client::{Served, head};

#[test]
fn what_is_told_of_the_endpoints_is_true() {
    let (served, strict) = (Served::new(), Served::strict());
    let told = served.get("/openapi.json").json();
    assert_eq!(told["openapi"], "3.1.0");
    let paths = told["paths"].as_object().unwrap();
    let has = |path: &str, method: &str| paths[path][method].is_object();
    assert!(
        has("/v1/chat/completions", "post") && has("/api/tags", "get") && has("/health", "get")
    );
    for (path, methods) in paths {
        let path = path.replace("{id}", "demo");
        if methods["get"].is_object() {
            assert_eq!(served.get(&path).status, 200, "{path}");
            // of another model there is nothing, where one can be named
            let names = methods.pointer("/get/parameters/0/in") == Some(&json!("query"));
            let other = served.get(&format!("{path}?model=other")).status;
            assert_eq!(other, if names { 404 } else { 200 }, "{path}");
        }
        let schema = methods.pointer("/post/requestBody/content/application~1json/schema");
        let Some(schema) = schema else { continue };
        let unknown = |served: &Served, name: &str, value: &Value| {
            let mut body = json!({});
            body[name] = value.clone();
            let answer = served.post(&path, &body);
            assert!(answer.status < 500, "{path} {body}: {answer:?}");
            answer.body.contains("unknown field")
        };
        assert_eq!(schema["additionalProperties"], true);
        let said = "Content-Type: text/plain\r\nContent-Length: 2\r\n";
        let refusal = served.send((head("POST", &path, said) + "{}").as_bytes());
        let responses = methods["post"]["responses"].as_object().unwrap();
        assert!(refusal.status == 415 && responses.contains_key("415"), "{path}: {refusal:?}");
        assert!(["404", "413", "500"].iter().all(|code| responses.contains_key(*code)), "{path}");
        assert!(unknown(&strict, "no_field_at_all", &json!(1)), "{path}");
        for (name, field) in schema["properties"].as_object().unwrap() {
            // whatever else is wrong with the request: it knows the field
            let value = field.pointer("/enum/0").cloned().unwrap_or(json!(1));
            assert!(!unknown(&strict, name, &value), "{path}: {name}");
        }
    }
    let told = strict.get("/openapi.json").json();
    let schemas = told["paths"].as_object().unwrap().values();
    let schemas = schemas.filter_map(|methods| methods.pointer("/post/requestBody/content"));
    for schema in schemas {
        assert_eq!(schema["application/json"]["schema"]["additionalProperties"], false);
    }
    // all that are documented are there
    let chat = &paths["/v1/chat/completions"]["post"];
    let chat = &chat["requestBody"]["content"]["application/json"]["schema"]["properties"];
    for name in ["messages", "temperature", "top_k", "tools", "response_format", "seed"] {
        assert!(chat[name].is_object(), "{name}");
    }
    assert!(chat["user"]["description"].as_str().unwrap().contains("Without effect"));
}

//! Schemas of replies and of tools in every API: which field an error names, and what becomes of keywords that are not enforced.

use serde_json::{Value, json};

use crate::client::{Answer, Served};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const OLLAMA: &str = "/api/chat";
const COMPLETION: &str = "/completion";

/// Returns the body of a request to this path, with these fields.
fn body(path: &str, more: &Value) -> Value {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let mut body = match path {
        RESPONSES => json!({ "input": "hi", "max_output_tokens": 1 }),
        COMPLETION => json!({ "prompt": "hi", "n_predict": 1 }),
        OLLAMA => {
            json!({ "model": "demo", "messages": messages, "stream": false, "options": { "num_predict": 1 } })
        }
        _ => json!({ "messages": messages, "max_tokens": 1 }),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns the message of an error, and its field in the APIs that have one.
fn error(answer: &Answer) -> (String, Option<String>) {
    let error = &answer.json()["error"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let message = text(&error["message"]).or(text(error)).unwrap();
    (message, text(&error["param"]))
}

/// Each field that may have a schema, in the words of each API: its path, and a request with this schema. `strict`: whether the request
/// asks for strictness; `None` where the API has no such field.
fn places(schema: &Value, strict: bool) -> Vec<(&'static str, Value, &'static str, Option<bool>)> {
    let chat = |strict: bool| json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": strict } });
    let flat = json!({ "type": "json_schema", "name": "n", "schema": schema, "strict": strict });
    let config = json!({ "format": { "type": "json_schema", "schema": schema } });
    let function = json!({ "type": "function", "function": { "name": "f", "parameters": schema, "strict": strict } });
    let bare = json!({ "type": "function", "name": "f", "parameters": schema, "strict": strict });
    let own = json!({ "name": "f", "input_schema": schema, "strict": strict });
    let other = json!({ "type": "web_search" });
    let asked = Some(strict);
    vec![
        (CHAT, json!({ "response_format": chat(strict) }), "response_format", asked),
        (CHAT, json!({ "json_schema": schema }), "json_schema", None),
        (CHAT, json!({ "guided_json": schema }), "guided_json", None),
        (
            CHAT,
            json!({ "structured_outputs": { "json": schema } }),
            "structured_outputs.json",
            None,
        ),
        (RESPONSES, json!({ "text": { "format": flat } }), "text.format.schema", asked),
        (MESSAGES, json!({ "output_config": config }), "output_config.format.schema", None),
        (OLLAMA, json!({ "format": schema }), "format", None),
        (COMPLETION, json!({ "json_schema": schema }), "json_schema", None),
        (CHAT, json!({ "tools": [function] }), "tools[0].function.parameters", asked),
        (CHAT, json!({ "tools": [other, function] }), "tools[1].function.parameters", asked),
        (RESPONSES, json!({ "tools": [bare] }), "tools[0].parameters", asked),
        (MESSAGES, json!({ "tools": [own] }), "tools[0].input_schema", asked),
        (OLLAMA, json!({ "tools": [function] }), "tools[0].function.parameters", asked),
    ]
}

#[test]
fn errors_about_schemas_and_grammars_name_their_field() {
    let served = Served::new();
    // a schema of an object, because tools have no other
    let never = json!({ "type": "object", "properties": { "a": { "type": "nothing" } }, "required": ["a"] });
    let mut all: Vec<(&str, Value, &str)> = places(&never, true)
        .into_iter()
        .map(|(path, more, field, _)| (path, more, field))
        .collect();
    let (grammar, regex) = ("root ::= missing", "(");
    all.extend([
        (CHAT, json!({ "grammar": grammar }), "grammar"),
        (COMPLETION, json!({ "grammar": grammar }), "grammar"),
        (CHAT, json!({ "guided_grammar": grammar }), "guided_grammar"),
        (CHAT, json!({ "guided_regex": regex }), "guided_regex"),
        (CHAT, json!({ "structured_outputs": { "regex": regex } }), "structured_outputs.regex"),
        (CHAT, json!({ "structured_outputs": { "regex": 3 } }), "structured_outputs.regex"),
        (CHAT, json!({ "response_format": { "type": "yaml" } }), "response_format"),
        (CHAT, json!({ "response_format": { "type": "json_schema" } }), "response_format"),
        (CHAT, json!({ "grammar": "root ::= \"a\"", "json_schema": {} }), "json_schema"),
        (CHAT, json!({ "tools": [{ "name": "f", "parameters": 3 }] }), "tools[0].parameters"),
        (RESPONSES, json!({ "text": { "format": { "type": "yaml" } } }), "text.format"),
    ]);
    for (path, more, field) in all {
        let answer = served.post(path, &body(path, &more));
        assert_eq!(answer.status, 400, "{path} {more}: {answer:?}");
        let (message, param) = error(&answer);
        assert!(message.starts_with(&format!("{field}: ")), "{path} {more}: {message}");
        let has_param = ![MESSAGES, OLLAMA].contains(&path);
        assert_eq!(param.as_deref(), has_param.then_some(field), "{path} {more}");
    }
}

/// Without `strict: true`, keywords that are not enforced are named in `warnings`, and the rest is enforced. With it, and by a server with
/// `--strict`, the request is refused, and the error names the keyword.
#[test]
fn keywords_that_are_not_enforced_are_told_or_refused_where_strict() {
    let (served, strict) = (Served::new(), Served::strict());
    let list = json!({ "type": "array", "items": { "enum": [1, 2] }, "uniqueItems": true });
    let schema = json!({ "type": "object", "properties": { "a": list }, "required": ["a"], "additionalProperties": false });
    const TOLD: &str = "uniqueItems is not enforced";
    for (path, more, field, _) in places(&schema, false) {
        let answer = served.post(path, &body(path, &more));
        assert_eq!(answer.status, 200, "{path} {more}: {answer:?}");
        let warnings = answer.json()["warnings"].clone();
        let place = if field.starts_with("tools") { "tools" } else { field };
        let told = json!(format!("{place}: {TOLD}"));
        assert!(warnings.as_array().unwrap().contains(&told), "{path} {more}: {warnings}");
        if !more.to_string().contains("web_search") {
            let refused = strict.post(path, &body(path, &more));
            assert_eq!(refused.status, 400, "{path} {more}: {refused:?}");
            let (message, _) = error(&refused);
            assert!(message.starts_with(field) && message.contains(TOLD), "{path}: {message}");
        }
    }
    for (path, more, field, asks) in places(&schema, true) {
        let answer = served.post(path, &body(path, &more));
        let refuses = asks == Some(true);
        assert_eq!(answer.status == 400, refuses, "{path} {more}: {answer:?}");
        if refuses {
            let (message, _) = error(&answer);
            assert!(message.starts_with(field) && message.contains(TOLD), "{path}: {message}");
        }
    }
    // the other keywords are enforced
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    let asked =
        json!({ "response_format": format, "max_tokens": 60, "seed": 3, "temperature": 1.5 });
    let reply = served.post(CHAT, &body(CHAT, &asked)).json();
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("{\"a\": ["), "{text}");
}

/// Warnings about fields and about schemas are bounded together, and a last line counts all others.
#[test]
fn warnings_of_several_sources_are_bounded_together() {
    let served = Served::new();
    let part = |i: usize| json!({ "type": "string", "format": format!("f{i}") });
    let schema = json!({ "anyOf": (0..20).map(part).collect::<Vec<_>>() });
    let mut asked = json!({ "json_schema": schema });
    (0..10).for_each(|i| asked[format!("field{i}")] = json!(1));
    let answer = served.post(CHAT, &body(CHAT, &asked)).json();
    let warnings = answer["warnings"].as_array().unwrap();
    assert_eq!((warnings.len(), &warnings[16]), (17, &json!("14 more warnings")), "{warnings:?}");
    assert_eq!(warnings[10], "json_schema: format \"f0\" is not enforced");
}

/// Properties that a schema does not declare are allowed unless it says `additionalProperties: false`, with and without `strict: true`.
#[test]
fn schemas_that_do_not_close_objects_leave_them_open() {
    let served = Served::new();
    let tokenizer = served.format.tokenizer();
    let brace = tokenizer.encode("}").unwrap();
    let schema = json!({ "type": "object", "properties": {} });
    for strict in [true, false] {
        let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": strict } });
        // a reply that would end is not allowed to
        let bias: Vec<Value> = brace.iter().map(|id| json!([id, -100])).collect();
        let asked = json!({ "response_format": format, "max_tokens": 8, "logit_bias": bias });
        let reply = served.post(CHAT, &body(CHAT, &asked)).json();
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.starts_with("{\""), "an undeclared property begins: {text}");
    }
}

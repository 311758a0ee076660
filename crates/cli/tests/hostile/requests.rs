//! Requests that once ended a server, or exhausted its memory or its threads.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A request.
pub(crate) struct Hostile {
    pub(crate) name: String,
    pub(crate) path: &'static str,
    pub(crate) body: String,
}

impl Hostile {
    fn new(name: &str, path: &'static str, body: &Value) -> Hostile {
        Hostile { name: name.to_owned(), path, body: body.to_string() }
    }
}

const CHAT: &str = "/v1/chat/completions";

/// A chat with these fields.
fn chat(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 4 });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body
}

/// Definitions `d0` to `dN`, each of which refers to the next as `refer` says. The last one is null.
fn chain(n: usize, refer: impl Fn(Value) -> Value) -> Map<String, Value> {
    let one = |i: usize| {
        let next = json!({ "$ref": format!("#/$defs/d{}", i + 1) });
        (format!("d{i}"), refer(next))
    };
    (0..n).map(one).chain([(format!("d{n}"), json!({ "type": "null" }))]).collect()
}

/// A chain of references without anything nested.
pub(crate) fn ref_chain() -> Hostile {
    let schema = json!({
        "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": chain(7_000, |next| next),
    });
    Hostile::new("ref chain", CHAT, &chat(&json!({ "json_schema": schema })))
}

/// Rules or terminals `NAME0` to `NAMEn`, each of which is the next. The last one is `"a"`.
fn rules(name: &str, is: &str, n: usize) -> String {
    let mut text = String::new();
    for i in 0..n {
        let _ = writeln!(text, "{name}{i}{is} {name}{}", i + 1);
    }
    text + &format!("{name}{n}{is} \"a\"\n")
}

/// Grammars and schemas that are deep or long without brackets.
pub(crate) fn deep_forms() -> Vec<Hostile> {
    let grammar =
        |name: &str, text: String| Hostile::new(name, CHAT, &chat(&json!({ "grammar": text })));
    let schema = |name: &str, schema: Value| {
        Hostile::new(name, CHAT, &chat(&json!({ "json_schema": schema })))
    };
    let referred = |n: usize, refer: fn(Value) -> Value| json!({ "anyOf": [{ "$ref": "#/$defs/d0" }], "$defs": chain(n, refer) });
    let words = |n: usize| (0..n).map(|i| format!("a{i}")).collect::<Vec<_>>().join("|");
    let pattern = |i: usize| (format!("^{}$", "a".repeat(i)), json!({ "type": "integer" }));
    vec![
        grammar("rules in a chain", format!("start: r0\n{}", rules("r", ":", 15_000))),
        grammar("terminals in a chain", format!("start: T0\n{}", rules("T", ":", 15_000))),
        grammar("GBNF rules in a chain", format!("root ::= r0\n{}", rules("r", " ::=", 10_000))),
        grammar("~~~", format!("start: T\nT: {}/a/\n", "~".repeat(100_000))),
        grammar("~ ~ ~", format!("start: T\nT: {}/a/\n", "~ ".repeat(100_000))),
        grammar("&", format!("start: T\nT: {}\n", ["/a/"; 40_000].join(" & "))),
        grammar("|", format!("start: {}\n", ["\"a\""; 40_000].join(" | "))),
        grammar("GBNF |", format!("root ::= {}\n", ["\"a\""; 40_000].join(" | "))),
        grammar("sequence", format!("start: {}\n", ["\"a\""; 40_000].join(" "))),
        grammar("???", format!("start: \"a\"{}\n", "?".repeat(100_000))),
        grammar("+ + +", format!("start: \"a\"{}\n", " +".repeat(100_000))),
        grammar("regex ???", format!("start: /a{}/\n", "?".repeat(100_000))),
        grammar("regex |", format!("start: /{}/\n", ["a"; 100_000].join("|"))),
        grammar("regex of words", format!("start: /{}/\n", words(30_000))),
        grammar("regex a?a?a?", format!("start: /{}/\n", "a?".repeat(100_000))),
        schema("references through anyOf", {
            referred(3_500, |next| json!({ "anyOf": [next, { "type": "null" }] }))
        }),
        schema("references through items", {
            referred(3_800, |next| json!({ "type": "array", "items": next }))
        }),
        schema("references through properties", {
            referred(2_600, |next| json!({ "type": "object", "properties": { "a": next } }))
        }),
        schema("references through allOf", referred(4_800, |next| json!({ "allOf": [next] }))),
        schema("pattern of words", json!({ "type": "string", "pattern": words(30_000) })),
        schema("patternProperties", {
            let all: Map<String, Value> = (1..600).map(pattern).collect();
            json!({ "type": "object", "patternProperties": all })
        }),
        schema("enum", json!({ "enum": (0..700).map(|i| "a".repeat(i)).collect::<Vec<_>>() })),
    ]
}

/// A deep schema by every field that takes one.
pub(crate) fn deep_tools() -> Vec<Hostile> {
    let schema = json!({
        "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } },
        "$defs": chain(2_600, |next| json!({ "type": "object", "properties": { "a": next } })),
    });
    let said = json!([{ "role": "user", "content": "x" }]);
    let model = "rooflight-demo";
    let form = json!({ "format": { "type": "json_schema", "name": "x", "schema": schema } });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": schema } });
    let named = json!({ "name": "f", "input_schema": schema });
    vec![
        Hostile::new("tools", CHAT, &chat(&json!({ "tools": [tool] }))),
        Hostile::new(
            "tools that are counted",
            "/v1/messages/count_tokens",
            &json!({ "model": model, "messages": said, "tools": [named] }),
        ),
        Hostile::new(
            "output_config",
            "/v1/messages",
            &json!({ "model": model, "messages": said, "max_tokens": 2, "output_config": form }),
        ),
        Hostile::new(
            "format",
            "/api/chat",
            &json!({ "model": model, "messages": said, "format": schema, "stream": false }),
        ),
        Hostile::new(
            "text.format",
            "/v1/responses",
            &json!({ "input": "x", "max_output_tokens": 2, "text": form }),
        ),
    ]
}

/// Multiples whose automata have millions of states.
pub(crate) fn multiple_of() -> Vec<Hostile> {
    let primes: Vec<Value> =
        [7, 11, 13, 17, 19, 23].iter().map(|n| json!({ "multipleOf": n })).collect();
    let schemas = [
        ("multipleOf", json!({ "type": "integer", "multipleOf": 99_999_989 })),
        ("multipleOf in allOf", json!({ "type": "integer", "allOf": primes })),
    ];
    let body = |schema| chat(&json!({ "json_schema": schema }));
    schemas.into_iter().map(|(name, schema)| Hostile::new(name, CHAT, &body(schema))).collect()
}

/// Tools, each of which takes long to compile.
pub(crate) fn tools_compile(n: usize) -> Hostile {
    // a pattern is not refused by its size, and its automaton is large
    let slow = json!({ "type": "string", "pattern": "^(a|b)*a(a|b){14}$" });
    let parameters = json!({ "type": "object", "properties": { "x": slow }, "required": ["x"] });
    let tool = |i| json!({ "type": "function", "function": { "name": format!("f{i}"), "parameters": parameters } });
    let tools: Vec<Value> = (0..n).map(tool).collect();
    Hostile::new("tools that compile slowly", CHAT, &chat(&json!({ "tools": tools })))
}

/// Optional properties within each other, for a model that writes calls between braces.
pub(crate) fn tool_braces(properties: usize, depth: usize) -> Hostile {
    let text = || json!({ "type": "string" });
    let mut inner = text();
    for _ in 0..depth {
        let mut all: Map<String, Value> =
            (1..properties).map(|i| (format!("a{i}"), text())).collect();
        all.insert("z".to_owned(), inner);
        inner = json!({ "type": "object", "properties": all });
    }
    let parameters = json!({ "type": "object", "properties": { "x": inner } });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": parameters } });
    Hostile::new("braces", CHAT, &chat(&json!({ "tools": [tool] })))
}

/// A query of many tokens beside many documents.
pub(crate) fn rerank_query(bytes: usize) -> Hostile {
    let query = "a b c d ".repeat(bytes / 8);
    let body = json!({ "query": query, "documents": vec!["x"; 2_048] });
    Hostile::new("rerank query", "/v1/rerank", &body)
}

/// Results of tools that belong to none of as many calls.
pub(crate) fn tool_results(n: usize) -> Hostile {
    let call = json!({ "id": "a", "function": { "name": "a", "arguments": {} } });
    let result = json!({ "role": "tool", "content": "", "tool_call_id": "b" });
    let mut messages = vec![
        json!({ "role": "user", "content": "x" }),
        json!({ "role": "assistant", "content": "", "tool_calls": vec![call; n] }),
    ];
    messages.extend(vec![result; n]);
    Hostile::new("tool results", CHAT, &json!({ "messages": messages, "max_tokens": 1 }))
}

/// A long text to be taken apart into tokens with their texts.
pub(crate) fn tokenize_pieces(bytes: usize) -> Hostile {
    let content = "\u{4e00}\u{4e8c}!~".repeat(bytes / 8);
    Hostile::new("tokenize", "/tokenize", &json!({ "content": content, "with_pieces": true }))
}

/// Small objects in a field that means nothing.
pub(crate) fn json_small_objects(bytes: usize) -> Hostile {
    let items = vec![json!({ "a": 0 }); bytes / 8];
    Hostile::new("small objects", CHAT, &chat(&json!({ "metadata": items })))
}

/// The same biases written in many ways.
pub(crate) fn logit_bias(bytes: usize) -> Hostile {
    let mut biases = String::new();
    let mut zeros = String::new();
    while biases.len() < bytes {
        zeros.push('0');
        for id in 0..4_000 {
            let _ = write!(biases, "\"{zeros}{id}\":0.001,");
        }
    }
    biases.pop();
    let body = format!(
        "{{\"prompt\":\"x\",\"n_predict\":300,\"ignore_eos\":true,\"stream\":true,\"logit_bias\":{{{biases}}}}}"
    );
    Hostile { name: "biases".to_owned(), path: "/completion", body }
}

/// Requests that the server refuses before it allocates much memory, for use among other requests.
pub(crate) fn small() -> Vec<Hostile> {
    let mut all = vec![ref_chain()];
    all.extend(multiple_of());
    all.extend(deep_tools());
    all.extend(deep_forms().into_iter().take(3));
    all
}

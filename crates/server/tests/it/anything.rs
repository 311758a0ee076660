//! Bodies of any kind, to all endpoints that there are: each is answered or refused, and none breaks anything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use crate::client::{Kept, Served};

/// Where bodies are sent, and the names that are known there.
type Endpoints = Arc<Vec<(String, Vec<String>)>>;

/// All that the server tells of itself.
fn endpoints(served: &Served) -> Endpoints {
    let told = served.get("/openapi.json").json();
    let paths = told["paths"].as_object().unwrap();
    let names = |methods: &Value| {
        let schema =
            methods.pointer("/post/requestBody/content/application~1json/schema/properties");
        Some(schema?.as_object()?.keys().cloned().collect::<Vec<String>>())
    };
    let all = paths.iter().filter_map(|(path, methods)| Some((path.clone(), names(methods)?)));
    Arc::new(all.collect())
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2i64..9).prop_map(Value::from),
        (-2.0..2.0).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[a-z]{1,9}".prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
    ]
}

/// Words that mean something somewhere.
const WORDS: &[&str] = &[
    "auto",
    "none",
    "required",
    "demo",
    "json",
    "text",
    "user",
    "system",
    "assistant",
    "tool",
    "base64",
    "float",
    "enabled",
    "low",
    "high",
    "5m",
    "-1",
    "disabled",
    "<|im_start|>",
    "\u{0}",
    "\u{1b}]0;x\u{7}",
    "é\u{301}😀",
];

/// JSON of any shape.
fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(
                (prop_oneof![Just("type".to_owned()), "[a-z_]{1,8}"], inner),
                0..4
            )
            .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        3 => ".{0,20}".prop_map(Value::from),
        1 => Just(json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }])),
        1 => value(),
    ];
    let role =
        prop::sample::select(&["user", "assistant", "system", "tool", "developer", "king"][..]);
    let more = prop::option::weighted(0.2, value());
    (role, content, more).prop_map(|(role, content, more)| {
        let mut message = json!({ "role": role, "content": content });
        if let Some(more) = more {
            message["tool_calls"] = json!([{ "id": "a", "type": "function", "function": more }]);
        }
        message
    })
}

fn schema() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "type": "object" })),
        Just(json!({ "type": "object", "properties": { "a": { "$ref": "#" } } })),
        Just(json!({ "type": "array", "items": { "type": "integer" }, "maxItems": 2 })),
        Just(json!({ "enum": ["a", 1, null] })),
        Just(json!({ "type": "string", "pattern": "^(a|b)+$", "maxLength": 4 })),
        value().prop_map(|inner| json!({ "type": "object", "properties": { "a": inner } })),
        value(),
    ]
}

/// What a field of this name may have: something that it means, or anything.
fn of_name(name: &str) -> BoxedStrategy<Value> {
    let meant: BoxedStrategy<Value> = match name {
        "messages" | "input" => prop::collection::vec(message(), 0..4).prop_map(Value::from).boxed(),
        "tools" => schema()
            .prop_map(|schema| json!([{ "type": "function", "name": "f", "input_schema": schema,
                "function": { "name": "f", "parameters": schema } }]))
            .boxed(),
        "json_schema" | "format" => schema().boxed(),
        "response_format" => schema()
            .prop_map(|schema| json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }))
            .boxed(),
        "grammar" => prop::sample::select(&["root ::= \"a\"", "start: /a+/", "root ::= root", "\u{0}"][..])
            .prop_map(Value::from)
            .boxed(),
        "options" => prop::collection::vec((prop::sample::select(OPTIONS), leaf()), 0..4)
            .prop_map(|fields| {
                Value::from(fields.into_iter().map(|(name, v)| (name.to_owned(), v)).collect::<Map<_, _>>())
            })
            .boxed(),
        "stop" | "stop_sequences" => prop::collection::vec("[a-z ]{0,3}", 0..18).prop_map(Value::from).boxed(),
        "tokens" => prop::collection::vec(-1i64..700, 0..6).prop_map(Value::from).boxed(),
        "logit_bias" => (0u32..700, -101.0..101.0).prop_map(|(id, bias)| json!({ id.to_string(): bias })).boxed(),
        "model" => prop::sample::select(&["demo", "demo:latest", "DEMO", "other", ""][..]).prop_map(Value::from).boxed(),
        "n" | "n_predict" | "max_tokens" | "num_predict" | "logprobs" | "top_logprobs" | "dimensions" | "top_n" => {
            (-2i64..12).prop_map(Value::from).boxed()
        }
        "documents" => prop::collection::vec(".{0,12}", 0..4).prop_map(Value::from).boxed(),
        _ => leaf().boxed(),
    };
    prop_oneof![4 => meant, 1 => value()].boxed()
}

const OPTIONS: &[&str] = &[
    "num_predict",
    "num_ctx",
    "seed",
    "stop",
    "temperature",
    "top_k",
    "mirostat",
    "repeat_last_n",
    "typical_p",
    "num_gpu",
];

/// What is answered, if nothing is wrong with what else is said.
fn usual(path: &str) -> Value {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    match path {
        "/v1/chat/completions" | "/v1/messages" => json!({ "messages": messages, "max_tokens": 2 }),
        "/v1/completions" | "/completion" | "/completions" => {
            json!({ "prompt": "hi", "max_tokens": 2 })
        }
        "/v1/responses" => json!({ "input": "hi", "max_output_tokens": 2 }),
        "/api/chat" => {
            json!({ "model": "demo", "messages": messages, "options": { "num_predict": 2 }, "stream": false })
        }
        "/api/generate" => {
            json!({ "model": "demo", "prompt": "hi", "options": { "num_predict": 2 } })
        }
        "/api/embeddings" => json!({ "model": "demo", "prompt": "hi" }),
        "/v1/embeddings" | "/api/embed" => json!({ "model": "demo", "input": "hi" }),
        "/v1/rerank" | "/rerank" => json!({ "query": "hi", "documents": ["a", "b"] }),
        "/infill" => json!({ "input_prefix": "a", "input_suffix": "b", "n_predict": 2 }),
        "/tokenize" => json!({ "content": "hi" }),
        "/detokenize" => json!({ "tokens": [1, 2] }),
        "/api/show" | "/api/pull" => json!({ "model": "demo" }),
        _ => json!({ "messages": messages }),
    }
}

/// Values of some hundred kilobytes, or of great depth: of each kind that JSON has.
fn large() -> impl Strategy<Value = Value> {
    let n = 1_000usize..30_000;
    prop_oneof![
        n.clone().prop_map(|n| Value::from("a tale \u{e9}".repeat(n))),
        n.clone().prop_map(|n| Value::from(vec![7; n])),
        n.clone().prop_map(|n| Value::from(vec![json!({ "type": "text", "text": "a" }); n / 4])),
        n.clone().prop_map(|n| Value::from(vec![json!({ "role": "user", "content": "a" }); n / 8])),
        n.clone().prop_map(|n| (0..n).map(|i| (format!("key {i}"), json!(i))).collect()),
        n.clone().prop_map(|n| Value::from(vec![""; n])),
        // the deepest that is read, and deeper
        (100usize..140).prop_map(|n| (0..n).fold(json!(1), |inner, _| json!([inner]))),
        (100usize..140).prop_map(|n| (0..n).fold(json!(1), |inner, _| json!({ "items": inner }))),
    ]
}

/// A request: where to, and its bytes.
#[derive(Clone, Debug)]
struct Sent {
    path: String,
    body: Vec<u8>,
}

/// What would be answered but for a few fields; now and then not even JSON.
fn request(endpoints: &Endpoints) -> impl Strategy<Value = Sent> + use<> {
    let endpoints = Arc::clone(endpoints);
    let each = prop::sample::select(endpoints.to_vec()).prop_flat_map(|(path, names)| {
        let all_names = names.clone();
        let known = prop::sample::select(names);
        let name = prop_oneof![20 => known, 1 => "[a-z_]{1,9}"];
        let field = name.prop_flat_map(|name| (Just(name.clone()), of_name(&name)));
        let names = all_names.clone();
        let fields = prop::collection::vec(field, 0..4);
        let large = prop::option::weighted(0.03, (prop::sample::select(names), large()));
        let bytes = prop::option::weighted(
            0.05,
            (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()),
        );
        (Just(path), fields, large, bytes)
    });
    each.prop_map(|(path, fields, large, bytes)| {
        let mut body = usual(&path);
        for (name, value) in fields.into_iter().chain(large) {
            body[&name] = value;
        }
        let mut body = body.to_string().into_bytes();
        if let Some((at, byte, cut)) = bytes {
            let at = at.index(body.len());
            match cut {
                true => body.truncate(at),
                false => body[at] = byte,
            }
        }
        Sent { path: path.replace("{id}", "0"), body }
    })
}

/// Bytes of a body from which on it counts as large.
const LARGE: usize = 20_000;

/// What came of many requests.
#[derive(Default)]
struct Seen {
    /// How often each status came.
    statuses: BTreeMap<u16, usize>,
    /// How many bodies were large.
    large: usize,
}

/// Sends so many, or as many as there is time for; what came of them.
fn try_all(endpoints: &Endpoints, servers: &[&Served], cases: u32, most_seconds: u64) -> Seen {
    let seen = RefCell::new(Seen::default());
    let kept: Vec<RefCell<Kept>> =
        servers.iter().map(|served| RefCell::new(Kept::of(served))).collect();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let start = Instant::now();
    let ran = TestRunner::new(config).run(&request(endpoints), |sent| {
        if start.elapsed().as_secs() > most_seconds {
            return Ok(());
        }
        for kept in &kept {
            let answer = kept.borrow_mut().post(&sent.path, &sent.body);
            let told = || {
                let (begin, n) = (&sent.body[..sent.body.len().min(2_000)], sent.body.len());
                format!("{} {} ({n} bytes): {answer:?}", sent.path, String::from_utf8_lossy(begin))
            };
            let mut seen = seen.borrow_mut();
            *seen.statuses.entry(answer.status).or_default() += 1;
            seen.large += usize::from(sent.body.len() > LARGE);
            drop(seen);
            let refused = matches!(answer.status, 400..500 | 503);
            if !refused && answer.status != 200 {
                return Err(TestCaseError::fail(told()));
            }
            let json: Value = match serde_json::from_str(&answer.body) {
                Ok(json) if refused => json,
                _ if refused => return Err(TestCaseError::fail(told())),
                _ => continue,
            };
            let message =
                json["error"]["message"].as_str().or(json["error"].as_str()).unwrap_or_default();
            if message.is_empty() || message.contains('\n') || message.len() > 600 {
                return Err(TestCaseError::fail(told()));
            }
        }
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    seen.into_inner()
}

/// Memory that this process has now; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .map_or(0, |kb: u64| kb << 10)
}

/// `ROOFLIGHT_BODIES=1000000` tries so many.
#[test]
fn any_body_is_answered_or_refused() {
    let bodies = std::env::var("ROOFLIGHT_BODIES").ok().map(|n| n.parse::<usize>().unwrap());
    // replies are short: what is tried is how requests are read
    let served = Served::small();
    let vectors = Served::reading("bert-mean");
    let ranks = Served::reading("qwen3-reranker");
    let all = endpoints(&served);
    assert!(all.len() > 15, "{all:?}");
    let reads = |path: &str| ["embed", "rerank"].iter().any(|word| path.contains(word));
    let reading: Endpoints =
        Arc::new(all.iter().filter(|(path, _)| reads(path)).cloned().collect());
    let start = Instant::now();
    const THREADS: usize = 4;
    let n = bodies.unwrap_or(6000);
    let part = |n: usize| u32::try_from(n / THREADS).unwrap();
    let most = if bodies.is_some() { u64::MAX } else { 60 };
    let mut seen = Seen::default();
    let before = resident_bytes();
    std::thread::scope(|scope| {
        // a tenth of them to models that read texts, each to both
        let writes =
            (0..THREADS).map(|_| scope.spawn(|| try_all(&all, &[&served], part(n * 9 / 10), most)));
        let read = (0..THREADS)
            .map(|_| scope.spawn(|| try_all(&reading, &[&vectors, &ranks], part(n / 20), most)));
        let threads: Vec<_> = writes.chain(read).collect();
        for thread in threads {
            let part = thread.join().unwrap();
            seen.large += part.large;
            for (status, n) in part.statuses {
                *seen.statuses.entry(status).or_default() += n;
            }
        }
    });
    let Seen { statuses: seen, large } = seen;
    let tried: usize = seen.values().sum();
    let rate = tried as f64 / start.elapsed().as_secs_f64();
    eprintln!(
        "bodies: {tried} to {} endpoints, {large} large, {rate:.0} a second: {seen:?}",
        all.len()
    );
    // a machine that is slow tries fewer: so many it always has time for
    assert!(tried >= n / 4, "only {tried} of {n} bodies were tried in {most} s");
    assert!(large > tried / 100, "{large} of {tried} bodies were large");
    // both happen
    assert!(seen[&200] > 20 && seen[&400] > 20, "{seen:?}");
    let (after, most) = (resident_bytes(), 512 << 20);
    eprintln!("memory of this process: {before} bytes before, {after} after");
    assert!(after < before + most, "{before} bytes before, {after} after: bodies stay in memory");
    for served in [&served, &vectors, &ranks] {
        assert_eq!(served.get("/health").status, 200);
    }
}

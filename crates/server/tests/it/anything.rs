//! Bodies of any kind: each is answered or refused, and none breaks anything.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::client::Served;

/// Names that some endpoint knows, and one that none does.
const NAMES: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "content",
    "tokens",
    "stream",
    "stream_options",
    "n",
    "seed",
    "stop",
    "logit_bias",
    "response_format",
    "json_schema",
    "grammar",
    "ignore_eos",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repeat_last_n",
    "mirostat",
    "dry_multiplier",
    "reasoning_effort",
    "logprobs",
    "tools",
    "echo",
    "user",
    "return_progress",
    "min_keep",
    "typical_p",
    "nonsense",
];

/// Where they are sent.
const PATHS: &[&str] =
    &["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2i64..9).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!({ "type": "json_object" })),
        Just(json!({ "type": "object", "properties": { "a": { "$ref": "#" } } })),
        Just(json!([{ "role": "user", "content": "hi" }])),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,8}", inner), 0..3)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// What would be answered, but for a few fields.
fn request() -> impl Strategy<Value = (&'static str, Value)> {
    let fields = prop::collection::vec((prop::sample::select(NAMES), value()), 0..3);
    (prop::sample::select(PATHS), fields).prop_map(|(path, fields)| {
        let mut body = match path {
            "/v1/chat/completions" => {
                json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 })
            }
            "/v1/completions" => json!({ "prompt": "hi", "max_tokens": 2 }),
            "/tokenize" => json!({ "content": "hi" }),
            "/detokenize" => json!({ "tokens": [1, 2] }),
            _ => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
        };
        for (name, value) in fields {
            body[name] = value;
        }
        (path, body)
    })
}

#[test]
fn any_body_is_answered_or_refused() {
    let served = Served::new();
    let mut seen = std::collections::BTreeMap::<u16, usize>::new();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let seen_so_far = std::cell::RefCell::new(&mut seen);
    runner
        .run(&request(), |(path, body)| {
            let answer = served.post(path, &body);
            *seen_so_far.borrow_mut().entry(answer.status).or_default() += 1;
            prop_assert!(
                matches!(answer.status, 200 | 400 | 404),
                "{} {}: {:?}",
                path,
                body,
                answer
            );
            if answer.status != 200 {
                let message =
                    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
                prop_assert!(
                    !message.is_empty() && !message.contains('\n'),
                    "{} {}: {}",
                    path,
                    body,
                    message
                );
            }
            Ok(())
        })
        .unwrap();
    // both happen
    assert!(seen[&200] > 20 && seen[&400] > 20, "{seen:?}");
    assert_eq!(served.get("/health").status, 200);
}

//! `/infill`, as editors send it.

use std::sync::Arc;

use engine::ModelFormat;
use gguf::Gguf;
use rooflight_server::ServedModel;
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, InfillMarks, Tokenizer};

use crate::client::{CONTEXT, Served, demo};

const MARKS: InfillMarks =
    InfillMarks { prefix: 1, suffix: 2, middle: 3, repository: Some(4), file: Some(5) };

/// A model that was taught to fill holes, if only of files where it says so.
fn served(files: bool) -> Served {
    let file = conformance::demo_gguf_with(|writer| {
        writer
            .set("tokenizer.ggml.fim_pre_token_id", MARKS.prefix)
            .set("tokenizer.ggml.fim_suf_token_id", MARKS.suffix)
            .set("tokenizer.ggml.fim_mid_token_id", MARKS.middle);
        if files {
            writer
                .set("tokenizer.ggml.fim_rep_token_id", 4_u32)
                .set("tokenizer.ggml.fim_sep_token_id", 5_u32);
        }
    });
    let gguf = Gguf::from_bytes(file).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap();
    let format = Arc::new(ModelFormat::new(Arc::new(tokenizer), template));
    Served::providing(ServedModel { format, ..demo("demo", |model| model) })
}

/// The tokens of parts: marks and texts.
fn tokens(served: &Served, parts: &[(Option<u32>, &str)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (mark, text) in parts {
        all.extend(mark.map(Value::from));
        let told = served.post("/tokenize", &json!({ "content": text })).json();
        all.extend(told["tokens"].as_array().unwrap().iter().cloned());
    }
    all
}

#[test]
fn a_hole_is_filled_as_it_was_taught() {
    let others = json!([{ "filename": "a.rs", "text": "fn a() {}\n" }, { "text": "more" }]);
    let body = json!({
        "input_prefix": "fn b() {\n", "input_suffix": "\n}", "prompt": "  re", "input_extra": others, "n_predict": 12,
        "temperature": 0, "return_tokens": true,
    });
    for files in [true, false] {
        let served = served(files);
        let hole = [
            (Some(MARKS.prefix), "fn b() {\n  re"),
            (Some(MARKS.suffix), "\n}"),
            (Some(MARKS.middle), ""),
        ];
        let before: &[_] = match files {
            true => &[
                (MARKS.repository, "project\n"),
                (MARKS.file, "a.rs\nfn a() {}\n"),
                (MARKS.file, "file\nmore"),
                (MARKS.file, "file\n"),
            ],
            false => &[
                (None, "\n\n--- snippet ---\n\nfn a() {}\n"),
                (None, "\n\n--- snippet ---\n\nmore"),
            ],
        };
        let mut plain = json!({ "n_predict": 12, "temperature": 0, "return_tokens": true });
        plain["prompt"] = json!(tokens(&served, &[before, &hole].concat()));
        let (plain, filled) =
            (served.post("/completion", &plain).json(), served.post("/infill", &body).json());
        assert!(plain["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()), "{plain}");
        for same in ["tokens", "content", "tokens_evaluated"] {
            assert_eq!(filled[same], plain[same], "{same}");
        }
        // nothing but the hole
        let mut alone = body.clone();
        alone["input_extra"] = json!([]);
        let alone = served.post("/infill", &alone).json();
        assert_eq!(alone["tokens_evaluated"], tokens(&served, &hole).len());
    }
}

/// What llama.vim asks for while somebody types, and before.
#[test]
fn editors_get_what_they_ask_for() {
    let served = served(true);
    let ahead = json!({
        "id_slot": 0, "input_prefix": "fn a() {", "input_suffix": "", "input_extra": [], "prompt": "", "n_predict": 0,
        "temperature": 0.0, "samplers": [], "stream": false, "cache_prompt": true, "t_max_prompt_ms": 1,
        "t_max_predict_ms": 1, "response_fields": [""],
    });
    let answer = served.post("/infill", &ahead);
    assert_eq!((answer.status, answer.json()), (200, json!({})), "{answer:?}");
    let typed = json!({
        "id_slot": 0, "input_prefix": "fn a() {", "input_suffix": "}", "input_extra": [], "prompt": "x", "n_predict": 16,
        "stop": [], "n_indent": 2, "top_k": 40, "top_p": 0.9, "stream": false, "samplers": ["top_k", "top_p", "infill"],
        "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "seed": 3,
        "response_fields": ["content", "timings/prompt_n", "timings/cache_n", "tokens_cached", "truncated", "no/such"],
    });
    let told = served.post("/infill", &typed).json();
    let names: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["content", "timings/prompt_n", "timings/cache_n", "tokens_cached", "truncated"]
    );
    assert!(told["timings/cache_n"].as_u64().unwrap() > 4, "it was read ahead: {told}");
    // a model of noise is never sure how to go on
    assert_eq!(told["content"], "");
    // streamed, the last piece is the one that has fields
    let mut streamed = typed.clone();
    streamed["stream"] = json!(true);
    let (events, _) = served.post("/infill", &streamed).events();
    let last = events.last().unwrap().as_object().unwrap();
    assert!(last.keys().map(String::as_str).eq(names));
}

#[test]
fn what_is_filled_ends_with_its_block() {
    let served = served(true);
    let newline = tokens(&served, &[(None, "\n")])[0].clone();
    let broken = json!({
        "input_prefix": "a", "input_suffix": "b", "n_predict": 40, "logit_bias": [[newline, 100]], "ignore_eos": true,
    });
    let whole = served.post("/infill", &broken).json();
    assert_eq!(
        (&whole["content"], &whole["stop_type"]),
        (&json!("\n".repeat(40)), &json!("limit"))
    );
    for (field, value, content) in [
        ("n_indent", 1, "\n"),
        ("n_indent", 0, &*"\n".repeat(40)),
        ("t_max_predict_ms", 0, &"\n".repeat(40)),
    ] {
        let mut body = broken.clone();
        body[field] = json!(value);
        let ended = served.post("/infill", &body).json();
        assert_eq!(
            (&ended["content"], &ended["stop_type"]),
            (&json!(content), &json!("limit")),
            "{field}"
        );
    }
    let mut body = broken.clone();
    (body["n_predict"], body["t_max_predict_ms"]) = (json!(-1), json!(1));
    let ended = served.post("/infill", &body).json();
    let n = ended["tokens_predicted"].as_u64().unwrap();
    assert!((1..900).contains(&n) && ended["stop_type"] == "limit", "{ended}");
}

/// An editor sends more than fits: what is near stays, and what goes is told.
#[test]
fn what_is_far_from_a_hole_is_left_out() {
    let served = served(true);
    let long = |text: &str| text.repeat(2000 / text.len());
    let ask = |before: &str, behind: &str, others: usize| {
        let other = json!({ "filename": "a", "text": "x".repeat(150), "time": 3 });
        let body = json!({
            "input_prefix": before, "input_suffix": behind, "input_extra": vec![other; others], "n_predict": 100,
        });
        let told = served.post("/infill", &body);
        assert_eq!(told.status, 200, "{told:?}");
        let told = told.json();
        let warning = told["warnings"][0].as_str().unwrap_or_default().to_owned();
        (told["tokens_evaluated"].as_u64().unwrap() as usize, warning)
    };
    let (near, none) = ask("a", "b", 2);
    assert!(near > 300 && none.is_empty(), "{near} {none}");
    let (full, warning) = ask("a", "b", 20);
    assert!((700..=CONTEXT - 100).contains(&full), "{full}");
    assert!(warning.contains(" of the other texts, 0 tokens before and 0 behind"), "{warning}");
    let (full, warning) = ask(&long("qx"), &long("xq"), 1);
    assert_eq!(full, CONTEXT - 100);
    assert!(warning.contains("1 of the other texts, 1"), "{warning}");
    // a text of somebody's own is never cut
    let body = json!({ "prompt": long("qx"), "suffix": "b", "max_tokens": 5 });
    let refused = served.post("/v1/completions", &body);
    assert!(refused.status == 400 && refused.body.contains("context"), "{refused:?}");
}

#[test]
fn what_is_no_hole_is_refused_by_name() {
    let served = served(true);
    for (field, value) in [
        ("input_extra", json!("x")),
        ("input_extra", json!([{ "filename": "a" }])),
        ("input_extra", json!([{ "filename": 3, "text": "a" }])),
        ("input_extra", json!([{ "file_name": "a", "text": "a" }])),
        ("input_prefix", json!(null)),
        ("input_suffix", json!(null)),
        ("samplers", json!(["top_k", "top_k"])),
        ("samplers", json!("kk")),
        ("response_fields", json!(vec!["content"; 65])),
        ("prompt", json!([1])),
        ("samplers", json!(["top_k", "bogus"])),
        ("samplers", json!([3])),
        ("samplers", json!("kz")),
        ("response_fields", json!([1])),
        ("n_indent", json!(-1)),
        ("t_max_predict_ms", json!("long")),
    ] {
        let mut body = json!({ "input_prefix": "a", "input_suffix": "b", "n_predict": 1 });
        body[field] = value;
        let refused = served.post("/infill", &body);
        let told = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(refused.status == 400 && told.starts_with(field), "{body}: {refused:?}");
    }
}

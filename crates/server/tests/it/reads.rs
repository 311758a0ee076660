//! Models that read texts as a whole: vectors and ranks in all APIs' words.

use gguf::Gguf;
use serde_json::{Value, json};
use tokenizer::Tokenizer;

use crate::client::Served;

fn vectors(answer: &Value, at: &str) -> Vec<Vec<f64>> {
    let numbers =
        |value: &Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    match at {
        "data" => answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| numbers(&one["embedding"]))
            .collect(),
        other => answer[other].as_array().unwrap().iter().map(numbers).collect(),
    }
}

#[test]
fn texts_become_vectors() {
    let served = Served::reading("bert-mean");
    let show = served.post("/api/show", &json!({ "model": "demo" })).json();
    assert_eq!(show["capabilities"], json!(["embedding"]));
    let body = json!({ "model": "demo", "input": ["hello", "the other", "hello"] });
    let answer = served.post("/v1/embeddings", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let plain = vectors(&answer, "data");
    assert_eq!(plain.len(), 3);
    assert_eq!(plain[0], plain[2]);
    assert_ne!(plain[0], plain[1]);
    let length = |vector: &[f64]| vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(plain.iter().all(|vector| (length(vector) - 1.0).abs() < 1e-5));
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 3);

    let mut packed = body.clone();
    packed["encoding_format"] = json!("base64");
    let packed = served.post("/v1/embeddings", &packed).json();
    let text = packed["data"][1]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (plain[1].len() * 4).div_ceil(3) * 4);
    let bytes = unpacked(text);
    let numbers: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    assert!(numbers.iter().zip(&plain[1]).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6));

    let short = json!({ "input": "hello", "dimensions": 4 });
    let short = vectors(&served.post("/v1/embeddings", &short).json(), "data");
    assert!(short[0].len() == 4 && (length(&short[0]) - 1.0).abs() < 1e-5, "{short:?}");
    let ollama = served.post("/api/embed", &body).json();
    assert_eq!(vectors(&ollama, "embeddings"), plain);
    let old = served.post("/api/embeddings", &json!({ "model": "demo", "prompt": "hello" })).json();
    assert_eq!(vectors(&json!({ "e": [old["embedding"]] }), "e")[0], plain[0]);

    for (path, body, problem) in [
        ("/v1/embeddings", json!({ "input": "x", "dimensions": 99_999 }), "at most"),
        ("/v1/embeddings", json!({ "input": [] }), "expected a text"),
        ("/v1/embeddings", json!({ "input": [[9_999_999]] }), "no token"),
        ("/v1/embeddings", json!({ "input": "x", "encoding_format": "hex" }), "base64"),
        ("/v1/embeddings", json!({ "input": ["a", "word ".repeat(5000)] }), "input[1]: "),
        ("/v1/embeddings", json!({ "input": "word ".repeat(5000) }), "context holds"),
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": "x" }] }),
            "writes none",
        ),
        ("/v1/rerank", json!({ "query": "x", "documents": ["y"] }), "ranks none"),
    ] {
        let refused = served.post(path, &body);
        assert_eq!(refused.status, 400, "{refused:?}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(problem), "{message}");
    }
    assert_eq!(served.get("/health").status, 200);
    assert_eq!(served.get("/props").status, 200);
}

fn unpacked(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut n, mut bytes) = (0_u32, 0, Vec::new());
    for c in text.trim_end_matches('=').chars() {
        bits = bits << 6 | digits.find(c).unwrap() as u32;
        n += 6;
        if n >= 8 {
            n -= 8;
            bytes.push((bits >> n) as u8);
        }
    }
    bytes
}

#[test]
fn texts_are_ranked() {
    let served = Served::reading("qwen3-reranker");
    let show = served.post("/api/show", &json!({ "model": "demo" })).json();
    assert_eq!(show["capabilities"], json!([]));
    let body = json!({ "query": "what is it", "documents": ["a cat", { "text": "a dog" }, "rain"], "top_n": 2, "return_documents": true });
    let answer = served.post("/v1/rerank", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    let score = |at: usize| results[at]["relevance_score"].as_f64().unwrap();
    assert!(score(0) >= score(1));
    let at = results[0]["index"].as_u64().unwrap() as usize;
    assert_eq!(results[0]["document"]["text"], ["a cat", "a dog", "rain"][at]);
    assert_eq!(served.post("/v1/embeddings", &json!({ "input": "x" })).status, 400);
    let long = json!({ "query": "what is it", "documents": ["a cat", "a dog ".repeat(5000)] });
    let refused = served.post("/v1/rerank", &long).json()["error"].clone();
    assert_eq!(refused["param"], "documents[1]");
    assert!(refused["message"].as_str().unwrap().starts_with("documents[1]: "), "{refused}");
    let refused = Served::new().post("/v1/embeddings", &json!({ "input": "x" }));
    let told = "this is a chat model; load an embedding model for /v1/embeddings";
    assert!(refused.status == 400 && refused.body.contains(told), "{refused:?}");
}

/// The error for a model that does not rank names the kind of model that does, and gives no advice about vectors.
#[test]
fn who_cannot_rank_says_what_does() {
    let ranked = json!({ "query": "a", "documents": ["b"] });
    for (served, told) in [
        (Served::new(), "this is a chat model and ranks no texts; load a reranking model"),
        (
            Served::reading("bert-mean"),
            "embeds texts and ranks none: /v1/embeddings; load a reranking model",
        ),
    ] {
        let refused = served.post("/v1/rerank", &ranked);
        assert!(refused.status == 400 && refused.body.contains(told), "{refused:?}");
        assert!(refused.body.contains("--pooling rank"), "{refused:?}");
        assert!(!refused.body.contains("--pooling mean"), "{refused:?}");
    }
    let refused =
        Served::reading("qwen3-reranker").post("/v1/embeddings", &json!({ "input": "x" }));
    let told = "ranks texts and embeds none: /v1/rerank; load an embedding model";
    assert!(refused.status == 400 && refused.body.contains(told), "{refused:?}");
}

/// Ollama's endpoints cut texts that are too long unless `truncate` is false, and return no vectors for an empty input.
#[test]
fn ollamas_texts_are_cut_to_the_context() {
    let served = Served::reading("bert-mean");
    let context = served.get("/props").json()["default_generation_settings"]["n_ctx"].clone();
    let context = usize::try_from(context.as_u64().unwrap()).unwrap();
    let long = "word ".repeat(5000);
    let ask = |truncate: Value| {
        let body = json!({ "model": "demo", "input": ["short", &long], "truncate": truncate });
        served.post("/api/embed", &body)
    };
    let cut = ask(json!(null));
    assert_eq!(cut.status, 200, "{cut:?}");
    let cut = cut.json();
    let warnings = cut["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let told = warnings[0].as_str().unwrap();
    assert!(
        told.starts_with("input[1]: cut from ") && told.contains(&format!("to {context} tokens")),
        "{told}"
    );
    assert_eq!(ask(json!(true)).json()["embeddings"], cut["embeddings"]);
    let refused = ask(json!(false));
    assert!(refused.status == 400 && refused.body.contains("input[1]: "), "{refused:?}");
    // a cut text ends as every text does: its vector is that of the tokens that were kept
    let tokenizer = served_tokenizer("bert-mean");
    let mut tokens = tokenizer.encode_whole(&long).unwrap();
    tokens.truncate(context);
    if let Some(end) = tokenizer.end() {
        tokens[context - 1] = end;
    }
    let same = served.post("/v1/embeddings", &json!({ "input": tokens })).json();
    assert_eq!(vectors(&same, "data")[0], vectors(&cut, "embeddings")[1]);
    let old = served.post("/api/embeddings", &json!({ "model": "demo", "prompt": long })).json();
    assert_eq!(
        vectors(&json!({ "e": [old["embedding"]] }), "e")[0],
        vectors(&cut, "embeddings")[1]
    );
    assert!(old["warnings"][0].as_str().unwrap().starts_with("prompt: cut from "), "{old}");
    for nothing in [json!([]), json!("")] {
        let answer = served.post("/api/embed", &json!({ "model": "demo", "input": nothing }));
        assert_eq!((answer.status, &answer.json()["embeddings"]), (200, &json!([])), "{nothing}");
    }
    let nothing = served.post("/api/embeddings", &json!({ "model": "demo", "prompt": "" })).json();
    assert_eq!(nothing["embedding"], json!([]));
}

/// Returns the tokenizer of a golden model that reads texts.
fn served_tokenizer(name: &str) -> Tokenizer {
    let known = conformance::golden::texts().into_iter().find(|known| known.name == name);
    let gguf = Gguf::from_bytes(known.unwrap().file).unwrap();
    Tokenizer::from_gguf(gguf.metadata()).unwrap()
}

/// The first text that is too long is refused before the others are encoded. Encoding all of them, 0.5 GB of text, takes minutes
/// and gigabytes.
#[test]
fn texts_that_are_too_long_are_refused_at_the_first() {
    let long = "what is it, ".repeat(40_000);
    let served = Served::reading("qwen3-reranker");
    let body = json!({ "query": long, "documents": vec!["a cat"; 1000] });
    let answer = served.post("/v1/rerank", &body);
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let served = Served::reading("bert-mean");
    let answer = served.post("/v1/embeddings", &json!({ "input": [&long, "short"] }));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
}

#[test]
fn llamas_completion_continues_a_text() {
    let served = Served::new();
    let theirs = json!({ "prompt": "once", "max_tokens": 8 });
    let theirs = served.post("/v1/completions", &theirs).json();
    let want = theirs["choices"][0]["text"].as_str().unwrap();
    let mut body = json!({ "prompt": "once", "n_predict": 8, "n_probs": 2, "return_tokens": true, "cache_prompt": true });
    let whole = served.post("/completion", &body).json();
    assert_eq!(whole["content"], want, "{whole}");
    assert_eq!(
        (&whole["stop"], &whole["tokens_predicted"]),
        (&json!(true), &theirs["usage"]["completion_tokens"])
    );
    assert_eq!(
        whole["tokens"].as_array().unwrap().len(),
        whole["completion_probabilities"].as_array().unwrap().len()
    );
    body["stream"] = json!(true);
    let (events, done) = served.post("/completion", &body).events();
    assert!(!done);
    let text: String = events.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(text, want);
    assert!(events.last().unwrap()["stop"] == true && events[0]["stop"] == false);
    let hole = served.post("/infill", &json!({ "input_prefix": "a", "input_suffix": "b" }));
    assert_eq!(hole.status, 400, "{hole:?}");
    assert!(hole.json()["error"]["message"].as_str().unwrap().contains("holes"));
}

/// Each token of a stream, and its scores, comes once: with the text that it completes, or at the end. Without `return_tokens` there are
/// none.
#[test]
fn llamas_streams_have_each_token_once() {
    let served = Served::new();
    for more in [json!({}), json!({ "n_probs": 2 }), json!({ "stop": ["e"] })] {
        let mut body =
            json!({ "prompt": "once", "n_predict": 12, "ignore_eos": true, "return_tokens": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let whole = served.post("/completion", &body).json();
        body["stream"] = json!(true);
        let (events, _) = served.post("/completion", &body).events();
        let all = |name: &str| -> Vec<Value> {
            let lists = events.iter().filter_map(|event| event[name].as_array());
            lists.flatten().cloned().collect()
        };
        assert_eq!(json!(all("tokens")), whole["tokens"], "{more}");
        assert!(events.iter().any(|event| event["stop"] == false && event["tokens"] != json!([])));
        let scores = whole["completion_probabilities"].as_array().cloned().unwrap_or_default();
        assert_eq!(all("completion_probabilities"), scores, "{more}");
        body["return_tokens"] = json!(false);
        let (events, _) = served.post("/completion", &body).events();
        assert!(events.iter().all(|event| event["tokens"] == json!([])), "{events:?}");
    }
}

/// `tokens_cached` is the number of tokens in the slot at the end, as in llama.cpp, and so says the ledger. A reply of one token has a
/// rate, too.
#[test]
fn llamas_counts_agree_with_the_ledger() {
    let served = Served::new();
    let (limit, word, eos) = ("limit", "word", "eos");
    for (more, why, open) in [
        (json!({ "n_predict": 5 }), limit, 1),
        (json!({ "n_predict": 1 }), limit, 1),
        (json!({ "n_predict": 0 }), limit, 0),
        (json!({ "n_predict": 40, "stop": ["e"] }), word, 1),
        (
            json!({ "n_predict": 40, "ignore_eos": false, "json_schema": { "enum": ["a", "b"] } }),
            eos,
            0,
        ),
    ] {
        let mut body = json!({ "prompt": "once upon", "ignore_eos": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = served.post("/completion", &body).json();
        let number = |name: &str| told[name].as_u64().unwrap();
        let held = number("tokens_evaluated") + number("tokens_predicted") - open;
        assert_eq!((&told["stop_type"], number("tokens_cached")), (&json!(why), held), "{told}");
        assert_eq!(told["context_ledger"]["kept"], json!([[0, held]]), "{told}");
        let rate = told["timings"]["predicted_per_second"].as_f64().unwrap();
        assert_eq!(rate > 0.0, number("tokens_predicted") > 0, "{told}");
    }
}

/// A list of prompts gets a list of results, like in llama.cpp; each result is that of its prompt alone.
#[test]
fn llamas_completion_continues_several_texts() {
    let served = Served::new();
    let ask = |prompt: Value, more: &[(&str, Value)]| {
        let mut body = json!({ "prompt": prompt, "n_predict": 6, "n_probs": 1 });
        more.iter().for_each(|(name, value)| body[*name] = value.clone());
        served.post("/completion", &body)
    };
    let ids = served.format.tokenizer().encode("the end").unwrap();
    let prompts = [json!("once"), json!(ids)];
    let all = ask(json!(prompts), &[]);
    assert_eq!(all.status, 200, "{all:?}");
    let all = all.json();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 2);
    for (index, (result, prompt)) in all.iter().zip(&prompts).enumerate() {
        let alone = ask(prompt.clone(), &[]).json();
        assert_eq!((&result["index"], &alone["index"]), (&json!(index), &json!(0)));
        for name in ["content", "tokens_evaluated", "tokens_predicted", "completion_probabilities"]
        {
            assert_eq!(result[name], alone[name], "{index} {name}");
        }
        assert!((0..2).contains(&result["id_slot"].as_i64().unwrap()), "{result}");
    }
    assert_ne!(all[0]["id_slot"], all[1]["id_slot"], "both are made side by side");
    let one = ask(json!(["once"]), &[]).json();
    assert_eq!(one["content"], all[0]["content"], "one result is no list");
    let streamed = ask(json!(prompts), &[("stream", json!(true))]);
    assert_eq!((streamed.status, &streamed.json()["error"]["param"]), (400, &json!("stream")));
    assert!(streamed.body.contains("/v1/completions streams it"), "{streamed:?}");
    for wrong in [json!([]), json!(vec!["x"; 9]), json!(["x", 3])] {
        let refused = ask(wrong, &[]);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("prompt")));
    }
}

#[test]
fn what_happened_is_counted() {
    let served = Served::new();
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 5, "ignore_eos": true });
    let told = [
        served.post("/v1/chat/completions", &body).json(),
        served.post("/v1/chat/completions", &body).json(),
    ];
    let metrics = served.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"), "{metrics:?}");
    let value = |name: &str| -> f64 {
        let line =
            metrics.body.lines().find(|line| line.starts_with(&format!("rooflight:{name}{{")));
        line.unwrap_or_else(|| panic!("{name}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("generation_tokens_total"), 10.0);
    let prompts: u64 =
        told.iter().map(|told| told["usage"]["prompt_tokens"].as_u64().unwrap()).sum();
    assert_eq!(value("prompt_tokens_total"), prompts as f64);
    assert!(value("prefix_cache_hits") > 0.0 && value("prefix_cache_queries") == prompts as f64);
    assert_eq!((value("request_success_total"), value("num_requests_running")), (2.0, 0.0));
    assert_eq!(value("time_to_first_token_seconds_count"), 2.0);
    assert_eq!(value("inter_token_latency_seconds_count"), 8.0);
    assert!(value("kv_cache_usage_perc") > 0.0);
}

//! `embed`: what comes out are the model's numbers, and what cannot be said is refused.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use conformance::golden;
use gguf::Gguf;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{CacheOptions, CacheType, Executor, Outputs, Sequence, Step, Wanted};
use serde_json::Value;
use tokenizer::Tokenizer;

use crate::common::{Place, text};

/// A place with these models, `NAME.gguf`.
fn place(names: &[&str]) -> Place {
    let place = Place::new();
    for model in golden::texts().iter().filter(|model| names.contains(&&*model.name)) {
        place.write(&format!("{}.gguf", model.name), &model.file);
    }
    place
}

/// What the interpreter says of a text, its tokens between those that the file wants.
fn said(place: &Place, name: &str, text: &str) -> Vec<f64> {
    let gguf = Gguf::open(&place.path(&format!("{name}.gguf"))).unwrap();
    let tokens = Tokenizer::from_gguf(gguf.metadata()).unwrap().encode_whole(text).unwrap();
    let loaded = models::load(&gguf).unwrap();
    let outputs = Outputs { rows: loaded.config.text_rows().unwrap(), what: Wanted::Hidden };
    let model = Interpreter.load(loaded.program, &GgufWeights(&gguf), &mut |_| ()).unwrap();
    let (k, v, capacity) = (CacheType::F32, CacheType::F32, 256);
    let session = model.open(&CacheOptions::new(k, v, capacity)).unwrap();
    let sequence = Sequence { session, tokens: &tokens, outputs, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).unwrap().single().unwrap();
    out.into_hidden().hidden.into_iter().map(f64::from).collect()
}

fn vectors(out: &str) -> Vec<Vec<f64>> {
    let numbers = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect();
    out.lines().map(numbers).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

const EXACT: [&str; 4] = ["-ctk", "f32", "-ctv", "f32"];

#[test]
fn vectors_are_those_of_the_model_and_of_length_one() {
    let names = ["bert-mean", "bert-cls", "jina-bert-v2", "gemma-embedding", "qwen3-embedding"];
    let place = place(&names);
    let texts = ["the thing in the end", "what it is", &"not another one, ".repeat(12)];
    for name in names {
        let file = format!("{name}.gguf");
        let run = |more: &[&str]| {
            let words = [&["embed", "-m", &file][..], &EXACT, &texts, more].concat();
            vectors(&place.ok(&words))
        };
        let (plain, scaled) = (run(&["--normalize", "-1"]), run(&[]));
        assert_eq!(plain.len(), 3, "{name}: a line for each text");
        for ((plain, scaled), text) in plain.iter().zip(&scaled).zip(texts) {
            let want = said(&place, name, text);
            assert_eq!(plain.len(), want.len());
            let off: f64 = plain.iter().zip(&want).map(|(a, b)| (a - b).powi(2)).sum();
            assert!(off.sqrt() < 1e-5 * length(&want), "{name}: {off}");
            assert!((length(scaled) - 1.0).abs() < 1e-6, "{name}");
            let parallel: f64 = plain.iter().zip(scaled).map(|(a, b)| a * b).sum();
            assert!((parallel / length(plain) - 1.0).abs() < 1e-6, "{name}");
        }
    }
}

/// Lines of stdin, of a file and arguments are the same texts, together or alone.
#[test]
fn texts_come_from_anywhere() {
    let place = place(&["bert-mean"]);
    let words = ["embed", "-m", "bert-mean.gguf"];
    let want = place.ok(&[&words[..], &["the thing", "end"]].concat());
    place.write("two.txt", "the thing\nend\n");
    assert_eq!(place.ok(&[&words[..], &["-f", "two.txt"]].concat()), want);
    let piped = |last: &[&str]| {
        let mut command = place.command(&[&words[..], last].concat());
        text(&command.write_stdin("the thing\r\nend").output().unwrap().stdout).to_owned()
    };
    assert_eq!((piped(&[]), piped(&["-"])), (want.clone(), want.clone()));
    let alone = ["the thing", "end"].map(|text| place.ok(&[&words[..], &[text]].concat()));
    assert_eq!(alone.concat(), want);
}

#[test]
fn tokens_may_have_vectors_of_their_own() {
    let place = place(&["bert-mean"]);
    let words = ["embed", "bert-mean.gguf", "the thing in the end", "--json"];
    let run = |more: &[&str]| -> Value {
        serde_json::from_str(&place.ok(&[&words[..], more].concat())).unwrap()
    };
    let (text, tokens) = (run(&[]), run(&["--pooling", "none"]));
    let n = text["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(text["data"][0]["embedding"].as_array().unwrap().len(), 64);
    assert_eq!(tokens["data"][0]["embedding"].as_array().unwrap().len(), n);
    assert_eq!(tokens["data"][0]["embedding"][0].as_array().unwrap().len(), 64);
    assert_eq!((&text["object"], &text["model"]), (&"list".into(), &"bert-mean-random-0".into()));
}

#[test]
fn texts_are_ranked_by_how_well_they_answer() {
    let place = place(&["qwen3-reranker", "bert-rank"]);
    for model in ["qwen3-reranker.gguf", "bert-rank.gguf"] {
        let words = ["embed", model, "--query", "what is it", "the end", "a thing", "not one"];
        let lines = place.ok(&words);
        let ranks: Vec<(f64, usize, &str)> = (lines.lines())
            .map(|line| {
                let mut fields = line.splitn(3, '\t');
                let mut next = || fields.next().unwrap();
                (next().parse().unwrap(), next().parse().unwrap(), next())
            })
            .collect();
        assert!(ranks.is_sorted_by(|a, b| a.0 >= b.0), "{lines}");
        let texts = ["the end", "a thing", "not one"];
        assert!(ranks.len() == 3 && ranks.iter().all(|(_, i, text)| texts[*i] == *text));
        let json: Value =
            serde_json::from_str(&place.ok(&[&words[..], &["--json"]].concat())).unwrap();
        assert_eq!(json["results"][0]["index"], ranks[0].1);
        assert_eq!(json["results"][2]["document"]["text"], ranks[2].2);
    }
}

#[test]
fn what_cannot_be_said_is_refused() {
    let place = place(&["bert-mean", "qwen3-reranker"]);
    let refused = |args: &[&str], code: i32, words: &str| {
        let (found, said) = place.fails(args);
        assert!(found == code && said.contains(words), "{args:?}: {found}, {said}");
    };
    let long = "the ".repeat(300);
    refused(&["embed", "bert-mean.gguf", "a", &long], 1, "of which the context holds 256");
    refused(&["embed", "bert-mean.gguf", "a", &long], 1, "text 2: ");
    refused(&["embed", "bert-mean.gguf", ""], 2, "text 1: the text is empty");
    refused(&["embed", "demo.gguf", "a"], 2, "give --pooling mean, cls or last");
    refused(&["embed", "demo.gguf", "a", "--pooling", "rank"], 2, "`cls.output.weight`");
    refused(&["embed", "bert-mean.gguf", "a", "--pooling", "max"], 2, "none, mean, cls, last");
    let query = ["embed", "bert-mean.gguf", "a", "--query", "b"];
    refused(&[&query[..], &["--pooling", "none"]].concat(), 2, "a vector for each token");
    refused(&[&query[..], &["--normalize", "1"]].concat(), 2, "how near they are");
    refused(&["embed", "qwen3-reranker.gguf", "a"], 2, "--query 'TEXT'");
    let ranked = ["embed", "qwen3-reranker.gguf", "a", "--query", "b", "--normalize", "1"];
    refused(&ranked, 2, "--normalize is about vectors");
    refused(&["embed", "none.gguf", "a"], 3, "no such model file");
    refused(&["embed"], 2, "no model: rooflight embed");
    // what embeds writes nothing
    for args in [
        &["run", "bert-mean.gguf", "hello"][..],
        &["complete", "bert-mean.gguf", "hello"],
        &["bench", "bert-mean.gguf", "-n", "4"],
        &["logits", "bert-mean.gguf", "--tokens", "1 2", "--greedy", "2"],
    ] {
        refused(args, 2, "this model embeds texts (pooling: mean) and writes none");
    }
    // any model can embed
    assert_eq!(
        place.ok(&["embed", "demo.gguf", "the end", "--pooling", "mean"]).lines().count(),
        1
    );
}

/// An embedding model compares the query with each text by the cosine of the vectors that it prints for them.
#[test]
fn a_query_is_compared_by_cosine() {
    let place = place(&["bert-mean"]);
    let texts = ["the thing", "an end to it", "the end"];
    let base = ["embed", "bert-mean.gguf", "--normalize", "2"];
    let printed = place.ok(&[&base[..], &["the end"], &texts].concat());
    let vectors: Vec<Vec<f64>> = printed
        .lines()
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    let ranked =
        place.ok(&[&["embed", "bert-mean.gguf", "--query", "the end"][..], &texts].concat());
    let mut last = f64::INFINITY;
    for line in ranked.lines() {
        let mut words = line.splitn(3, char::is_whitespace);
        let score: f64 = words.next().unwrap().parse().unwrap();
        let index: usize = words.next().unwrap().parse().unwrap();
        let dot: f64 = vectors[0].iter().zip(&vectors[index + 1]).map(|(a, b)| a * b).sum();
        assert!((score - dot).abs() < 1e-4 && score <= last, "{line}: {dot}");
        last = score;
    }
    let best = ranked.lines().next().unwrap();
    assert!(best.ends_with("the end"), "{ranked}");
    let json: serde_json::Value = serde_json::from_str(&place.ok(&[
        "embed",
        "bert-mean.gguf",
        "the end",
        "--query",
        "the end",
        "--json",
    ]))
    .unwrap();
    let same = json["results"][0]["relevance_score"].as_f64().unwrap();
    assert!((same - 1.0).abs() < 1e-5, "{json}");
}

/// What reads texts has no steps, and as many positions as it has learned.
#[test]
fn show_and_plan_know_what_reads_texts() {
    let place = place(&["bert-mean", "gemma-embedding", "qwen3-reranker"]);
    let shown = place.ok(&["show", "gemma-embedding.gguf"]);
    assert!(shown.contains("embedded in vectors of 64, pooling mean"), "{shown}");
    assert!(shown.contains("65 tokens on 5 of 6 layers"), "{shown}");
    let shown = place.ok(&["show", "qwen3-reranker.gguf"]);
    assert!(shown.contains("ranked by scores of 2, pooling rank"), "{shown}");
    let plan = ["plan", "bert-mean.gguf", "--device", "4090"];
    let planned = place.ok(&plan);
    for said in ["a text, at the limit", "each text goes through at once", "24.0 GB: 256 (f16)"] {
        assert!(planned.contains(said), "{said}: {planned}");
    }
    assert!(!planned.contains("steps") && !planned.contains("first token"), "{planned}");
    let json: Value = serde_json::from_str(&place.ok(&[&plan[..], &["--json"]].concat())).unwrap();
    assert_eq!((&json["steps"], &json["what_if"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert!(json["first_step_seconds"].is_null() && json["prompts"][0]["limit_seconds"].is_f64());
    for (more, needle) in [
        (["--tps", "5"], "--tps is about replies"),
        (["--plot", "p.svg"], "--plot is about replies"),
        (["--context", "300"], "has learned 256 positions"),
    ] {
        let (code, said) = place.fails(&[&plan[..], &more].concat());
        assert!(code == 2 && said.contains(needle), "{more:?}: {code}, {said}");
    }
}

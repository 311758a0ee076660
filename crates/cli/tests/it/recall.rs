//! `recall`: what the bundled model finds, what is counted, and what bad input is told.

use crate::common::Place;

#[test]
fn questions_are_counted_by_kind_and_depth() {
    let place = Place::new();
    place.write("items.jsonl", concat!(
        r#"{"kind":"passkey","messages":[{"role":"user","content":"say 7"}],"answer":"never this","depth":0.25}"#, "\n\n",
        r#"{"kind":"name","lang":"en","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],"answer":"nor this"}"#, "\n"
    ));
    let json: serde_json::Value = serde_json::from_str(&place.ok(&[
        "recall",
        "-m",
        "demo.gguf",
        "-f",
        "items.jsonl",
        "-n",
        "4",
        "--json",
    ]))
    .unwrap();
    assert_eq!((json["all"]["asked"].as_u64(), json["all"]["right"].as_u64()), (Some(2), Some(0)));
    assert_eq!(json["kinds"]["passkey"]["by_depth"][2]["asked"], 1);
    assert!(json["kinds"]["name"]["by_depth"].is_null());
    let text = place.ok(&["recall", "-m", "demo.gguf", "-f", "items.jsonl", "-n", "4"]);
    assert!(text.contains("passkey by depth") && text.contains("| all"), "{text}");
}

#[test]
fn a_malformed_question_names_its_line() {
    let place = Place::new();
    place.write("items.jsonl", "{\"kind\":\"k\",\"messages\":[],\"answer\":\"a\"}\n{\"kind\":1}\n");
    let (code, told) = place.fails(&["recall", "-m", "demo.gguf", "-f", "items.jsonl"]);
    assert_eq!(code, 2);
    assert!(told.contains("items.jsonl line 2"), "{told}");
    place.write("items.jsonl", "\n");
    let (code, told) = place.fails(&["recall", "-m", "demo.gguf", "-f", "items.jsonl"]);
    assert!(code == 2 && told.contains("no questions"), "{told}");
}

/// A part of the held-out questions; `training/README.md` has the figures for all.
#[test]
fn the_bundled_model_finds_what_its_context_says() {
    let place = Place::new();
    let all = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/heldout/recall.jsonl");
    let all = std::fs::read_to_string(all).unwrap();
    let some: Vec<&str> = all.lines().step_by(9).collect();
    place.write("some.jsonl", some.join("\n"));
    place.ok(&["demo-model", "bundled.gguf"]);
    let json = place.ok(&["recall", "-f", "some.jsonl", "--json"]);
    assert_eq!(place.ok(&["recall", "-m", "bundled.gguf", "-f", "some.jsonl", "--json"]), json);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for kind in ["passkey", "keyvalue", "two_needles", "arithmetic", "name"] {
        let share = json["kinds"][kind]["share"].as_f64().unwrap();
        assert!(share >= 0.6, "{kind}: {share}");
    }
}

/// The bundled model was trained on such texts of up to 1,024 tokens, with keys of nine tenths of all numbers; these are
/// of the other tenth.
#[test]
fn the_bundled_model_finds_keys_in_texts_that_are_made() {
    let place = Place::new();
    let words = ["recall", "-c", "1k", "--kinds", "passkey,keyvalue", "--json"];
    let json = place.ok(&words);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["seed"].as_u64(), json["type_k"].as_str()), (Some(1), Some("f16")));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for (cell, least) in cells.iter().zip([17, 8]) {
        let kind = cell["kind"].as_str().unwrap();
        assert_eq!((cell["length"].as_u64(), cell["asked"].as_u64()), (Some(1024), Some(20)));
        let right = cell["right"].as_u64().unwrap();
        assert!(right >= least, "{kind}: {right} of 20");
        // prompt and reply fill the length, but for the rest of a sentence
        let tokens = cell["prompt_tokens"].as_f64().unwrap();
        assert!(tokens <= 976.0 && tokens > 976.0 - 24.0, "{kind}: {tokens}");
        for depth in cell["by_depth"].as_array().unwrap() {
            assert_eq!(depth["asked"], 2, "{kind}");
        }
        assert_eq!(cell["by_language"]["zh"]["asked"], 10, "{kind}");
        let (first, step) = (&cell["first_token_seconds"], &cell["step_seconds"]);
        assert!(first.as_f64() > step.as_f64() && step.as_f64() > Some(0.0), "{first} {step}");
        // four texts: what a question shares with the one before is not computed again
        let whole = cell["whole_prompts"].as_u64().unwrap();
        assert!((4..=if kind == "keyvalue" { 4 } else { 8 }).contains(&whole), "{kind}: {whole}");
    }
}

#[test]
fn made_texts_are_the_same_for_the_same_seed_whatever_else_is_asked() {
    let place = Place::new();
    let wanted = |more: &[&str]| {
        let words = ["recall", "-m", "demo.gguf", "-c", "2k", "--questions", "3", "-n", "1", "-v"];
        let output = place.run(&[&words, more].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        told.lines()
            .filter(|line| line.contains("passkey of 2048 tokens, question"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let first = wanted(&[]);
    assert!(first.len() == 3 && first.iter().all(|line| line.contains("wanted `")), "{first:?}");
    assert_eq!(wanted(&["--kinds", "sum,passkey", "--seed", "1"]), first);
    let other = wanted(&["--seed", "2"]);
    assert!(other.len() == 3 && other.iter().all(|line| !first.contains(line)), "{other:?}");
}

#[test]
fn lengths_that_are_too_short_are_told_the_least_that_works() {
    let place = Place::new();
    for kind in ["passkey", "number", "keyvalue", "needles", "tracing", "count", "sum", "last"] {
        let ask = |length: &str| {
            let words = ["recall", "-c", length, "--kinds", kind, "--questions", "4", "-n", "2"];
            words.map(str::to_owned)
        };
        let refused = ask("64");
        let (code, told) = place.fails(&refused.each_ref().map(String::as_str));
        assert_eq!(code, 2, "{told}");
        let least = told.split(&format!("too short for {kind}: ")).nth(1).unwrap();
        let least = least.split(' ').next().unwrap();
        assert!((65..800).contains(&least.parse::<usize>().unwrap()), "{told}");
        let works = ask(least);
        place.ok(&works.each_ref().map(String::as_str));
    }
}

#[test]
fn texts_are_made_or_read_not_both() {
    let place = Place::new();
    place.write("items.jsonl", "");
    for (words, wanted) in [
        (&["-f", "items.jsonl", "--kinds", "sum"][..], "--kinds"),
        (&["-f", "items.jsonl", "--questions", "4"], "--questions"),
        (&["-f", "items.jsonl", "--seed", "4"], "--seed"),
        (&["-f", "items.jsonl", "--plot", "a.svg"], "--plot"),
        (&["-f", "items.jsonl", "-c", "1k,2k"], "several lengths"),
        (&["--kinds", "passkeys"], "passkey, number, keyvalue, needles, tracing, count, sum, last"),
        (&["--kinds", "needles:1"], "needles:2 to needles:16"),
        (&["-c", "1k", "--questions", "0"], "--questions"),
    ] {
        let all: Vec<&str> = ["recall", "-m", "demo.gguf"].iter().chain(words).copied().collect();
        let (code, told) = place.fails(&all);
        assert!(code == 2 && told.contains(wanted), "{words:?}: {code} {told}");
        assert_eq!(told.lines().filter(|line| line.starts_with("error:")).count(), 1, "{told}");
    }
}

/// Blocks that are chosen badly hide keys; with the right ones given the model answers, so that what is far is not too far.
#[test]
fn what_is_given_is_found() {
    let place = Place::new();
    let cell = |more: &[&str]| {
        let words =
            "recall -c 2k --kinds passkey --questions 10 --json --kv-policy infllm --kv-anchor max";
        let words: Vec<&str> = words.split(' ').chain(more.iter().copied()).collect();
        let json: serde_json::Value = serde_json::from_str(&place.ok(&words)).unwrap();
        assert_eq!(json["given"], !more.is_empty());
        json["cells"][0].clone()
    };
    let (chosen, given) = (cell(&[]), cell(&["--given"]));
    assert_eq!(given["right"], 10, "{given}");
    assert!(chosen["right"].as_u64().unwrap() < 8, "{chosen}");
    for cell in [chosen, given] {
        let share = |name: &str| cell[name].as_f64().unwrap();
        for share in [share("kv_missed"), share("kv_best_blocks_read")] {
            assert!(share > 0.0 && share < 1.0, "{cell}");
        }
        assert_eq!(cell["kv_disk"], serde_json::Value::Null);
    }
}

#[test]
fn what_cannot_be_given_is_refused() {
    let place = Place::new();
    for (words, wanted) in [
        ("--kv-policy window", "needs a --kv-policy that chooses blocks"),
        ("--kv-policy full", "needs a --kv-policy that chooses blocks"),
        ("--kv-policy infllm --kinds count", "what count asks for stands nowhere"),
        ("--kv-policy infllm --kinds tracing", "what tracing asks for stands nowhere"),
        ("--kv-policy infllm --kv-blocks 1 --kinds needles", "--kv-blocks"),
    ] {
        let words: Vec<&str> = "recall -c 2k --given".split(' ').chain(words.split(' ')).collect();
        let (code, told) = place.fails(&words);
        assert!(code == 2 && told.contains(wanted), "{words:?}: {code} {told}");
    }
}

#[test]
fn recall_is_drawn_by_depth_and_length() {
    let place = Place::new();
    let words = "recall -m demo.gguf -c 2k,3k --kinds passkey,last --questions 2 -n 1 --plot r.svg";
    let words: Vec<&str> = words.split(' ').collect();
    let text = place.ok(&words);
    assert!(
        text.contains("| last ") && text.contains("3,072") && text.contains("seed 1"),
        "{text}"
    );
    let svg = std::fs::read_to_string(place.path("r.svg")).unwrap();
    for want in [">passkey<", ">last<", ">2,048<", ">3,072<", "90\u{2013}100 %"] {
        assert!(svg.contains(want), "{want}");
    }
    let (code, told) = place.fails(&words);
    assert!(code == 1 && told.contains("there is such a file"), "{told}");
}

/// What was answered before Ctrl-C is told.
#[cfg(unix)]
#[test]
fn what_was_answered_is_told_when_it_is_stopped() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
    let words = "recall -m demo.gguf -c 2k --kinds count,sum --questions 1000 -n 1 -v --json";
    command.args(words.split(' ')).current_dir(place.path("."));
    command.env_clear().env("HOME", place.path("."));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.by_ref().any(|line| line.contains("question 2: wanted")), "it counts in vain");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = told.collect();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("an object");
    let cells = json["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &cells[0]["kind"]), (1, &"count".into()), "{json}");
    assert!(cells[0]["asked"].as_u64().is_some_and(|n| n >= 2), "{json}");
}

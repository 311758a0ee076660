//! `batch`: the replies that each request gets alone, in order, also after it was killed.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::time::Duration;

use serde_json::Value;

use crate::common::{Place, text};

/// Requests of both kinds and many lengths, all of which end by their length.
fn requests(n: usize) -> Vec<String> {
    let line = |i: usize| {
        let (tokens, seed) = (5 + i * 7 % 40, i * 3);
        match i % 3 {
            0 => format!(r#"{{"custom_id": "r{i}", "prompt": "the thing {i}", "max_tokens": {tokens}, "seed": {seed}}}"#),
            1 => format!(
                r#"{{"custom_id": "r{i}", "method": "POST", "url": "/v1/chat/completions", "body": {{"model": "x", "temperature": 0,
                    "messages": [{{"role": "user", "content": "the end of {i}"}}], "max_tokens": {tokens}}}}}"#
            )
            .replace('\n', " "),
            _ => format!(
                r#"{{"custom_id": "r{i}", "url": "/v1/completions", "body": {{"prompt": "in the {i}", "seed": {seed}, "max_tokens": {tokens}}}}}"#
            ),
        }
    };
    (0..n).map(line).collect()
}

fn texts(place: &Place, file: &str) -> Vec<(String, String)> {
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let text =
            ["/text", "/response/body/choices/0/message/content", "/response/body/choices/0/text"];
        let text = text.iter().find_map(|at| value.pointer(at)).and_then(Value::as_str);
        (value["custom_id"].as_str().unwrap().to_owned(), text.unwrap().to_owned())
    };
    String::from_utf8(place.read(file)).unwrap().lines().map(read).collect()
}

#[test]
fn replies_are_those_of_each_request_alone_in_order() {
    let place = Place::new();
    let lines = requests(30);
    place.write("in.jsonl", lines.join("\n").as_bytes());
    for (parallel, file) in [("1", "one.jsonl"), ("7", "seven.jsonl")] {
        let output =
            place.run(&["batch", "in.jsonl", "-o", file, "-m", "demo.gguf", "-np", parallel]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("30 requests, "), "{}", text(&output.stdout));
    }
    let one = texts(&place, "one.jsonl");
    assert_eq!(one, texts(&place, "seven.jsonl"));
    assert!(one.iter().enumerate().all(|(i, (id, _))| *id == format!("r{i}")));
    // as `run` and `complete` answer
    let same = |i: usize, args: &[&str]| {
        let output = place.run(args);
        let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(reply["text"], one[i].1, "{args:?}");
    };
    same(3, &["run", "demo.gguf", "the thing 3", "-n", "26", "-s", "9", "--json"]);
    same(4, &["run", "demo.gguf", "the end of 4", "-n", "33", "--temp", "0", "--json"]);
    same(5, &["complete", "demo.gguf", "in the 5", "-n", "40", "-s", "15", "--json"]);
}

#[test]
fn a_killed_batch_goes_on_where_it_was() {
    let place = Place::new();
    let lines = requests(200);
    place.write("in.jsonl", lines.join("\n").as_bytes());
    let args = |out: &'static str| ["batch", "in.jsonl", "-m", "demo.gguf", "-o", out];
    assert_eq!(place.run(&args("whole.jsonl")).status.code(), Some(0));
    let mut kills = 0;
    for wait in [30, 60, 90, 120, 150] {
        let mut command = place.command(&args("cut.jsonl"));
        let output = command.timeout(Duration::from_millis(wait)).output().unwrap();
        kills += u32::from(output.status.code().is_none());
    }
    assert!(kills > 0, "it was done before it could be killed");
    assert_eq!(place.run(&args("cut.jsonl")).status.code(), Some(0));
    assert_eq!(texts(&place, "cut.jsonl"), texts(&place, "whole.jsonl"));
    // nothing is left to do
    let again = place.run(&args("cut.jsonl"));
    assert!(text(&again.stderr).contains("all 200 requests"), "{}", text(&again.stderr));
}

/// Ctrl-C while a line is got ready is no result of that line.
#[cfg(unix)]
#[test]
fn a_stopped_batch_says_nothing_of_lines_it_did_not_answer() {
    let place = Place::new();
    // none of them fits, and all of the time goes into templates and tokens
    let message = r#"{"role": "user", "content": "word word word"}"#;
    let reply = message.replace("user", "assistant");
    let messages = format!("[{}]", vec![format!("{message}, {reply}"); 600].join(", "));
    let lines = vec![format!(r#"{{"messages": {messages}}}"#); 400];
    place.write("in.jsonl", lines.join("\n").as_bytes());
    let written = || std::fs::metadata(place.path("out.jsonl")).map_or(0, |data| data.len());
    let mut stopped = 0;
    for wait in [0, 3, 6, 9, 12, 15] {
        let args = ["batch", "in.jsonl", "-m", "demo.gguf", "-o", "out.jsonl"];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rooflight"));
        command.args(args).current_dir(place.path(".")).env_clear();
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let before = written();
        let mut child = command.spawn().unwrap();
        while written() == before && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(wait));
        let pid = child.id().to_string();
        let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
        killed.unwrap();
        stopped += u32::from(child.wait().unwrap().code() == Some(130));
    }
    assert!(stopped > 0, "it was done before it could be stopped");
    let results = String::from_utf8(place.read("out.jsonl")).unwrap();
    assert!(!results.is_empty(), "it had begun");
    for line in results.lines() {
        assert!(line.contains("the context holds"), "{}", &line[..line.len().min(300)]);
    }
}

#[test]
fn lines_that_cannot_be_answered_say_why_and_the_others_are() {
    let place = Place::new();
    let long = "word ".repeat(5000);
    let lines = [
        r#"{"prompt": "the", "max_tokens": 3}"#.to_owned(),
        r#"{"prompt": "the", "temperature": "hot"}"#.to_owned(),
        "not json".to_owned(),
        format!(
            r#"{{"custom_id": "long", "url": "/v1/completions", "body": {{"prompt": "{long}"}}}}"#
        ),
        r#"{"prompt": "the end", "max_tokens": 3, "temprature": 3}"#.to_owned(),
    ];
    place.write("in.jsonl", lines.join("\n\n").as_bytes());
    let output = place.run(&["batch", "in.jsonl", "-o", "out.jsonl", "-m", "demo.gguf"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("3 of 5 requests failed"), "{}", text(&output.stderr));
    let found: Vec<Value> = String::from_utf8(place.read("out.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let message = |i: usize, at: &str| found[i].pointer(at).unwrap().as_str().unwrap().to_owned();
    assert!(found[0]["text"].is_string() && found[4]["text"].is_string());
    assert!(message(1, "/error/message").contains("temperature"));
    assert!(message(4, "/warnings/0").contains("unknown field \"temprature\""), "{}", found[4]);
    assert!(message(2, "/error/message").contains("not JSON"));
    assert!(message(3, "/response/body/error/message").contains("the context holds"));
    // results of another batch are left alone
    place.write("other.jsonl", br#"{"custom_id": "x", "prompt": "a"}"#);
    let output = place.run(&["batch", "other.jsonl", "-o", "out.jsonl", "-m", "demo.gguf"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--force"), "{}", text(&output.stderr));
}

/// A line that was corrected is answered by the same command, and no other.
#[test]
fn only_corrected_lines_are_answered_again() {
    let place = Place::new();
    let line = |i: usize, more: &str| {
        format!(r#"{{"custom_id": "r{i}", "prompt": "the thing {i}", "max_tokens": 3{more}}}"#)
    };
    let input = |lines: &[String]| place.write("in.jsonl", lines.join("\n"));
    let run = || place.run(&["batch", "in.jsonl", "-o", "out.jsonl", "-m", "demo.gguf"]);
    let results = || -> Vec<String> {
        let text = String::from_utf8(place.read("out.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    input(&[line(0, ""), line(1, r#", "temperature": "hot""#), line(2, ""), line(3, "") + "}"]);
    let first = run();
    assert_eq!(first.status.code(), Some(1));
    assert!(text(&first.stderr).contains("the same command answers only them"), "{first:?}");
    let before = results();
    // two that failed, and one that was answered
    input(&[line(0, ""), line(1, ""), line(2, r#", "seed": 3"#), line(3, "")]);
    let second = run();
    assert_eq!(second.status.code(), Some(0), "{}", text(&second.stderr));
    let told = "1 of 4 requests have results already; lines 2, 3 and 4 have changed and are answered again";
    assert!(text(&second.stderr).contains(told), "{}", text(&second.stderr));
    assert!(text(&second.stdout).starts_with("3 requests, "), "{}", text(&second.stdout));
    let after = results();
    assert_eq!((after.len(), &after[0]), (4, &before[0]));
    for (i, line) in after.iter().enumerate() {
        let result: Value = serde_json::from_str(line).unwrap();
        assert!(result["text"].is_string() && result["custom_id"] == format!("r{i}"), "{line}");
    }
    // nothing is left, and a new line at the end is answered alone
    assert!(text(&run().stderr).contains("all 4 requests have results"));
    input(&[line(0, ""), line(1, ""), line(2, r#", "seed": 3"#), line(3, ""), line(4, "")]);
    assert!(text(&run().stdout).starts_with("1 request, "));
    assert_eq!(results()[..4], after[..]);
}

/// Each line has a result. For a line whose `custom_id` occurs in an earlier line, it is an error that names the earlier line.
#[test]
fn a_second_line_of_an_id_is_an_error_line() {
    let place = Place::new();
    let body = r#"{"prompt": "the", "max_tokens": 2}"#;
    let line =
        |id: &str| format!(r#"{{"custom_id": "{id}", "url": "/v1/completions", "body": {body}}}"#);
    place.write("in.jsonl", [line("a"), line("b"), line("a")].join("\n"));
    let batch = ["batch", "in.jsonl", "-o", "out.jsonl", "-m", "demo.gguf"];
    let first = place.run(&batch);
    assert_eq!(first.status.code(), Some(1), "{}", text(&first.stderr));
    assert!(text(&first.stderr).contains("1 of 3 requests failed"), "{}", text(&first.stderr));
    let results = place.read("out.jsonl");
    let found: Vec<Value> = String::from_utf8(results.clone())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of =
        |i: usize| (found[i]["custom_id"].clone(), found[i]["response"]["status_code"].clone());
    let want = [("a", 200), ("b", 200), ("a", 400)];
    for (i, (id, status)) in want.into_iter().enumerate() {
        assert_eq!(of(i), (id.into(), status.into()), "{}", found[i]);
    }
    let message = &found[2]["response"]["body"]["error"]["message"];
    assert_eq!(message, "custom_id: line 1 has the same one");
    // the results are complete: the same command has nothing to do
    let again = place.run(&batch);
    assert!(text(&again.stderr).contains("all 3 requests"), "{}", text(&again.stderr));
    assert_eq!(place.read("out.jsonl"), results);
}

/// Lines without a `custom_id` are known by what they ask.
#[test]
fn results_of_another_batch_are_not_taken_for_this_ones() {
    let place = Place::new();
    place.write("a.jsonl", r#"{"prompt": "One", "max_tokens": 2}"#);
    place.write("b.jsonl", r#"{"prompt": "Two", "max_tokens": 2}"#);
    let batch = |file| ["batch", "-m", "demo.gguf", file, "-o", "out.jsonl"];
    place.ok(&batch("a.jsonl"));
    let found = place.read("out.jsonl");
    let (code, told) = place.fails(&batch("b.jsonl"));
    assert!(code == 2 && told.contains("the result of another request"), "{code} {told}");
    // the same weights with another template are another model
    let mut model = place.read("demo.gguf");
    let name = b"add_generation_prompt";
    let at = model.windows(name.len()).position(|bytes| bytes == name).unwrap();
    model[at..at + 3].copy_from_slice(b"sub");
    place.write("other.gguf", model);
    let other = ["batch", "-m", "other.gguf", "a.jsonl", "-o", "out.jsonl"];
    let (code, told) = place.fails(&other);
    assert!(code == 2 && told.contains("another model"), "{code} {told}");
    assert_eq!(place.read("out.jsonl"), found);
    place.ok(&batch("a.jsonl"));
    assert_eq!(place.read("out.jsonl"), found);
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let place = Place::new();
    place.write("a.jsonl", r#"{"prompt": "One", "max_tokens": 2}"#);
    let model = place.read("demo.gguf");
    for words in [
        &["batch", "-m", "demo.gguf", "a.jsonl", "-o", "./a.jsonl", "--force"][..],
        &["batch", "-m", "demo.gguf", "a.jsonl", "-o", "demo.gguf", "--force"],
        &["logits", "demo.gguf", "--tokens", "1 2", "-o", "demo.gguf", "--force"],
    ] {
        let (code, told) = place.fails(words);
        assert!(code == 2 && told.contains("is read by this command"), "{code} {told}");
    }
    assert_eq!(place.read("demo.gguf"), model);
    assert_eq!(place.read("a.jsonl"), br#"{"prompt": "One", "max_tokens": 2}"#);
}

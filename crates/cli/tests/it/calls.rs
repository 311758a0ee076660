//! `--tools`: calls as JSON, with the reply and alone; choices; tools of batches; what is wrong with tools.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use serde_json::{Value, json};

use crate::common::{Place, text};

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "set_light", "description": "Turns a light on or off",
    "parameters": {"type": "object", "properties": {"room": {"enum": ["kitchen", "hall"]}, "on": {"type": "boolean"}}, "required": ["room", "on"]}}},
    {"type": "function", "function": {"name": "now"}}]"#;

fn place() -> Place {
    let place = Place::new();
    place.write("tools.json", TOOLS.as_bytes());
    place
}

/// Arguments of `run` with the demo model, the tools of [`place`] and room for their description.
fn with_tools<'a>(prompt: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let common = ["run", "demo.gguf", prompt, "--tools", "tools.json", "-c", "2048"];
    [&common, more].concat()
}

fn arguments(call: &Value) -> Value {
    serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap()
}

/// Weights are random: what holds a reply to a call is its form alone.
#[test]
fn a_reply_that_must_call_calls() {
    let place = place();
    let asked = with_tools("Light!", &["-n", "300"]);
    for seed in ["1", "2", "3"] {
        let with = |more: &[&str]| {
            let args = [
                &asked[..],
                &["--seed", seed, "--tool-choice", "set_light", "--no-parallel-tool-calls"],
                more,
            ]
            .concat();
            let output = place.run(&args);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output.stdout
        };
        let object: Value = serde_json::from_slice(&with(&["--json"])).unwrap();
        assert_eq!((&object["reason"], &object["text"]), (&json!("tool_calls"), &json!("")));
        let calls = object["tool_calls"].as_array().unwrap();
        for call in calls {
            assert_eq!(
                (&call["type"], &call["function"]["name"]),
                (&json!("function"), &json!("set_light"))
            );
            let arguments = arguments(call);
            assert!(["kitchen", "hall"].contains(&arguments["room"].as_str().unwrap()), "{call}");
            assert!(
                arguments["on"].is_boolean() && arguments.as_object().unwrap().len() == 2,
                "{call}"
            );
        }
        assert_eq!(calls[0]["id"].as_str().unwrap().len(), 9);
        // alone on stdout, a line each
        let lines = String::from_utf8(with(&[])).unwrap();
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, *calls);
    }
    let none = [&asked[..], &["--tool-choice", "none", "--json", "--seed", "1"]].concat();
    let plain = ["run", "demo.gguf", "Light!", "-n", "300", "-c", "2048", "--json", "--seed", "1"];
    let reply = |args: &[&str]| serde_json::from_slice::<Value>(&place.run(args).stdout).unwrap();
    assert_eq!(reply(&none)["tokens"], reply(&plain)["tokens"]);
    assert_eq!(reply(&plain).get("tool_calls"), None);
}

/// The same calls with drafts and without.
#[test]
fn drafts_change_no_call() {
    let place = place();
    let reply = |spec: &str| {
        let more =
            ["--tool-choice", "required", "--json", "-n", "300", "--seed", "5", "--spec", spec];
        let args = with_tools("Light! Light!", &more);
        let reply: Value = serde_json::from_slice(&place.run(&args).stdout).unwrap();
        (reply["tokens"].clone(), reply["tool_calls"].clone())
    };
    assert_eq!(reply("off"), reply("lookup"));
}

#[test]
fn batches_call_tools_and_keep_to_forms() {
    let place = place();
    let tools: Value = serde_json::from_str(TOOLS).unwrap();
    let named = json!({ "type": "function", "function": { "name": "set_light" } });
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "now", "arguments": "{}" } });
    let lines = [
        json!({ "custom_id": "a", "url": "/v1/chat/completions", "body": { "tools": tools, "tool_choice": named,
            "parallel_tool_calls": false, "max_tokens": 300, "messages": [{ "role": "user", "content": "Light!" }] } }),
        json!({ "custom_id": "b", "prompt": "Time?", "tools": tools, "max_tokens": 5 }),
        json!({ "custom_id": "c", "max_tokens": 5, "messages": [{ "role": "user", "content": "Time?" },
            { "role": "assistant", "content": null, "tool_calls": [call] }, { "role": "tool", "tool_call_id": "c1", "content": "noon" }] }),
        json!({ "custom_id": "d", "prompt": "x", "max_tokens": 300, "response_format":
            { "type": "json_schema", "json_schema": { "name": "n", "schema": { "enum": ["yes", "no"] } } } }),
        json!({ "custom_id": "e", "prompt": "x", "tools": [{ "name": "a b" }] }),
    ];
    let text_of =
        |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    place.write("in.jsonl", text_of(&lines).as_bytes());
    let output =
        place.run(&["batch", "in.jsonl", "-o", "out.jsonl", "-m", "demo.gguf", "-c", "2048"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let results = String::from_utf8(place.read("out.jsonl")).unwrap();
    let results: Vec<Value> =
        results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let choice = &results[0]["response"]["body"]["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert!(arguments(&choice["message"]["tool_calls"][0])["on"].is_boolean(), "{choice}");
    assert!(results[1]["usage"]["completion_tokens"].as_u64().is_some(), "{}", results[1]);
    assert!(results[2]["usage"]["completion_tokens"].as_u64().is_some(), "{}", results[2]);
    assert!(
        ["\"yes\"", "\"no\""].contains(&results[3]["text"].as_str().unwrap()),
        "{}",
        results[3]
    );
    assert_eq!(
        results[4]["error"]["message"],
        "tools[0].name: expected 1 to 64 letters, digits, _, - and ., found \"a b\""
    );
}

#[test]
fn what_is_wrong_with_tools_is_one_line() {
    let place = place();
    for (args, problem) in [
        (&["--tools", "[3]"][..], "tools[0]: expected an object, found 3"),
        (&["--tools", "{}"], "{}"),
        (
            &["--tools", "tools.json", "--tool-choice", "then"],
            "no tool is called `then`: there are set_light, now",
        ),
        (&["--tool-choice", "none"], "--tools"),
        (&["--tools", "tools.json", "--ignore-eos"], "--ignore-eos"),
    ] {
        let (code, told) = place.fails(&[&["run", "demo.gguf", "x"], args].concat());
        assert!(code == 2 || code == 3 || code == 1, "{args:?}: {code} {told}");
        assert!(told.contains(problem), "{args:?}: {told}");
    }
}

/// Wherever a reply is cut off, stdout holds only complete calls as JSON lines; an incomplete call is reported on stderr,
/// and the exit code is 1 if there is no complete one.
#[test]
fn stdout_has_nothing_but_calls_however_short_a_reply_is() {
    let place = place();
    let mut told = 0;
    for n in (1..=90).step_by(3) {
        let n = n.to_string();
        let more = ["--tool-choice", "set_light", "--seed", "3", "-n", &n];
        let output = place.run(&with_tools("Light!", &more));
        let cut = text(&output.stderr).contains("the reply is not whole: ");
        let none = output.stdout.is_empty();
        assert_eq!(output.status.code(), Some(i32::from(none)), "{}", text(&output.stderr));
        assert!(cut || !none, "-n {n}: {}", text(&output.stderr));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let call: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("-n {n}: {e}: {line}"));
            assert!(call["function"]["name"].is_string(), "{line}");
        }
        let stderr = text(&output.stderr);
        told += usize::from(stderr.contains("ended within a call of"));
        assert!(!cut || stderr.contains("-n allows longer replies"), "{stderr}");
    }
    assert!(told > 2, "{told}");
}

/// The example of `docs/tools.md`: the bundled model calls the tool for this question with any seed.
#[test]
fn the_bundled_model_asks_for_the_time() {
    let place = place();
    let tools = r#"[{"name": "get_time", "description": "The time of day"}]"#;
    let page = include_str!("../../../../docs/tools.md");
    let shown = format!(
        "rooflight run --tools '{tools}' \\\n  --tool-choice required --no-parallel-tool-calls -p \"What time is it?\"\n"
    );
    assert!(page.contains(&shown), "{shown}");
    for seed in 1..=8 {
        let seed = seed.to_string();
        let output = place.run(&[
            "run",
            "--tools",
            tools,
            "--tool-choice",
            "required",
            "--no-parallel-tool-calls",
            "--seed",
            &seed,
            "-p",
            "What time is it?",
        ]);
        let call: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&call["function"]["name"], arguments(&call)), (&json!("get_time"), json!({})));
    }
}

/// With tools and a form together, a reply either calls a tool or has that form.
#[test]
fn tools_and_a_form_are_alternatives() {
    let place = place();
    let reply = |choice: &str| {
        let form = ["--regex", "yes|no", "--no-parallel-tool-calls", "--tool-choice", choice];
        let more = [&form[..], &["--seed", "2", "-n", "300", "--json"]].concat();
        let output = place.run(&with_tools("Light!", &more));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let says = |reply: &Value| [json!("yes"), json!("no")].contains(&reply["text"]);
    let (none, auto, required) = (reply("none"), reply("auto"), reply("required"));
    assert!(says(&none) && none.get("tool_calls").is_none(), "{none}");
    assert!(says(&auto) != auto.get("tool_calls").is_some(), "{auto}");
    assert!(required["tool_calls"][0].is_object() && required["text"] == "", "{required}");
}

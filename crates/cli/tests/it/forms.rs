//! Forms that are compiled in a process of their own, and what becomes of that process.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Place, text};
use crate::formed::{FormCase, MEMORY, SECONDS, is_form, tools_form};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rooflight");

/// Any form that is found small enough is compiled in 2 s and 512 MB; `ROOFLIGHT_MUTATIONS` is the number of forms.
#[test]
fn forms_of_strangers_are_compiled_within_their_limits() {
    let n = std::env::var("ROOFLIGHT_MUTATIONS").map_or(60, |n| n.parse().unwrap());
    let (mut random, mut compiled) = (0x2545_F491_4F6C_DD1D_u64, 0);
    for _ in 0..n {
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        let length = 8 + usize::from(next()) * 2;
        let data: Vec<u8> = (0..length).map(|_| next()).collect();
        compiled += usize::from(compiles(&data));
    }
    assert!(compiled * 10 > n, "{compiled} of {n}: too few are forms");
}

/// Compiles the form that these bytes choose, in a child process. Returns whether it is one.
fn compiles(data: &[u8]) -> bool {
    match FormCase::chosen(data) {
        FormCase::Tools(choices) => tools_form(OsStr::new(PROGRAM), choices),
        FormCase::Request(request) => {
            let start = Instant::now();
            let output = check(&request, MEMORY, SECONDS);
            let (time, said) = (start.elapsed(), text(&output.stderr));
            assert!(output.status.success(), "{} after {time:?}: {request}: {said}", output.status);
            is_form(&output.stdout)
        }
    }
}

fn check(request: &Value, memory: u64, seconds: u64) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(["check-form", "--memory", &memory.to_string(), "--seconds", &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The process sets the limits that its arguments give: a form without end, given as a grammar that is not measured, ends it.
#[cfg(target_os = "linux")]
#[test]
fn checks_end_at_their_limits() {
    let grammar = |schema: Value| json!({ "grammar": { "grammars": [{ "json_schema": schema }] }, "n_tokens": 1000 });
    let endless = grammar(json!({ "type": "integer", "multipleOf": 99_999_989 }));
    let start = Instant::now();
    let output = check(&endless, 1 << 33, 1);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let output = check(&endless, 300 << 20, 600);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    let small = grammar(json!({ "type": "integer" }));
    let output = check(&small, 1 << 30, 1);
    assert_eq!(text(&output.stdout), "{\"ok\":true}\n");
    let wrong = Command::new(PROGRAM).args(["check-form", "--memory", "much"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    // no help lists it
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(!text(&help.stdout).contains("check-form"));
}

/// One bad form costs its own line.
#[test]
fn a_bad_form_costs_a_batch_one_line() {
    let place = Place::new();
    let line = |id: &str, schema: Value| json!({ "custom_id": id, "prompt": "a tale", "max_tokens": 40, "temperature": 0, "json_schema": schema });
    let chain = |n: usize| {
        let mut all: serde_json::Map<String, Value> = (0..n)
            .map(|i| {
                (format!("d{i}"), json!({ "items": { "$ref": format!("#/$defs/d{}", i + 1) } }))
            })
            .collect();
        all.insert(format!("d{n}"), json!({ "type": "null" }));
        json!({ "$ref": "#/$defs/d0", "$defs": all })
    };
    let nested = (0..8).fold(json!({ "type": "object" }), |inner, _| {
        json!({ "type": "object", "additionalProperties": inner, "anyOf": vec![json!({ "minProperties": 0 }); 8] })
    });
    let lines = [
        line("good", json!({ "enum": ["yes", "no"] })),
        line("states", json!({ "type": "integer", "multipleOf": 99_999_989 })),
        line("chain", chain(3000)),
        line("nested", nested),
        // doubtful and fine: the other process compiles it first
        line("combined", json!({ "allOf": [{ "type": "string" }, { "maxLength": 3 }] })),
        line("last", json!({ "enum": ["yes", "no"] })),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    place.write("in.jsonl", lines.join("\n").as_bytes());
    let output = place.run(&["batch", "in.jsonl", "-o", "out.jsonl", "-m", "demo.gguf"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let results: Vec<Value> = String::from_utf8(place.read("out.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let answered = |result: &Value| result["text"].is_string();
    let ids: Vec<_> = results
        .iter()
        .map(|result| (result["custom_id"].as_str().unwrap(), answered(result)))
        .collect();
    assert_eq!(
        ids,
        [
            ("good", true),
            ("states", false),
            ("chain", false),
            ("nested", false),
            ("combined", true),
            ("last", true)
        ],
        "{results:?}"
    );
    assert!(
        ["\"yes\"", "\"no\""].contains(&results[5]["text"].as_str().unwrap()),
        "{}",
        results[5]
    );
}

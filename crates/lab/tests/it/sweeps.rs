//! `rooflight-lab roofline`, `prediction` and `policies`, with a stand-in for the product that prints known figures.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testing::{Sandbox, text};

/// Prompts take 1 s by limit, 1.25 s expected, 2 s measured for 100 tokens; steps ten times as long at depth 1024.
const STAND_IN: &str = r#"#!/bin/sh
row() {
    printf '{"n_prompt": %s, "n_gen": %s, "n_depth": %s, "n_ubatch": %s, "limit_ts": %s, "expected_ts": %s, "avg_ts": %s, ' "$@"
    printf '"model_type": "qwen2 1 M", "cpu_info": "a CPU", "n_threads": 2}'
}
echo "$@" >> "$(dirname "$0")/asked"
case "$*" in
    plan*) echo '{"inflections": {"first": 22.0}, "expected_error": {"prompts": {"part": 0.604, "runs": 3}}}' ;;
    *"--kv-policy infllm"*) echo "[$(row 0 8 24 64 100 80 50), $(row 0 8 1024 64 100 80 40)]" ;;
    *--chunk*) echo "[$(row 512 0 0 64 100 80 40), $(row 512 0 0 512 100 80 50)]" ;;
    *"-p 512 -n 0"*) echo "[$(row 100 0 0 64 100 80 50)]" ;;
    *"-p 0"*"-d 0 "*) echo "[$(row 0 8 0 64 100 80 50)]" ;;
    *"-p 0"*) echo "[$(row 0 8 24 64 100 80 50), $(row 0 8 1024 64 10 8 5)]" ;;
    *) echo "[$(row 25 0 0 64 100 80 50), $(row 100 0 0 64 100 80 50)]" ;;
esac
"#;

fn place() -> Sandbox {
    let place = Sandbox::new(env!("CARGO_BIN_EXE_rooflight-lab"));
    place.write("product", STAND_IN);
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("product"), runs).expect("it can be made to run");
    place
}

#[test]
fn a_page_with_tables_and_charts_is_written() {
    let place = place();
    let args = ["roofline", "tiny.gguf", "--out", "docs", "--binary", "./product"];
    let page = place.ok(&args);
    // 100 tokens at 100, 80 and 50 a second
    for want in [
        "a CPU, 2 threads",
        "|  | expected, ms | 312 | 1,250 |",
        "|  | measured, ms | 500 | 2,000 |",
        "| tiny | 22 tokens | **1.25** | 1.00 |",
        "depths 27; 1,027",
    ] {
        assert!(page.contains(want), "{want}: {page}");
    }
    assert_eq!(text(&place.read("docs/roofline.md")), page);
    assert!(text(&place.read("docs/roofline/prefill.csv")).contains("tiny,100,1000.000,1250.000"));
    for name in ["prefill", "steps"] {
        let svg = text(&place.read(&format!("docs/roofline/{name}.svg")));
        assert!([">limit<", ">expected<", ">measured<"].iter().all(|of| svg.contains(of)), "{svg}");
    }
    // none is replaced unasked, and that is said before anything is measured
    let asked = place.read("asked");
    let (code, told) = place.fails(&args);
    assert!(code == 1 && told.contains("--force"), "{told}");
    assert_eq!(place.read("asked"), asked);
}

#[test]
fn expected_and_measured_are_compared() {
    let place = place();
    let line = "prediction tiny.gguf --binary ./product -r 2 -t 2 -d 0 --steady 1000";
    let args: Vec<&str> = line.split(' ').collect();
    let table = place.ok(&args);
    assert!(
        table.contains("| tiny | pp100 @ d0 | 80.0 | 50.0 | +60.0 % | 60.0 % | ± 61 % |"),
        "{table}"
    );
    assert!(
        table.contains("1 figures 1 are within what was shown before, at most ± 61 %"),
        "{table}"
    );
    let rows: Value = serde_json::from_str(&place.ok(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(rows[1]["expected_ts"], 80.0);
    let asked = text(&place.read("asked"));
    let (plans, benches): (Vec<_>, Vec<_>) =
        asked.lines().partition(|line| line.starts_with("plan "));
    assert_eq!((plans.len(), benches.len()), (8, 8), "two tests, two rounds, twice: {asked}");
    assert!(benches.iter().all(|line| line.ends_with("-r 1 -t 2")), "{asked}");
}

#[test]
fn policies_are_drawn_beside_another_program() {
    let place = place();
    place.write("other.csv", "24,40\n1024,400\n");
    let line = "policies tiny.gguf --out docs --binary ./product -d 24,1024 -n 8 -r 2 -t 2 --policy full,infllm --beside other=other.csv";
    let args: Vec<&str> = line.split(' ').collect();
    let table = place.ok(&args);
    for want in [
        "qwen2 1 M, a CPU, 2 threads",
        "| ms a step | 24 | 1024 | last to first |",
        "| full | 20.0 | 200.0 | 10.00x |",
        "| infllm | 20.0 | 25.0 | 1.25x |",
        "| other | 40.0 | 400.0 | 10.00x |",
    ] {
        assert!(table.contains(want), "{want}: {table}");
    }
    assert!(text(&place.read("docs/steps.csv")).contains("infllm,1024,25.000"));
    let svg = text(&place.read("docs/steps.svg"));
    assert!([">full<", ">infllm<", ">other<"].iter().all(|of| svg.contains(of)), "{svg}");
    let asked = text(&place.read("asked"));
    assert_eq!(asked.lines().count(), 4, "two policies, two rounds: {asked}");
    assert!(asked.lines().all(|line| line.contains("-p 0 -n 8 -d 24,1024 -r 1")), "{asked}");
    let (code, told) = place.fails(&args);
    assert!(code == 1 && told.contains("--force"), "{told}");
    place.write("other.csv", "24,40\nmany,400\n");
    let (code, told) = place.fails(&[&args[..], &["--force"]].concat());
    assert!(code == 1 && told.contains("other.csv line 2: expected"), "{told}");
    assert_eq!(text(&place.read("asked")), asked, "it is said before anything is measured");
}

#[test]
fn a_product_that_is_not_there_is_named() {
    let (code, told) = place().fails(&["prediction", "tiny.gguf", "--binary", "./nothing"]);
    assert!(code == 1 && told.contains("no rooflight at ./nothing"), "{told}");
}

//! `rooflight-lab bench-mla`.

use serde_json::Value;
use testing::{Sandbox, text};

/// The binary in a folder of its own.
fn place() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_rooflight-lab"))
}

#[test]
fn bench_mla_measures_each_form() {
    let place = place();
    let args = ["bench-mla", "--shape", "v2-lite", "-r", "1", "-t", "1"];
    let small = ["--contexts", "40", "--queries", "2", "--type", "q8_0"];
    let out = place.ok(&[&args[..], &small, &["--json", "--plot", "mla.svg"]].concat());
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let cells = report["cells"].as_array().expect("cells");
    let forms: Vec<_> = cells.iter().map(|cell| cell["form"].as_str().unwrap()).collect();
    assert_eq!(forms, ["expanded", "compressed", "absorbed", "elided"]);
    for cell in cells {
        assert!(cell["attention_seconds"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["limit_seconds"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["layer_seconds"].as_f64() > cell["attention_seconds"].as_f64(), "{cell}");
        assert!(cell["cache_bytes"].as_u64().unwrap() >= 42 * 1152, "{cell}");
    }
    let longest = report["longest"].as_array().expect("longest contexts");
    let context = |i: usize| longest[i]["context"].as_u64().unwrap();
    assert_eq!(longest.len(), 4);
    assert!(context(3) > context(2) && context(2) > context(0), "{longest:?}");
    let svg = text(&place.read("mla.svg"));
    assert!(svg.starts_with("<svg") && svg.contains("DeepSeek-V2-Lite: 2 new tokens"));
    let budget = ["--contexts", "1000000", "--queries", "512", "--budget", "0.01s"];
    let out = place.ok(&[&args[..], &budget, &["--forms", "elided"]].concat());
    assert!(out.contains("- left out: elided at 1,000,000: would take about"), "{out}");
}

#[test]
fn bad_words_and_files_that_exist_are_refused_before_any_work() {
    let place = place();
    let output = place.command(&["bench-mla"]).env("ROOFLIGHT_ISA", "avx9000").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("scalar, avx2"), "{}", text(&output.stderr));
    place.write("out.svg", "precious");
    let (code, told) = place.fails(&["bench-mla", "--shape", "v2-lite", "--plot", "out.svg"]);
    assert!(code == 1 && told.contains("out.svg") && told.contains("--force"), "{told}");
    assert_eq!(place.read("out.svg"), b"precious");
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 1, "nothing was measured");
}

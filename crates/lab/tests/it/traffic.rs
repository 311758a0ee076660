//! `rooflight-lab traffic`.

use conformance::golden::{GoldenFile, archs};
use conformance::{Family, demo_gguf};
use serde_json::Value;
use testing::{Sandbox, text};

/// The binary in a folder of its own, with a dense model and one with experts.
fn place() -> Sandbox {
    let place = Sandbox::new(env!("CARGO_BIN_EXE_rooflight-lab"));
    place.write("dense.gguf", demo_gguf());
    let mixture = archs(Family::Experts).into_iter().find(|case| case.name == "qwen3moe");
    let GoldenFile::Bytes(bytes) = mixture.expect("a case").model else { panic!("a file") };
    place.write("mixture.gguf", bytes);
    place
}

fn report(place: &Sandbox, args: &[&str]) -> Value {
    let args = [&["traffic", "-t", "1", "--json"], args].concat();
    serde_json::from_str(&place.ok(&args)).expect("JSON")
}

fn kind<'a>(report: &'a Value, part: &str, kind: &str) -> &'a Value {
    let kinds = report[part].as_array().expect("kinds");
    kinds.iter().find(|of| of["kind"] == kind).expect(kind)
}

/// S0.7: by chunk, whatever its length, the matrices are read once.
#[test]
fn a_prompt_reads_the_matrices_once_for_each_chunk() {
    let place = place();
    let read = |chunk: &str| {
        let report = report(&place, &["dense.gguf", "-p", "64", "-n", "2", "--chunk", chunk]);
        let linear = kind(&report, "prompt", "linear");
        let times = linear["times"].as_f64().unwrap();
        // chunks before the last need no queries of the last layer, of two here, and read their matrix all the same
        let most = if chunk == "64" { 1.01 } else { 1.08 };
        assert!((0.99..most).contains(&times), "{linear}");
        assert_eq!(kind(&report, "steps", "linear")["times"].as_f64().unwrap().round(), 1.0);
        let passes = report["passes"].as_array().unwrap().len();
        (passes, linear["read_weight_bytes"].as_u64().unwrap())
    };
    // by hand, in f32: a layer is 64 x (64 + 32 + 32) of q, k and v, 64 x 64, 3 x 64 x 128; the head 304 x 64
    let (qkv, layer, head) = (4 * 8192, 4 * (8192 + 4096 + 24576), 4 * 304 * 64);
    assert_eq!(read("64"), (1 + 2, 2 * layer + head));
    // of the last layer all chunks but the last fill the cache only
    assert_eq!(read("8"), (8 + 2, 8 * layer + 7 * qkv + layer + head));
}

/// S2.9: experts that no row uses are not read, and no expert twice.
#[test]
fn experts_are_read_once() {
    let place = place();
    let report = report(&place, &["mixture.gguf", "-p", "32", "-n", "3", "--cache-type-k", "f32"]);
    for part in ["prompt", "steps"] {
        let experts = kind(&report, part, "experts");
        assert!((experts["times"].as_f64().unwrap() - 1.0).abs() < 0.05, "{experts}");
    }
    let [prompt, step] = ["prompt", "steps"].map(|part| {
        let experts = kind(&report, part, "experts");
        ["least", "read", "most"]
            .map(|key| experts[format!("{key}_weight_bytes")].as_u64().expect("bytes") as f64)
    });
    // rows of a prompt use more experts than one of them does, a step only its own
    assert!(prompt[1] > 1.5 * prompt[0] && prompt[1] <= 1.05 * prompt[2], "{prompt:?}");
    assert_eq!(step[0], step[2]);
}

/// S1.9: bandwidth over time, before and after.
#[test]
fn bandwidth_is_drawn() {
    let place = place();
    let args = ["traffic", "dense.gguf", "-p", "32", "-n", "4", "--chunk", "8", "-t", "1"];
    let out = place.ok(&[&args[..], &["--before", "scalar", "--plot", "a.svg"]].concat());
    assert!(out.contains("Prompt of 32 tokens in 4 passes"), "{out}");
    let svg = text(&place.read("a.svg"));
    for want in ["limit: ", "measured, scalar", "measured, linear", "Within a step at depth 3"] {
        assert!(svg.contains(want), "{want}");
    }
    let (code, told) = place.fails(&[&args[..], &["--plot", "a.svg"]].concat());
    assert!(code == 1 && told.contains("--force"), "{told}");
}

#[test]
fn models_that_are_none_are_refused() {
    let place = place();
    let (code, told) = place.fails(&["traffic", "nowhere.gguf"]);
    assert!(code == 3 && told.contains("no model at nowhere.gguf"), "{code} {told}");
    place.write("bad.gguf", "nonsense");
    let (code, told) = place.fails(&["traffic", "bad.gguf"]);
    assert!(code == 2 && told.contains("bad.gguf"), "{code} {told}");
}
